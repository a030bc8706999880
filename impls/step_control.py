"""Does a controller of the step's length survive spikes of the learning rate? Sao 2026, "Ghosts of Softmax: Complex
Singularities That Limit Safe Step Sizes in Cross-Entropy", arXiv:2603.13552; after piyush314/ghosts-of-softmax,
experiments/lrspike.

Adam wishes a step of length tau in the direction v (`impls.study_parts`, eqs. 1 and 2):

    radius  the step is cut to tau <= rho_a = pi / D_a, with D_a over all digits to train on                         (1)
    gap     the same with pi over the mean spread of the logits
    clip    the norm of the gradient is cut to 1 before Adam sees it, the step is what Adam wishes
    none    the step is what Adam wishes

    spike at k    an MLP on the digits of scikit-learn, the learning rate 10^k times 10^-3 from a quarter of the steps
                  on: accuracy on digits that it was not trained on, at the end (`accuracy`)

Differs from the paper: one network and one learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from impls import study
from impls.study import Cell, Metric, Row
from impls.study_parts import digits, network, safe, unit

CONTROLS = ("radius", "gap", "clip", "none")
SPIKES = (1, 2, 3, 4)


def controlled(control: str, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    """The optimizer's step, as the controller lets it."""
    if control == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer.step()
    if control in ("clip", "none"):
        return
    wished = {name: weight.detach() - before[name] for name, weight in model.named_parameters()}
    model.load_state_dict(before)
    v, tau = unit(wished)
    tau = min(tau, safe(control, model, x, v))
    model.load_state_dict({name: weight + tau * v[name] for name, weight in before.items()})


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        control: str = "radius"
        steps: int = 200  # this, the batch and the place of the spike as released
        batch: int = 64
        lr: float = 1e-3

        def __post_init__(self):
            if self.control not in CONTROLS:
                raise ValueError(f"control={self.control!r} is none of {', '.join(CONTROLS)}")

    METRICS: ClassVar = {
        "accuracy": Metric(unit="share", better="higher", chance=0.1, summary="on other digits, behind the spike"),
    }
    AXES: ClassVar = {"spike": "power of ten of the spike"}

    def cells(self) -> list[Cell]:
        return [("spike", power, "accuracy") for power in SPIKES]

    def parts(self) -> list[str]:
        return [f"spike-{power}" for power in SPIKES]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        x, y, other_x, other_y = digits(device)
        cfg, power, steps = self.config, int(part.removeprefix("spike-")), self.scaled(self.config.steps, 12)
        torch.manual_seed(study.number(seed))  # the same network and batches for every spike and controller
        model = network("mlp").to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
        for step in range(steps):
            rows = torch.randperm(len(x))[: cfg.batch].to(device)
            optimizer.param_groups[0]["lr"] = cfg.lr * 10 ** (power if step >= steps // 4 else 0)
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            controlled(cfg.control, model, optimizer, x)
        accuracy = float((model(other_x).argmax(-1) == other_y).float().mean())
        yield Row("spike", power, "accuracy", accuracy, len(other_x))
