"""Can the model repeat the value that stood beside a key? Rows are made as in training, from streams no training draws.

    mqar-P    P key–value pairs, filler, then every key once, in rows of the training length T (longer where 4P > T)
    needle-P  P pairs at random places in filler, then up to 8 of the keys, in rows of 1, 2, 4, 8 × T

accuracy: the share of queried keys whose value has the highest logit of the whole vocabulary; where k tokens share the
highest, 1/k; a guesser of values gets 1/64. n counts queries. Queries of one row share its pairs, so the standard error
is over rows: with one query a row it is the binomial one, sqrt(p (1 - p) / (n - 1)). `items` holds the right answers of
each row. The rows are the same for every mechanism and differ from seed to seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import field_validator

from harness.closed import Ascending, Count, Distinct
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.suites import Cell, Row, ratio
from harness.tasks.recall import CHANCE, VOCAB, evaluation, kind

TASK = "recall"
METRICS = {
    "accuracy": Metric(unit="share", better="higher", chance=CHANCE, summary="queried keys whose value is recalled")
}


class Settings(SuiteSettings):
    examples: Count = 128  # rows a cell
    kinds: Distinct[str] = ("mqar-4", "mqar-8", "mqar-16", "mqar-32", "needle-1", "needle-8")
    multiples: Ascending[Count] = (1, 2, 4, 8)  # of the training length, for needles

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for name in kinds:
            kind(name)
        return kinds


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    wanted = profile.suite("recall")
    return [
        (name, length, "accuracy")
        for name in wanted.kinds
        for length in lengths(name, profile.task(TASK).length, wanted.multiples)
    ]


def lengths(name: str, length: int, multiples: tuple[int, ...]) -> list[int]:
    """Row lengths at which a kind is measured: at least what its pairs and queries need."""
    shortest = kind(name).shortest
    if kind(name).task == "mqar":
        return [max(length, shortest)]
    return sorted({max(multiple * length, shortest) for multiple in multiples})


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row]:
    """Rows of every cell."""
    yield from measure(model, settings, profile.suite("recall"), seed, device)


def measure(model: Any, settings: Any, wanted: Settings, seed: int, device: Any) -> Iterator[Row]:
    """The suite on examples of this seed; `settings` has `length` and `model.heads` of the training."""
    from harness.scoring import credit, rows_that_fit

    for name in wanted.kinds:
        for length in lengths(name, settings.length, wanted.multiples):
            inputs_NT, targets_NT = evaluation(name, wanted.examples, length, seed)
            rows = rows_that_fit(length, settings.model.heads, VOCAB)
            yield accuracy(name, length, credit(model, inputs_NT, targets_NT, rows, device))


def accuracy(task: str, length: int, credit_NQ: np.ndarray) -> Row:
    """The row of one cell, from the credit of Q queries in each of N examples."""
    right_N = credit_NQ.sum(axis=1)
    value, stderr = ratio(right_N, np.full(len(credit_NQ), credit_NQ.shape[1]))
    items = [float(right) for right in right_N] if np.isfinite(value) else ()
    return Row(task, length, "accuracy", value, credit_NQ.size, stderr, items)
