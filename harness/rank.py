"""Rankings as groups of ties: runs that the seeds cannot tell apart share a letter, whatever the order of their means.

Every pair of runs is compared by the differences of the seeds they share (paired t, two-sided), with Holm's correction
over all pairs at 5 %. A pair that is told apart shares no letter; a pair that is not shares at least one (compact
letter display by insert, absorb and sweep, Piepho 2004, doi:10.1198/1061860043515). A run with fewer than two seeds
has no place in the ranking and is listed after it with what it has: a missing cell is never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from statistics import fmean
from string import ascii_lowercase

from harness import stats
from harness.verdict import holm

Group = frozenset[str]


@dataclass(frozen=True)
class Ranked:
    """One line of a ranking; `letters` is empty and `mean` may be None where a run is listed but not ranked."""

    run: str
    mean: float | None  # over the seeds that were measured
    seeds: int
    wanted: int
    letters: str = ""
    note: str = ""

    @property
    def count(self) -> str:
        """`2/3`: seeds measured of seeds wanted."""
        return f"{self.seeds}/{self.wanted}"


def rank(
    values: Mapping[str, Mapping[int, float]],
    *,
    wanted: int,
    better: str,
    step: float = 0.0,
    excluded: Mapping[str, str] | None = None,
) -> list[Ranked]:
    """Runs in the order of their means, best first, with letters; then those that are not ranked, by name.

    `values` are numbers by run and seed (one that is not finite counts as not measured), `wanted` is how many seeds
    each should have, `better` is `higher` or `lower`, `step` is the resolution of the metric (`stats.resolution`), and
    `excluded` gives the reason why a run may not be ranked. Raises ValueError for another direction.
    """
    if better not in ("higher", "lower"):
        raise ValueError(f"runs are ranked by a metric that is better higher or lower, not {better!r}")
    excluded = excluded or {}
    values = {run: {seed: v for seed, v in found.items() if isfinite(v)} for run, found in values.items()}
    sign = -1 if better == "higher" else 1
    means = {run: fmean(found.values()) for run, found in values.items() if found}
    placed = sorted(
        (run for run in means if run not in excluded and len(values[run]) > 1), key=lambda run: (sign * means[run], run)
    )
    letters = letter_display(placed, told_apart({run: values[run] for run in placed}, step))
    ranked = [Ranked(run, means[run], len(values[run]), wanted, letters[run]) for run in placed]
    for run in sorted((set(values) | set(excluded)) - set(placed)):
        seeds = len(values.get(run, {}))
        note = excluded.get(run) or ("one seed only" if seeds else "not measured")
        ranked.append(Ranked(run, means.get(run), seeds, wanted, note=note))
    return ranked


def told_apart(values: Mapping[str, Mapping[int, float]], step: float = 0.0) -> set[Group]:
    """Pairs of runs whose means differ at 5 % after correction over all pairs that share two seeds or more."""
    p_values: dict[Group, float] = {}
    for a, b in combinations(sorted(values), 2):
        seeds = sorted(set(values[a]) & set(values[b]))
        if len(seeds) > 1:
            found = stats.difference([values[a][seed] - values[b][seed] for seed in seeds], step)
            p_values[frozenset((a, b))] = min(1.0, 2 * min(found.p_above(0.0), found.p_below(0.0)))
    levels = holm(list(p_values.values()))
    return {pair for pair, level in zip(p_values, levels, strict=True) if level.adjusted <= stats.ALPHA}


def letter_display(order: Sequence[str], apart: Iterable[Group]) -> dict[str, str]:
    """Letters by run, `a` for the group of the best: a pair shares one exactly when it is not told apart."""
    groups: list[Group] = [frozenset(order)] if order else []
    for pair in sorted(apart, key=sorted):
        split: list[Group] = []
        for group in groups:
            split += [group - {run} for run in sorted(pair)] if pair <= group else [group]
        groups = _absorbed(split)
    groups = _swept(groups)
    place = {run: at for at, run in enumerate(order)}
    groups.sort(key=lambda group: sorted(place[run] for run in group))
    return {run: "".join(_letter(at) for at, group in enumerate(groups) if run in group) for run in order}


def _absorbed(groups: Sequence[Group]) -> list[Group]:
    """Groups that no other contains, each once."""
    unique = list(dict.fromkeys(groups))
    return [group for group in unique if not any(group < other for other in unique)]


def _swept(groups: list[Group]) -> list[Group]:
    """Without groups whose every pair shares another group already."""
    kept = sorted(groups, key=sorted)
    for group in list(kept):
        others = [other for other in kept if other != group]
        if all(any({a, b} <= other for other in others) for a in group for b in group):
            kept = others
    return kept


def _letter(place: int) -> str:
    """a … z, then a1 … z1, a2 …"""
    turn, letter = divmod(place, len(ascii_lowercase))
    return ascii_lowercase[letter] + (str(turn) if turn else "")


@dataclass(frozen=True)
class Mean:
    """A mean over cells that says how many of them it has."""

    value: float | None
    cells: int
    wanted: int

    @property
    def complete(self) -> bool:
        """Only complete means may be compared."""
        return self.cells == self.wanted > 0

    def __str__(self) -> str:
        shown = "–" if self.value is None else f"{self.value:.4g}"
        return shown if self.complete else f"{shown} ({self.cells}/{self.wanted})"


def mean_over(cells: Iterable[float | None]) -> Mean:
    """The mean of the cells that were measured; None stands for one that was not."""
    listed = list(cells)
    known = [cell for cell in listed if cell is not None]
    return Mean(fmean(known) if known else None, len(known), len(listed))
