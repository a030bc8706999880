"""What a number of seeds can see: the chance of a verdict, and the least difference that is seen four times in five.

Planning is done at the spread that was observed. The mean of n seeds is taken as normal around the true improvement,
and the spread found in them as that of n normal draws; the rule of `harness.verdict` is applied to both and the chance
is summed over the spreads. Noise of shared items does not shrink with more seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from harness.stats import ALPHA
from harness.verdict import Rule

POWER = 0.8
MAX_SEEDS = 200
POINTS = 400

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """An experiment to be: seeds, the spread and the noise of items to expect, and the level of its test."""

    seeds: int
    spread: float
    item_error: float = 0.0
    level: float = ALPHA

    def chance(self, rule: Rule, improvement: float, verdict: str = "reproduced") -> float:
        """The chance of a verdict (`reproduced` or `contradicted`) when this improvement is the true one."""
        inner, outer, m = self._reach(self.level), self._reach(self.level / 2), rule.margin
        if verdict == "reproduced":
            if rule.shape == "above":
                return self._between(improvement, np.maximum(outer, m + inner), np.inf)
            return self._between(improvement, inner - m, np.inf if rule.shape == "not_below" else m - inner)
        if rule.shape == "within":
            return self._between(improvement, -np.inf, -m - outer) + self._between(improvement, m + outer, np.inf)
        return self._between(improvement, -np.inf, (m if rule.shape == "above" else -m) - outer)

    def detectable(self, rule: Rule) -> float | None:
        """The least true improvement that is reproduced with 80 % power; None when the spread is 0.

        For `not_below` and `within`: the least margin that could be confirmed if nothing differed.
        """
        unit = self._standard_error()
        if unit == 0:
            return None
        start = rule.margin if rule.shape == "above" else 0.0

        def short(extra: float) -> float:
            if rule.shape == "above":
                return self.chance(rule, start + extra * unit) - POWER
            return self.chance(replace(rule, margin=extra * unit), 0.0) - POWER

        far = 8.0
        while short(far) < 0:
            far *= 2
        return start + float(brentq(short, 0.0, far, xtol=1e-6)) * unit  # type: ignore[arg-type]

    def _standard_error(self) -> float:
        return sqrt(self.spread**2 / self.seeds + self.item_error**2)

    def _reach(self, alpha: float) -> Array:
        """Distance from the mean to the one-sided bound, for each of the spreads that may be found."""
        seeds = -stdtrit(self.seeds - 1, alpha) * self.spread * _spreads(self.seeds) / sqrt(self.seeds)
        return np.sqrt(seeds**2 + (ndtri(alpha) * self.item_error) ** 2)

    def _between(self, improvement: float, low: Array | float, high: Array | float) -> float:
        unit = self._standard_error()
        low, high = np.asarray(low), np.asarray(high)
        if unit == 0:
            return float(np.mean((low < improvement) & (improvement < high)))
        return float(np.maximum(ndtr((high - improvement) / unit) - ndtr((low - improvement) / unit), 0.0).mean())


def seeds_to_settle(rule: Rule, improvement: float, design: Design, level_against: float = ALPHA) -> int | None:
    """The least number of seeds that settles a claim with 80 % power if the observed improvement is the true one.

    Settled means reproduced at the design's level or contradicted at `level_against`, whichever the improvement points
    to. None when MAX_SEEDS are too few: the improvement is too near the border, or the noise of items too large.
    """

    def settled(seeds: int) -> bool:
        for verdict, level in (("reproduced", design.level), ("contradicted", level_against)):
            if replace(design, seeds=seeds, level=level).chance(rule, improvement, verdict) >= POWER:
                return True
        return False

    if not settled(MAX_SEEDS):
        return None
    low, high = 1, MAX_SEEDS  # settled(high) holds, settled(low) does not: one seed has no interval
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high


@lru_cache(maxsize=64)
def _spreads(seeds: int) -> Array:
    """Equally likely values of (spread found) / (true spread) with this many seeds."""
    upper = (np.arange(POINTS) + 0.5) / POINTS
    return np.sqrt(chdtri(seeds - 1, upper) / (seeds - 1))
