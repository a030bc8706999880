"""How sure a mean difference is: intervals and p-values over seeds, and over items where seeds share them.

Seeds. The differences of n seeds are taken as draws of one population; the mean ± t × spread / √n of Student's t with
n − 1 degrees of freedom holds the true mean with the stated confidence.

Items. When every seed answers the same test items, those items are a second sample: other items would have given
another mean, and the spread over seeds does not show it. The mean of each item over seeds is resampled, and the
bias-corrected and accelerated interval (BCa, Efron 1987, doi:10.1080/01621459.1987.10478410) gives a distance to each
side. Part of the spread over items is noise of single answers, which the seeds show already; a two-way analysis of
variance takes that part out, so nothing is counted twice.

Both. The two distances on one side are combined as the root of the sum of their squares (MOVER, Zou and Donner 2008,
doi:10.1002/sim.3095), so an interval may be longer on one side. Items drawn anew for each seed need none of this:
their noise is in the spread over seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

ALPHA = 0.05
RESAMPLES = 4000
BOOTSTRAP_SEED = 20080808
MAX_ITEMS = 2000  # more are averaged in groups of neighbours first
TAIL = 0.005  # below it too few resamples are left: the distance grows as it does under a normal law
SMALLEST = 1e-15  # p-values end here
SINGLE = 1e-6  # relative resolution of a number that was computed in single precision

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ItemNoise:
    """What a bootstrap over items says of their mean."""

    draws: Array  # resampled means less the mean, in rising order
    bias: float  # z0 of BCa
    skew: float  # the acceleration of BCa
    share: float  # of each distance, the part that all seeds have in common
    error: float  # standard error of the mean over items, that part of it

    def reach(self, alpha: float, side: int) -> float:
        """Distance from the mean to the one-sided 1 − alpha bound below (side −1) or above it (side +1)."""
        tail = min(max(alpha, TAIL), 0.5)
        z = self.bias + side * -ndtri(tail)
        level = ndtr(self.bias + z / (1 - self.skew * z))
        distance = max(0.0, side * _quantile(self.draws, float(level))) * self.share
        return distance * float(ndtri(alpha) / ndtri(TAIL)) if alpha < TAIL else distance


@dataclass(frozen=True)
class Difference:
    """A mean of n seeds with its uncertainty; n ≥ 2."""

    mean: float
    spread: float  # standard deviation over seeds, never less than the resolution of the metric allows
    n: int
    items: ItemNoise | None = None

    @property
    def item_error(self) -> float:
        """Standard error that the choice of items adds, 0 where it is unknown or already in the spread over seeds."""
        return self.items.error if self.items else 0.0

    def reach(self, alpha: float, side: int) -> float:
        """Distance from the mean to the one-sided 1 − alpha bound below (side −1) or above it (side +1)."""
        seeds = -float(stdtrit(self.n - 1, alpha)) * self.spread / sqrt(self.n)
        return sqrt(seeds**2 + self.items.reach(alpha, side) ** 2) if self.items else seeds

    def interval(self, confidence: float = 1 - ALPHA) -> tuple[float, float]:
        """The two-sided interval of this confidence."""
        alpha = (1 - confidence) / 2
        return self.mean - self.reach(alpha, -1), self.mean + self.reach(alpha, 1)

    def p_above(self, border: float) -> float:
        """One-sided p-value of `the true mean lies above border`: the least alpha whose lower bound clears it."""
        return self._tail(self.mean - border, -1) if self.mean > border else 1 - self._tail(border - self.mean, 1)

    def p_below(self, border: float) -> float:
        """One-sided p-value of `the true mean lies below border`."""
        return self._tail(border - self.mean, 1) if self.mean < border else 1 - self._tail(self.mean - border, -1)

    def _tail(self, distance: float, side: int) -> float:
        """The alpha whose bound lies at this distance, between SMALLEST and 1/2; 0 means no spread at all."""
        if distance == 0:
            return 0.0 if self.spread == 0 and not self.item_error else 0.5
        if not self.item_error:
            t = distance * sqrt(self.n) / self.spread if self.spread else inf
            return float(stdtr(self.n - 1, -t))
        if self.reach(SMALLEST, side) <= distance:
            return SMALLEST
        excess = lambda x: self.reach(float(np.exp(x)), side) - distance  # noqa: E731
        low, high = log(SMALLEST), log(0.5)
        return float(np.exp(float(brentq(excess, low, high, xtol=1e-8)))) if excess(high) < 0 else 0.5  # type: ignore[arg-type]


def difference(seeds: ArrayLike, resolution: float = 0.0, items: ArrayLike | None = None) -> Difference:
    """The mean difference from one value a seed [S], S ≥ 2, and where seeds share items from one an item [S, I].

    Two values rounded to a resolution r differ by an error of standard deviation r / √6, so a smaller spread is not
    believed: equal differences in all seeds do not make an interval of no length. Raises ValueError when S < 2 or a
    value is not finite.
    """
    d_S = np.asarray(seeds, dtype=np.float64)
    if d_S.ndim != 1 or len(d_S) < 2 or not np.isfinite(d_S).all():
        raise ValueError("a difference needs one finite value from each of at least 2 seeds")
    spread = max(float(d_S.std(ddof=1)), resolution / sqrt(6))
    return Difference(float(d_S.mean()), spread, len(d_S), None if items is None else item_noise(items))


def resolution(values: ArrayLike, counts: ArrayLike, scale: float = 1.0) -> float:
    """The step between values the metric can take: scale / n where each value is a count out of n items, else rounding.

    `scale` is 100 for a percentage. Values that are whole numbers of single measurements (n = 1) have the step 1.
    """
    v_N, n_N = np.asarray(values, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    rounding = SINGLE * float(np.abs(v_N).max(initial=0.0))
    hits_N = v_N * n_N / scale
    if len(n_N) and (n_N >= 1).all() and np.allclose(hits_N, hits_N.round(), rtol=0, atol=1e-6):
        return max(rounding, scale / float(n_N.min()))
    return rounding


def item_noise(items: ArrayLike) -> ItemNoise:
    """The bootstrap over the items of d_SI, S ≥ 2 seeds that all saw the same I ≥ 2 items.

    Raises ValueError for fewer, or for a value that is not finite.
    """
    d_SI = np.asarray(items, dtype=np.float64)
    if d_SI.ndim != 2 or min(d_SI.shape) < 2 or not np.isfinite(d_SI).all():
        raise ValueError("items need finite values of at least 2 seeds by 2 items")
    d_I, share = d_SI.mean(axis=0), _common_share(d_SI)
    if len(d_I) > MAX_ITEMS:
        d_I = np.array([group.mean() for group in np.array_split(d_I, MAX_ITEMS)])
    d_I = d_I - d_I.mean()
    squares = float((d_I**2).sum())
    error = share * sqrt(squares / (len(d_I) - 1) / len(d_I))
    if error == 0:
        return ItemNoise(np.zeros(2), 0.0, 0.0, 0.0, 0.0)
    draws = np.sort(_resampling(len(d_I)) @ d_I)
    below = ((draws < 0).sum() + 0.5 * (draws == 0).sum()) / len(draws)
    bias = float(ndtri(min(max(below, 1 / len(draws)), 1 - 1 / len(draws))))
    return ItemNoise(draws, bias, float((d_I**3).sum()) / (6 * squares**1.5), share, error)


def _quantile(sorted_R: Array, level: float) -> float:
    """What numpy.quantile gives, thirty times as fast for a single level of sorted values."""
    place = level * (len(sorted_R) - 1)
    below = min(int(place), len(sorted_R) - 2)
    return float(sorted_R[below] + (place - below) * (sorted_R[below + 1] - sorted_R[below]))


def _common_share(d_SI: Array) -> float:
    """√ of the part of the variance of item means that is not noise of single answers (two-way ANOVA, one a cell)."""
    S, count = d_SI.shape
    d_I = d_SI.mean(axis=0)
    between = S * float(d_I.var(ddof=1))
    rest_SI = d_SI - d_SI.mean(axis=1, keepdims=True) - d_I + d_SI.mean()
    return sqrt(max(0.0, 1 - float((rest_SI**2).sum()) / ((S - 1) * (count - 1)) / between)) if between > 0 else 0.0


@lru_cache(maxsize=2)
def _resampling(items: int) -> Array:
    """W_RI: row r holds how often each item was drawn in resample r, over the number of items."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    W_RI = np.empty((RESAMPLES, items))
    for row_I in W_RI:
        row_I[:] = np.bincount(rng.integers(items, size=items), minlength=items) / items
    return W_RI
