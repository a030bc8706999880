"""Which runs lead a column, and which of them the seeds cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from scipy.special import stdtr

from harness import stats
from harness.rank import Ranked, rank
from harness.report.evidence import DONE, Cell, Evidence, Run
from harness.verdict import holm

SHARED_LETTERS = (
    "Runs of a column that share a letter are not told apart; bold: the leading group, where no seed is missing"
)
MANY = 40  # runs beyond which each is compared with the leader alone, since pairs grow with the square


def within_budget(run: Run) -> bool:
    """Whether every trained model of the run kept the profile's budget."""
    return all(record.get("within_budget", True) for record in run.records.values() if record["status"] == DONE)


@dataclass(frozen=True)
class Ties:
    """The rankings of all runs, each made when it is first asked for."""

    evidence: Evidence
    known: dict[Cell, list[Ranked]] = field(default_factory=dict)
    lettered: dict[Cell, dict[str, str]] = field(default_factory=dict)

    def ranking(self, cell: Cell) -> list[Ranked]:
        """Runs from best to worst with letters; runs that share a letter are not told apart, `a` leads."""
        if cell not in self.known:
            self.known[cell] = self._rank(cell)
        return self.known[cell]

    def letters(self, cell: Cell) -> dict[str, str]:
        """Letters by run id; empty where the metric has no better direction."""
        if cell not in self.lettered:
            self.lettered[cell] = {ranked.run: ranked.letters for ranked in self.ranking(cell)}
        return self.lettered[cell]

    def best(self, cell: Cell) -> set[str]:
        """Ids of the runs in the leading tie group."""
        return {run for run, letters in self.letters(cell).items() if "a" in letters}

    def _rank(self, cell: Cell) -> list[Ranked]:
        better, runs = self.evidence.metric(cell).better, self.evidence.models
        if better == "none":
            return []
        values = {id: {s: v.value for s, v in run.values.get(cell, {}).items()} for id, run in runs.items()}
        found = [value for run in runs.values() for value in run.values.get(cell, {}).values()]
        step = stats.resolution([v.value for v in found], [v.n or 0 for v in found])
        excluded = {id: "outside budget" for id, run in runs.items() if not within_budget(run)}
        wanted = len(self.evidence.seeds)
        if len(runs) <= MANY:
            return rank(values, wanted=wanted, better=better, step=step, excluded=excluded)
        return _against_leader(values, wanted, better, step, excluded)


def _against_leader(
    values: Mapping[str, Mapping[int, float]], wanted: int, better: str, step: float, excluded: Mapping[str, str]
) -> list[Ranked]:
    """Like `rank`, but `a` for the leader and those not told apart from it, and no letter for the others."""
    sign = -1 if better == "higher" else 1
    means = {id: fmean(found.values()) for id, found in values.items() if len(found) > 1 and id not in excluded}
    order = sorted(means, key=lambda id: (sign * means[id], id))
    p_values = _p_values(values, order[0], order[1:], step) if order else {}
    levels = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    apart = {id for id, level in levels.items() if level.adjusted <= stats.ALPHA}
    return [Ranked(id, means[id], len(values[id]), wanted, "" if id in apart else "a") for id in order]


def _p_values(
    values: Mapping[str, Mapping[int, float]], leader: str, others: list[str], step: float
) -> dict[str, float]:
    """Two-sided p-values of the paired differences from the leader, as `stats.difference` gives them, many at once."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for id in others:
        groups.setdefault(tuple(sorted(values[id].keys() & values[leader].keys())), []).append(id)
    found: dict[str, float] = {}
    for seeds, ids in groups.items():
        if len(seeds) < 2:
            continue
        d_RS = np.array([[values[id][seed] - values[leader][seed] for seed in seeds] for id in ids])
        spread_R = np.maximum(d_RS.std(axis=1, ddof=1), step / math.sqrt(6))
        with np.errstate(divide="ignore", invalid="ignore"):
            t_R = np.nan_to_num(np.abs(d_RS.mean(axis=1)) * math.sqrt(len(seeds)) / spread_R, nan=0.0)
        found |= zip(ids, (2 * stdtr(len(seeds) - 1, -t_R)).tolist(), strict=True)
    return {id: found[id] for id in others if id in found}
