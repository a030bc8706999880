"""What a trained model is measured by, one file a suite, found by file name. A suite module exports

    TASK                 the training task whose model it measures
    METRICS              {name: Metric}: unit, better direction, score of a guesser
    Settings             what a profile may say about it
    SHARED_ITEMS         optional: True where the items behind its numbers are the same in every seed (one text): their
                         choice is a source of chance of its own; left out where each seed draws its own
    cells(profile)       (task, length in tokens or None, metric) of everything it measures there, in order
    files(profile)       optional: files that it reads besides the corpus: where one changes, it measures again
    named(profile)       optional: {key of its settings: file that it names}; where one is missing, nothing is trained
    obstacles(profile, window)   optional: {task: why it cannot be measured}, found in no time, so that it can be said
                         before anything is trained; `window` is what a model reads and writes at most, None where that
                         is not known yet
    may_lack(cell)       optional: whether a mechanism may rightly have no such cell, as a head that it does not have
    evaluate(model, settings, profile, seed, device)
                         Rows of those cells. `model` maps tokens_BT to logits_BTV and is in evaluation mode, `settings`
                         are its training settings, `seed` that of its training. Among the rows it may yield a Gap for
                         a cell that this run or this machine cannot have, Samples to be read by people, and Questions
    PRETRAINED           optional: True where a model of the Hub can be measured too: the suite asks in text (see
                         `harness.text.asked`), and TASK is `lm`
    CORPUS               optional: True where it asks such a model about the corpus

A row whose value or standard error is not finite is no measurement: `harness.evaluate` leaves it out and says so.
Profiles are checked by these modules, so torch is not imported at their top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Cell = tuple[str, int | None, str]


@dataclass(frozen=True)
class Row:
    """One measurement. `items`, where kept, are the scores of the examples behind it, so that runs can be paired."""

    task: str
    length: int | None  # tokens
    metric: str
    value: float
    n: int  # what the value is a mean over, as the suite says
    stderr: float | None = None
    items: Sequence[float] = ()

    @property
    def cell(self) -> Cell:
        return self.task, self.length, self.metric


@dataclass(frozen=True)
class Gap:
    """A cell that cannot be measured in this run or on this machine, and why in a few words. It is no failure."""

    task: str
    length: int | None
    metric: str
    reason: str

    @property
    def cell(self) -> Cell:
        return self.task, self.length, self.metric


@dataclass(frozen=True)
class Sample:
    """One question as the model read it, what it wrote, and what was wanted."""

    task: str
    length: int | None
    prompt: str
    output: str
    answers: Sequence[str]
    score: float | None = None


@dataclass(frozen=True)
class Questions:
    """Which questions a task asked: a SHA-256 of all of them with their answers, equal for equal questions."""

    task: str
    length: int | None
    sha256: str


SAMPLES = 20  # kept of each task and length


def name(cell: Cell) -> str:
    """`length/bits_per_byte@2048`, as in a metric key."""
    task, length, metric = cell
    return f"{task}/{metric}" + ("" if length is None else f"@{length}")


def is_number(row: Row) -> bool:
    """Whether value and standard error are finite."""
    return math.isfinite(row.value) and (row.stderr is None or math.isfinite(row.stderr))


def shortfall(
    wanted: Sequence[Cell], found: Mapping[Cell, Row], may_lack: Callable[[Cell], bool] = lambda cell: False
) -> str | None:
    """One sentence on the cells that have no number, and on those that nobody asked for; None when all is well."""
    faults = {
        "not finite": [cell for cell in wanted if cell in found and not is_number(found[cell])],
        "not measured": [cell for cell in wanted if cell not in found and not may_lack(cell)],
        "measured but not announced by cells()": [cell for cell in found if cell not in wanted],
    }
    return "; ".join(f"{what}: {_listed(cells)}" for what, cells in faults.items() if cells) or None


def _listed(cells: Sequence[Cell]) -> str:
    names = [name(cell) for cell in cells]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def influence(numerators_N: np.ndarray, denominators_N: np.ndarray) -> list[float]:
    """What each of the N clusters contributes to sum / sum: N numbers whose mean is that ratio.

    R + (a_i - R b_i) / mean(b): the linearisation behind the standard error of `ratio`. Clusters of two runs over the
    same denominators are paired by it. Empty where the ratio is not finite.
    """
    value = numerators_N.sum() / denominators_N.sum()
    if not np.isfinite(value):
        return []
    return (value + (numerators_N - value * denominators_N) / denominators_N.mean()).tolist()


def ratio(numerators_N: np.ndarray, denominators_N: np.ndarray) -> tuple[float, float | None]:
    """(sum / sum, its standard error over the N clusters), for example nats and bytes of N windows.

    By linearisation: Var = N / (N - 1) · sum_i (a_i - R b_i)^2 / (sum_i b_i)^2 (Cochran, Sampling Techniques, 3rd ed.
    1977, ch. 6); with all b_i = 1 it is the standard error of a mean. None for a single cluster.
    """
    count, total = len(numerators_N), denominators_N.sum()
    value = numerators_N.sum() / total
    if count < 2:
        return float(value), None
    residual_N = numerators_N - value * denominators_N
    return float(value), float(np.sqrt(count / (count - 1) * np.square(residual_N).sum()) / total)
