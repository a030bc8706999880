"""A method: it changes a model that was trained, which is then measured like any other.

    from impls import method

    class Method(method.Method):
        …

A paper gives it as a run with a base: `pruned: {impl: sixteen_heads, args: {keep: 4}, base: softmax}`. For every seed
it is made from the base's model of each training task that a claim measures it on.

What was found out about the model (`choose`) is kept apart from what is done to it (`install`), so that the changed
model can be built again from its settings and then given its weights. The suites measure it like any trained model;
what only the method can count (`report`) is measured beside them, as `method/<task>/<metric>` in a claim.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from harness.metrics import Metric

__all__ = ["Method", "Metric"]
Batches = Sequence[tuple[Tensor, Tensor]]  # (inputs_BT, targets_BT), int64; a target of −100 is not scored


class Method(ABC):
    """Subclasses add `Config`, a frozen keyword-only dataclass whose every field is read, and what is abstract.

    A model is a `harness.model.LM`: `layers[i].mixer` may be wrapped or replaced and layers dropped, as long as its
    forward, `prefill` and `step` keep agreeing.
    """

    Config: ClassVar[type]
    METRICS: ClassVar[Mapping[str, Metric]] = {}  # of what it reports
    BATCHES: ClassVar[int] = 8  # of calibration, at full effort

    def __init__(self, config: Any, effort: float = 1.0):
        if not 0 < effort <= 1:
            raise ValueError(f"effort={effort} is not in (0, 1]")
        self.config, self.effort = config, effort

    def scaled(self, n: int, least: int = 1) -> int:
        """A number of steps or samples at this effort."""
        return max(least, round(n * self.effort))

    @abstractmethod
    def choose(self, model: Any, calibration: Batches, seed: int) -> Mapping[str, Any]:
        """What calibration finds, as plain JSON: heads to keep, thresholds. `model` is left as it was.

        `calibration` are the task's own batches of the training split, the next ones after those that trained it.
        """

    @abstractmethod
    def install(self, model: Any, choices: Mapping[str, Any]) -> Any:
        """The model changed by these choices; `model` itself may be changed and returned.

        Depends on the structure of the model and on Config, not on weights or effort: it is called on an untrained
        model too, whose weights are then read from disk.
        """

    def heal(self, model: Any, base: Any, calibration: Batches, seed: int) -> None:  # noqa: B027
        """Train the changed model a little in place, as by distilling `base`; nothing here."""

    def report(self, choices: Mapping[str, Any]) -> Mapping[str, float]:
        """A number for each of METRICS, from what was chosen: heads kept, share of keys read."""
        return {}

    def apply(self, model: Any, calibration: Batches, seed: int = 0) -> Any:
        """The changed model, in evaluation mode; the given one stays. Not to be overridden.

        torch's global generator is seeded for it and put back after. Raises TypeError for choices that are no JSON.
        """
        device = next(model.parameters()).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            choices = json.loads(json.dumps(self.choose(model, calibration, seed), allow_nan=False))
            made = self.install(copy.deepcopy(model), choices).to(device)
            made.shape = dataclasses.replace(model.shape, method=self.settings() | {"choices": choices})
            self.heal(made, model, calibration, seed)
        return made.eval()

    def settings(self) -> dict[str, Any]:
        """Which method this is: its module and arguments."""
        args = json.loads(json.dumps(dataclasses.asdict(self.config), allow_nan=False))
        return {"impl": type(self).__module__.rpartition(".")[2], "args": args}
