"""Language modelling: windows of the training text, each token predicting the next.

The text is one stream of tokens, `<end> article <end> article … <end>` (see `harness.data`), cut into windows of
T + 1 tokens whose last token opens the next window. Every epoch visits every window once, in an order and from a
starting point drawn for (seed, epoch):

    window 0   [t0 t1 t2 t3]              T = 3
    window 1            [t3 t4 t5 t6]     inputs t3 t4 t5, targets t4 t5 t6
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import Field

from harness.errors import UserError
from harness.tasks import Batch, HeldOut, TrainSettings, shift


class Settings(TrainSettings):
    """Windows of `length` tokens of the corpus, `batch` a step."""

    valid_every: int = Field(gt=0)  # steps between measurements of bits per byte on held-out text; the last is always
    valid_tokens: int = Field(gt=0)  # size of that measurement, from the start of the validation text


class Task:
    """The corpus in `data`, as `python -m harness.data` made it."""

    def __init__(self, settings: Settings, seed: int, data: Path):
        from harness.data import Corpus  # not at the top: a workflow reads settings without touching the corpus

        corpus = Corpus(data)
        self.settings, self.seed, self.vocab = settings, seed, corpus.vocab
        self.train_N, self.valid_N = corpus.tokens("train"), corpus.tokens("valid")
        self.token_bytes_V = corpus.token_bytes_V
        size = corpus.manifest["splits"]["train"]
        self.bytes_per_token, self.digest = size["bytes"] / size["tokens"], corpus.digest
        self.windows = (len(self.train_N) - 1) // settings.length - 1  # one fewer than fit: room for the offset
        if self.windows < 1:
            raise UserError(f"the training text has {len(self.train_N)} tokens, too few for length {settings.length}")
        self._epoch = lru_cache(maxsize=2)(self._draw_epoch)

    def _draw_epoch(self, epoch: int) -> np.ndarray:
        """Where each window of this epoch starts, in the order of visiting."""
        rng = np.random.default_rng([self.seed, epoch])
        return rng.integers(self.settings.length) + self.settings.length * rng.permutation(self.windows)

    def batch(self, step: int) -> Batch:
        first = step * self.settings.batch
        starts = [self._epoch(n // self.windows)[n % self.windows] for n in range(first, first + self.settings.batch)]
        return shift(np.stack([self.train_N[s : s + self.settings.length + 1] for s in starts]).astype(np.int64))

    def held_out(self) -> Iterator[HeldOut]:
        limit = self.settings.valid_tokens
        yield from windows(self.valid_N[: limit + 1], self.settings.length, self.settings.batch, self.token_bytes_V)


def windows(ids_N: np.ndarray, length: int, rows: int, token_bytes_V: np.ndarray) -> Iterator[HeldOut]:
    """Batches of adjacent windows that score each token but the first once, without overlap.

    The last tokens, fewer than `length`, come as one shorter row: nothing is left out.
    """
    count, rest = divmod(len(ids_N) - 1, length)
    starts = range(0, count * length, length)
    for first in range(0, count, rows):
        yield _held_out([ids_N[s : s + length + 1] for s in starts[first : first + rows]], token_bytes_V)
    if rest > 0:
        yield _held_out([ids_N[count * length :]], token_bytes_V)


def _held_out(rows: list[np.ndarray], token_bytes_V: np.ndarray) -> HeldOut:
    inputs_BT, targets_BT = shift(np.stack(rows).astype(np.int64))
    return HeldOut(inputs_BT, targets_BT, int(token_bytes_V[targets_BT].sum()))
