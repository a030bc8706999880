"""What a model is trained on, one file a task, found by file name.

A task module exports `Settings`, everything a profile says about training on it, and `Task(settings, seed, data)`:

    Task.vocab           size of the vocabulary
    Task.digest          of the files it reads, or nothing; a run is resumed only on the same ones
    Task.bytes_per_token of text, on the training split, or None where there is no text
    Task.batch(step)     (inputs_BT, targets_BT), int64 arrays; a target of IGNORE is not scored. A pure function of
                         (seed, step), so that a resumed run sees what it would have seen; the same for every mechanism
    Task.held_out()      batches of (inputs_BT, targets_BT, bytes of text they score) that training never draws
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field, model_validator

from harness.closed import Ascending, Closed, Positive

REFERENCE = "softmax"  # the mechanism whose parameters are the budget of every other
IGNORE = -100  # the target that `torch.nn.functional.cross_entropy` leaves out by default


class ModelSettings(Closed):
    """The backbone, the same for every mechanism but for `mlp`, which is solved to match the reference's parameters."""

    width: int = Field(gt=0)  # D
    layers: int = Field(gt=0)
    heads: int = Field(gt=0)  # H, where a run's args do not say otherwise
    mlp: int = Field(gt=0)  # hidden width of the SwiGLU in the softmax reference
    conv: int = Field(default=4, ge=0)  # width of the causal depthwise convolution before each mixer; 0 leaves it out
    alone: bool = False  # the mixer alone, without residuals; `harness.model.Alone`

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSettings:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width: {self.width}")
        return self


class Tune(Closed):
    """A grid of learning rates for every run whose recipe gives none, each tried on a pilot of `steps` steps."""

    rates: Ascending[Positive]
    steps: int = Field(gt=0)  # of a pilot; warm-up is shortened alike

    @model_validator(mode="after")
    def _choice(self) -> Tune:
        if len(self.rates) < 2:
            raise ValueError("rates: one alone is no grid; give two or more, or leave tune out")
        return self


# all runs; those that a claim measures on the task, and one of each mechanism; or those that a claim measures alone
Trained = Literal["all", "mechanisms", "claimed"]


class TrainSettings(Closed):
    """What every task needs to be trained; a task adds its own."""

    model: ModelSettings
    length: int = Field(gt=0)  # T, tokens in a row
    batch: int = Field(gt=0)  # rows of `length` tokens in a step
    steps: int = Field(gt=0)
    lr: float = Field(gt=0)  # at the end of warm-up
    warmup: int = Field(ge=0)  # steps of linear warm-up, then cosine
    floor: float = Field(default=0.1, ge=0, le=1)  # last learning rate as a fraction of `lr`
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.98, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)  # of matrices; never of vectors
    clip: float = Field(default=1.0, gt=0)  # largest global gradient norm
    micro_batch: int | None = Field(default=None, gt=0)  # rows in one forward pass, where memory is short
    processes: int = Field(default=1, ge=1, le=1024)  # that train one model together; `harness.parallel`
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 autocast on a GPU, fp32 on a CPU
    curve_every: int = Field(default=1, gt=0)  # steps between points of curve.jsonl
    save_every: int = Field(default=200, gt=0)  # steps between saves of the resume state
    tune: Tune | None = None  # None: every run has `lr`
    trained: Trained = "all"  # which runs are

    @model_validator(mode="after")
    def _warmup_ends(self) -> TrainSettings:
        if self.warmup > self.steps:
            raise ValueError(f"warmup: {self.warmup} is longer than steps: {self.steps}")
        if self.tune and self.tune.steps > self.steps:
            raise ValueError(f"tune.steps: {self.tune.steps} is longer than steps: {self.steps}")
        return self


class Batch(NamedTuple):
    """Tokens and, for each, the token to predict next (IGNORE: none)."""

    inputs_BT: np.ndarray
    targets_BT: np.ndarray


class HeldOut(NamedTuple):
    """A batch of held-out rows and the bytes of the text that its targets spell, 0 where there is no text."""

    inputs_BT: np.ndarray
    targets_BT: np.ndarray
    text_bytes: int


class Task(Protocol):
    """What the trainer asks of a task."""

    @property
    def vocab(self) -> int: ...

    @property
    def digest(self) -> str: ...

    @property
    def bytes_per_token(self) -> float | None: ...

    def batch(self, step: int) -> Batch: ...

    def held_out(self) -> Iterator[HeldOut]: ...


def names() -> list[str]:
    """Every task, in alphabetical order."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def load(name: str) -> ModuleType:
    """The task's module. Raises ModuleNotFoundError when there is none of that name."""
    return importlib.import_module(f"harness.tasks.{name}")


def shift(ids_BT: np.ndarray) -> Batch:
    """Inputs and targets of rows of T + 1 tokens: the token at t predicts the one at t + 1 of its own row."""
    return Batch(ids_BT[:, :-1], ids_BT[:, 1:])
