"""RULER's scoring, the floors beside it, and what is made of many scores.

A reference counts when the answer contains it, letters' case aside (`string_match_all`, `string_match_part` of
NVIDIA/RULER@c3f5e3b4, scripts/eval/synthetic/constants.py): the share of the references, for qa one is enough. lm-eval
0.4.13 takes the share for qa too, which is another metric (NVIDIA/RULER#15). Scores run from 0 to 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from harness.metrics import Metric
from harness.ruler import ANY
from harness.suites import Cell, Row

CONTROL = re.compile(r"[\x00-\x1f]")
DRAWS = 1000  # of the bootstrap
LEVEL = 0.95
BINS = 5  # of depth, in reports
EFFECTIVE = {  # what suites report of the effective length
    "effective_length": Metric(unit="tokens", better="higher", summary="greatest length at which the threshold is met"),
    "effective_length_low": Metric(unit="tokens", better="none", summary="lower end of its 95 % interval over samples"),
    "effective_length_high": Metric(unit="tokens", better="none", summary="upper end of its 95 % interval"),
}
EFFECTIVE_CELLS: list[Cell] = [("all", None, metric) for metric in EFFECTIVE]


def depth_bin(depth: float) -> int:
    """Which of BINS equal parts of the text a depth, from 0 to 1, is in."""
    return min(int(depth * BINS), BINS - 1)


def cleaned(answer: str) -> str:
    """An answer as RULER reads it: control characters are line breaks, and none stand at its ends."""
    return CONTROL.sub("\n", answer.strip()).strip()


def hits(answer: str, references: Sequence[str]) -> list[bool]:
    """Which references the answer contains."""
    text = cleaned(answer).lower()
    return [reference.lower() in text for reference in references]


def score(task: str, answer: str, references: Sequence[str]) -> float:
    """Share of the references in the answer; for qa, whether any is. Raises ValueError without references."""
    if not references:
        raise ValueError(f"{task}: an answer cannot be scored without a reference")
    found = hits(answer, references)
    return float(any(found)) if task in ANY else sum(found) / len(found)


def plain_mean(scores: Mapping[str, float | None], members: Sequence[str]) -> tuple[float | None, int]:
    """(mean over the members, each counting once, or None where any is missing; how many are there)."""
    present = [value for name in members if (value := scores.get(name)) is not None]
    return (sum(present) / len(present) if present and len(present) == len(members) else None), len(present)


def effective_length(
    by_length: Mapping[int, Sequence[Sequence[float]]], threshold: float, seed: int = 0
) -> tuple[float, float, float]:
    """(greatest length whose mean score reaches the threshold, ends of its 95 % bootstrap interval); 0 where none does.

    `by_length` holds for each length the scores of each task's samples; tasks count alike. Samples are drawn again
    within each task and length, so the interval covers the choice of samples, not that of seeds or lengths.
    """
    rng = np.random.default_rng(seed)
    value = _greatest({length: _mean(tasks) for length, tasks in by_length.items()}, threshold)
    means = {length: _again(tasks, rng) for length, tasks in by_length.items()}
    drawn = sorted(_greatest({length: mean_D[k] for length, mean_D in means.items()}, threshold) for k in range(DRAWS))
    tail = round((1 - LEVEL) / 2 * (DRAWS - 1))
    return value, drawn[tail], drawn[-1 - tail]


def effective_rows(by_length: Mapping[int, Sequence[Sequence[float]]], threshold: float) -> list[Row]:
    """The rows of EFFECTIVE; n counts lengths. The interval is not symmetric, so it is no standard error."""
    found = effective_length(by_length, threshold)
    return [Row("all", None, metric, value, len(by_length)) for metric, value in zip(EFFECTIVE, found, strict=True)]


def _mean(tasks: Sequence[Sequence[float]]) -> float:
    return sum(sum(scores) / len(scores) for scores in tasks) / len(tasks)


def _again(tasks: Sequence[Sequence[float]], rng: np.random.Generator) -> list[float]:
    """The mean of each draw: as many scores of each task as it has, with replacement."""
    drawn_TD = [np.asarray(scores)[rng.integers(0, len(scores), (DRAWS, len(scores)))].mean(axis=1) for scores in tasks]
    return np.mean(drawn_TD, axis=0).tolist()


def _greatest(means: Mapping[int, float], threshold: float) -> float:
    return float(max((length for length, mean in means.items() if mean >= threshold), default=0))
