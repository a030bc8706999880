"""Trigger-conditional averaging, on which softmax attention must have a sink (Ran-Milo 2026, arXiv:2603.11487).

There: a row opens with BOS, holds a trigger at a random place, and content elsewhere; the output is the mean of the
content so far at the trigger and 0 at every other place. Softmax cannot give 0 unless all of its weight rests on tokens
whose value is 0, and before the trigger only BOS can be one; attention whose rows need not sum to 1 just keeps still.

Here with tokens, `B` for BOS and `!` for the trigger; ? stands for a token drawn from the whole vocabulary, . is not
scored:

    inputs    B  c7 c2 c2 !  c7 c2 c7
    targets   .  ?  .  .  c2 ?  .  .

- at the trigger the target is drawn from the content before it, so the best answer is the mean of that content as
  one-hot vectors: log p that follows the shares;
- at `quiet` other places of each row the target is drawn from the whole vocabulary, so the best answer is the same
  logit for every token: an output of 0.

Each row draws its content from `kinds` tokens of its own, which makes the mean far from uniform and quick to learn.
The model has to be one layer of attention `alone` without a convolution: a residual or an MLP behind the attention can
cancel what it writes, and a convolution lets a token see its neighbours past the attention. With residual and
MLP softmax did the task with a first-token mass of 0.2 to 0.7 in pilots.

Differs from the paper: tokens and cross-entropy for real vectors and squared error, positions and heads as each
mechanism has them, a norm before the attention and an MLP in the embedding; not every quiet place is scored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from harness.tasks import IGNORE, Batch, HeldOut, ModelSettings, TrainSettings

BOS, TRIGGER = 0, 1
CONTENT = range(2, 66)
VOCAB = CONTENT.stop
TRAINING, EVALUATION, HELD_OUT = 0, 1, 2  # the first word of the random stream: they never meet


class AttentionAlone(ModelSettings):
    """One layer of attention without what could do the task in its place."""

    layers: Literal[1] = 1
    conv: Literal[0] = 0
    alone: Literal[True] = True


class Settings(TrainSettings):
    """Rows of `length` tokens, `batch` a step."""

    model: AttentionAlone
    kinds: int = Field(default=2, ge=1, le=len(CONTENT))  # content tokens that a row draws from
    quiet: int = Field(default=4, ge=1)  # places without the trigger that are scored in each row

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.length < self.quiet + 2:
            raise ValueError(f"length: {self.length} has no room for BOS, the trigger and quiet: {self.quiet}")
        return self


class Rows(NamedTuple):
    """Rows with the place of their trigger, which is 2 or later: there is content before it."""

    inputs_BT: np.ndarray
    trigger_B: np.ndarray


class Task:
    """Needs no files: `data` is not read."""

    vocab = VOCAB
    digest = ""
    bytes_per_token = None

    def __init__(self, settings: Settings, seed: int, data: Path | None = None):
        self.settings, self.seed = settings, seed

    def batch(self, step: int) -> Batch:
        return self._scored(np.random.default_rng([TRAINING, self.seed, step]))

    def held_out(self) -> Iterator[HeldOut]:
        """As many rows as a step has, from a stream that neither training nor the suite draws from."""
        yield HeldOut(*self._scored(np.random.default_rng([HELD_OUT, self.seed])), text_bytes=0)

    def _scored(self, rng: np.random.Generator) -> Batch:
        settings = self.settings
        rows = generate(rng, settings.batch, settings.length, settings.kinds)
        return Batch(rows.inputs_BT, targets(rng, rows, settings.quiet))


def evaluation(settings: Settings, rows: int, seed: int) -> Rows:
    """Rows that no training run of any seed has drawn."""
    return generate(np.random.default_rng([EVALUATION, seed]), rows, settings.length, settings.kinds)


def generate(rng: np.random.Generator, rows: int, length: int, kinds: int) -> Rows:
    """BOS, then content of `kinds` tokens a row, with one trigger among it."""
    own_BK = CONTENT.start + rng.random((rows, len(CONTENT))).argsort(axis=1)[:, :kinds]
    inputs_BT = np.take_along_axis(own_BK, rng.integers(kinds, size=(rows, length)), 1)
    trigger_B = rng.integers(2, length, rows)
    inputs_BT[:, 0] = BOS
    np.put_along_axis(inputs_BT, trigger_B[:, None], TRIGGER, 1)
    return Rows(inputs_BT, trigger_B)


def targets(rng: np.random.Generator, rows: Rows, quiet: int) -> np.ndarray:
    """targets_BT: content at the trigger, any token at `quiet` other places behind BOS, IGNORE elsewhere."""
    B, T = rows.inputs_BT.shape
    at = (np.arange(B), rows.trigger_B)
    order_BT = rng.random((B, T))
    order_BT[:, 0] = order_BT[at] = 2.0  # last of all
    scored_BT = order_BT.argsort(axis=1).argsort(axis=1) < quiet
    targets_BT = np.where(scored_BT, rng.integers(VOCAB, size=(B, T)), IGNORE)
    source_B = rng.integers(1, rows.trigger_B)
    targets_BT[at] = rows.inputs_BT[np.arange(B), source_B]
    return targets_BT


def shares(rows: Rows) -> np.ndarray:
    """p_BV, the mean of the one-hot content before each trigger: the best answer there."""
    T = rows.inputs_BT.shape[1]
    before_BT = (np.arange(T) > 0) & (np.arange(T) < rows.trigger_B[:, None])
    return (before_BT[..., None] * np.eye(VOCAB)[rows.inputs_BT]).sum(axis=1) / before_BT.sum(axis=1)[:, None]
