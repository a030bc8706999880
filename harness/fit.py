"""The training loop: one optimizer step after another, with a state that can be saved between any two of them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from harness.loss import bits, mean_or_none, text_costs, token_mean, total_nll
from harness.memory import Memory
from harness.model import LM, param_groups
from harness.optim import AdamW, learning_rate
from harness.parallel import ALONE, Group
from harness.tasks import IGNORE, Batch, Task, TrainSettings

TAIL = 0.1  # the last share of the learning curve, whose mean is the final loss


class Diverged(Exception):
    """A loss or a gradient that is not a number or not finite; the text says which, and at which step."""


class Point(NamedTuple):
    """What one step was like; loss in nats a token."""

    step: int
    tokens: int
    loss: float
    lr: float
    grad_norm: float
    valid_bpb: float | None

    def line(self) -> str:
        """One line of curve.jsonl: the same bytes for the same numbers."""
        return json.dumps({key: value for key, value in self._asdict().items() if value is not None}) + "\n"


class Fit:
    """A model in training; after any step it depends on the shape, the settings, the seed and the data alone."""

    def __init__(self, model: LM, task: Task, settings: TrainSettings, seed: int, device: str, group: Group = ALONE):
        self.model = model.to(device).train()
        self.task, self.settings, self.device, self.group = task, settings, device, group
        self.optimizer = AdamW(param_groups(model, settings.weight_decay), settings)
        self.memory = Memory(self.model, settings.micro_batch, device, group.rank if group.size > 1 else None)
        self.steps_done, self.tokens, self.seconds = 0, 0, 0.0
        self.processes = [group.size]  # how many trained it, and how many went on after an interruption
        self.curve: list[str] = []
        torch.manual_seed(group.seed(seed))  # for mechanisms that draw numbers while they train

    def run(self, until: Callable[[int], bool], after: Callable[[Point], None]) -> None:
        """Step until all steps are done or `until(steps done)` holds; `after` is told of each step.

        Raises Diverged before a step that would spoil the weights.
        """
        while self.steps_done < self.settings.steps and not until(self.steps_done):
            start = time.perf_counter()
            point = self._step()
            if point.step % self.settings.curve_every == 0 or point.step == self.settings.steps:
                self.curve.append(point.line())
            self.seconds += time.perf_counter() - start
            after(point)

    def _step(self) -> Point:
        lr = learning_rate(self.steps_done, self.settings)
        batch = self.task.batch(self.steps_done)
        step = self.steps_done + 1
        loss = self._backward(batch)
        if not math.isfinite(loss):
            raise Diverged(f"the loss is {loss} at step {step}")
        norm = self.optimizer.clip(self.settings.clip)
        if not math.isfinite(norm):
            raise Diverged(f"the gradient's norm is {norm} at step {step}")
        self.optimizer.step(lr)
        self.steps_done, self.tokens = step, self.tokens + batch.inputs_BT.size
        return Point(step, self.tokens, loss, lr, norm, self._validate(step))

    def _backward(self, batch: Batch) -> float:
        """Gradients of the mean loss over the scored tokens of all micro-batches of all processes; that mean."""
        scored = int((batch.targets_BT != IGNORE).sum())
        with self.group.together():
            sums = self._accumulate(self.group.share(batch), scored)
        self.group.add(self.optimizer.gradients())
        found = self.group.each((sums, self.memory.halved))
        self.memory.learn(each for _, halved in found for each in halved)
        return token_mean([each for sums, _ in found for each in sums]) or 0.0

    def _accumulate(self, batch: Batch, scored: int) -> list[tuple[float, int]]:
        """Add to the gradients those of each micro-batch, of its loss over `scored`; (nats, scored tokens) of each."""
        step, rows = self.steps_done + 1, len(batch.inputs_BT)
        return self.memory.spread(step, rows, lambda few: self._passes(batch, scored, few))

    def _passes(self, batch: Batch, scored: int, rows: int) -> list[tuple[float, int]]:
        """The same, with so many rows in a pass."""
        sums = []
        for first in range(0, len(batch.inputs_BT), rows):
            part = [torch.from_numpy(ids[first : first + rows]).to(self.device) for ids in batch]
            with self._autocast():
                total = total_nll(self.model, part[0], part[1])
            (total / scored).backward()
            sums.append((total.item(), int((batch.targets_BT[first : first + rows] != IGNORE).sum())))
        return sums

    def _validate(self, step: int) -> float | None:
        every = getattr(self.settings, "valid_every", None)
        if every is None or (step % every and step != self.settings.steps):
            return None
        with self.group.together(), self._autocast():
            costs = text_costs(self.model, self.group.turns(self.task.held_out()), self.device)
        bpb = bits(self.group.all(costs))
        if bpb is not None and not math.isfinite(bpb):
            raise Diverged(f"held-out text costs {bpb} bits a byte at step {step}")
        return bpb

    def _autocast(self) -> AbstractContextManager[Any]:
        wanted = self.settings.precision
        if wanted == "bf16" or (wanted == "auto" and self.device.startswith("cuda")):
            return torch.autocast(torch.device(self.device).type, torch.bfloat16)
        return nullcontext()

    def final_loss(self) -> float | None:
        """Mean loss over the last tenth of the learning curve; None when there is none or it is not finite."""
        losses = [json.loads(line)["loss"] for line in self.curve]
        return mean_or_none(losses[-math.ceil(TAIL * len(losses)) :] if losses else [])

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs to go on as if nothing had happened; to be called by all processes."""
        cuda = self.device.startswith("cuda")
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state(),
            "random": self.group.each(torch.get_rng_state()),
            "random_cuda": self.group.each(torch.cuda.get_rng_state(self.device)) if cuda else [],
            "processes": self.processes,
            "memory": self.group.each(self.memory.state()),
            "steps_done": self.steps_done,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "curve": "".join(self.curve),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved `state`; with another number of processes, equal to it but for the order of sums."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state(state["optimizer"])
        for random in state["random"][self.group.rank :][:1]:
            torch.set_rng_state(random)
        for random in state["random_cuda"][self.group.rank :][:1]:
            torch.cuda.set_rng_state(random, self.device)
        for memory in state["memory"][self.group.rank :][:1]:
            self.memory.restore(memory)
        before = state["processes"]
        self.processes = before if before[-1] == self.group.size else [*before, self.group.size]
        self.steps_done, self.tokens, self.seconds = state["steps_done"], state["tokens"], state["seconds"]
        self.curve = state["curve"].splitlines(keepends=True)
