"""Associative recall: keys are bound to values, later a key is shown and its value must follow.

mqar-P, multi-query associative recall (Arora et al. 2023, arXiv:2312.04927 §3): P pairs, then every key once, in
random order. P = 2, T = 4P; `.` is not scored:

    inputs    k7 v3 k2 v9 k2 v9 k7 v3
    targets   .  .  .  .  v9 .  v3 .

needle-P: P pairs at random even places of random filler, then up to 8 of the keys. P = 1, T = 10:

    inputs    f5 f1 f8 f2 k4 v6 f3 f3 k4 v6
    targets   .  .  .  .  .  .  .  .  v6 .

ruler: rows of the 13 tasks of `harness.ruler.micro`, in turn.

Keys of a row differ; values are drawn with replacement, so guessing a value is right once in 64. The pairings of key
and value that tests ask for are never drawn in training (`harness.vocabulary`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, field_validator, model_validator

from harness.closed import List
from harness.ruler import SHORTEST, TASKS, micro
from harness.tasks import IGNORE, Batch, HeldOut, TrainSettings
from harness.vocabulary import ALLOWED, EVALUATION, KEYS, TRAINING, VALUES, VOCAB, choose, filler, paired

RULER = "ruler"
NEEDLE_QUERIES = 8  # at most so many keys are asked for after a haystack
CHANCE = 1 / len(VALUES)
HELD_OUT = 2  # the first word of a random stream, beside TRAINING and EVALUATION: they never meet


class Kind(NamedTuple):
    """One kind of row: `mqar` or `needle`, with its number of pairs."""

    task: str
    pairs: int

    @property
    def shortest(self) -> int:
        """Fewest tokens that hold the pairs and their queries."""
        return 2 * self.pairs + 2 * (self.pairs if self.task == "mqar" else min(self.pairs, NEEDLE_QUERIES))


def kind(name: str) -> Kind:
    """The kind that `mqar-32` or `needle-8` names. Raises ValueError for anything else, naming it."""
    task, _, pairs = name.partition("-")
    if task not in GENERATORS or not pairs.isascii() or not pairs.isdigit() or not 1 <= int(pairs) <= len(KEYS):
        raise ValueError(f"{name!r} is no kind of recall: write mqar-P or needle-P with 1 <= P <= {len(KEYS)}")
    return Kind(task, int(pairs))


class Settings(TrainSettings):
    """A step holds `batch · length` tokens whatever its kind; mqar rows are 4P tokens long, needles `length`."""

    kinds: Annotated[List[str], Field(min_length=1)]  # in turn, one a step

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for name in kinds:
            if name != RULER:
                kind(name)
        return kinds

    @model_validator(mode="after")
    def _long_enough(self) -> Settings:
        if RULER in self.kinds and self.length < SHORTEST:
            raise ValueError(f"length: {self.length} is too short for the kind ruler, which needs {SHORTEST}")
        return self


class Task:
    """A mixture of kinds, one a step. Needs no files: `data` is not read."""

    vocab = VOCAB
    digest = ""
    bytes_per_token = None

    def __init__(self, settings: Settings, seed: int, data: Path | None = None):
        self.settings, self.seed = settings, seed

    def batch(self, step: int) -> Batch:
        kinds = self.settings.kinds
        rounds, place = divmod(step, len(kinds))
        before = rounds * kinds.count(RULER) + kinds[:place].count(RULER)
        return self._rows(kinds[place], before, np.random.default_rng([TRAINING, self.seed, step]))

    def held_out(self) -> Iterator[HeldOut]:
        """As many rows of each kind as a step has, from a stream that neither training nor the suite draws from."""
        for place, name in enumerate(dict.fromkeys(self.settings.kinds)):
            made = self._rows(name, 0, np.random.default_rng([HELD_OUT, self.seed, place]))
            yield HeldOut(*made, text_bytes=0)

    def _rows(self, name: str, before: int, rng: np.random.Generator) -> Batch:
        """One step's rows of a kind; `before` steps were of the kind ruler."""
        if name == RULER:
            return mixture(self.settings.batch, self.settings.length, before * self.settings.batch, rng)
        length = row_length(name, self.settings.length)
        return generate(name, max(1, self.settings.batch * self.settings.length // length), length, rng)


def mixture(rows: int, length: int, first: int, rng: np.random.Generator) -> Batch:
    """Rows of RULER's tasks, each the next one's turn; `first` rows were dealt before."""
    counts = np.bincount((first + np.arange(rows)) % len(TASKS), minlength=len(TASKS))
    parts = [micro.generate(TASKS[n], int(counts[n]), length, rng, TRAINING) for n in np.flatnonzero(counts)]
    return Batch(*(np.concatenate([getattr(part, name) for part in parts]) for name in Batch._fields))


def row_length(name: str, length: int) -> int:
    """Tokens of a training row: needles have the training length, mqar just holds its pairs and queries."""
    return kind(name).shortest if kind(name).task == "mqar" else length


def evaluation(name: str, rows: int, length: int, seed: int) -> Batch:
    """Rows that no training run of any seed has drawn, from a stream of their own for (seed, kind, length)."""
    task, pairs = kind(name)
    stream = [EVALUATION, seed, list(GENERATORS).index(task), pairs, length]
    return generate(name, rows, length, np.random.default_rng(stream), EVALUATION)


def generate(name: str, rows: int, length: int, rng: np.random.Generator, part: int = TRAINING) -> Batch:
    """Rows of one kind, with the pairings of training or those of tests.

    Raises ValueError when `length` is odd or too short for the pairs and their queries.
    """
    made = kind(name)
    if length % 2 or length < made.shortest:
        raise ValueError(f"{name} needs an even length of at least {made.shortest} tokens, not {length}")
    return GENERATORS[made.task](rng, rows, made.pairs, length, part)


def mqar(rng: np.random.Generator, rows: int, pairs: int, length: int, part: int) -> Batch:
    """P pairs, then P queries; tokens beyond 4P are filler between the two."""
    keys_BP, values_BP = _pairs(rng, rows, pairs, part)
    order_BP = choose(rng, rows, pairs, pairs)
    inputs_BT = filler(rng, rows, length)
    inputs_BT[:, : 2 * pairs] = _interleave(keys_BP, values_BP)
    return _ask(inputs_BT, np.take_along_axis(keys_BP, order_BP, 1), np.take_along_axis(values_BP, order_BP, 1))


def needle(rng: np.random.Generator, rows: int, pairs: int, length: int, part: int) -> Batch:
    """P pairs at random even places of filler, then min(P, 8) queries."""
    asked = min(pairs, NEEDLE_QUERIES)
    keys_BP, values_BP = _pairs(rng, rows, pairs, part)
    place_BP = 2 * choose(rng, rows, (length - 2 * asked) // 2, pairs)
    inputs_BT = filler(rng, rows, length)
    np.put_along_axis(inputs_BT, place_BP, keys_BP, 1)
    np.put_along_axis(inputs_BT, place_BP + 1, values_BP, 1)
    order_BQ = choose(rng, rows, pairs, asked)
    return _ask(inputs_BT, np.take_along_axis(keys_BP, order_BQ, 1), np.take_along_axis(values_BP, order_BQ, 1))


GENERATORS = {"mqar": mqar, "needle": needle}


def _pairs(rng: np.random.Generator, rows: int, pairs: int, part: int) -> tuple[np.ndarray, np.ndarray]:
    """P different keys a row and a value for each."""
    keys_BP = KEYS.start + choose(rng, rows, len(KEYS), pairs)
    return keys_BP, paired(keys_BP, rng.integers(ALLOWED[part], size=(rows, pairs)), part)


def _interleave(keys_BP: np.ndarray, values_BP: np.ndarray) -> np.ndarray:
    """[k0 v0 k1 v1 …] in each row."""
    return np.stack([keys_BP, values_BP], axis=-1).reshape(len(keys_BP), -1)


def _ask(inputs_BT: np.ndarray, keys_BQ: np.ndarray, values_BQ: np.ndarray) -> Batch:
    """Put the queries at the end of each row; the value after each queried key is scored."""
    start = inputs_BT.shape[1] - 2 * keys_BQ.shape[1]
    targets_BT = np.full_like(inputs_BT, IGNORE)
    inputs_BT[:, start:] = _interleave(keys_BQ, values_BQ)
    targets_BT[:, start::2] = values_BQ
    return Batch(inputs_BT, targets_BT)
