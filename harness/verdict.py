"""The rule: when measurements reproduce a claim, contradict it, or leave it open.

Run and baseline are paired by seed, and each seed gives one difference. Its sign is turned so that more is better for
the claim; the result is called the improvement.

- `higher` or `lower` by a margin m is reproduced when the 95 % interval of the improvement lies wholly above 0 and
  its 90 % interval wholly above m. Two questions are asked, each at 5 %: is there a difference, where either sign
  would be news (two-sided); and is it as large as was promised, where only one end can fail (one-sided). With m = 0
  the first question is the whole rule.
- `not_lower` or `not_higher` (not worse by more than m) is reproduced when the 90 % interval lies wholly above −m:
  a test of non-inferiority.
- `within` a margin m is reproduced when the 90 % interval lies wholly between −m and m: two one-sided tests at 5 %,
  the usual test of equivalence (TOST, Schuirmann 1987, doi:10.1007/BF01068419).
- Each is contradicted when the 95 % interval lies wholly where the claim is false: below m, below −m, or outside ±m.
- All else is inconclusive, and so is a claim whose precondition (`needs`) fails in any seed, whatever its numbers: it
  is not tested then, and does not count among the claims of its paper.

Asking the 95 % interval itself to clear m would be stricter. It matters with few seeds: differences of 83.9, 83.1 and
37.6 have the 95 % interval 2.4 to 134 and the 90 % interval 23.5 to 113, so they differ from 0 and exceed a margin of
10 here, and would be left open there.

A trend is judged by the slopes per doubling, one a seed, and a reported value by its distance from each seed's, with
its tolerance as the margin. `all_of` is reproduced when every part is and contradicted when one is; `any_of` the other
way round. One seed has no interval and is inconclusive; no pair of seeds at all is blocked, with the reason.
Differences that are equal in all seeds are known to the resolution of the metric only, such as one answer of n.

The claims of one paper are tested together, a composite counting as one. Holm's step-down correction keeps the chance
of any wrong `reproduced` in a paper at 5 %, and that of any wrong `contradicted` as well: its levels replace the 5 %
above. Shown are the plain 95 % interval and, beside it, the interval that decided with its confidence.

Where a noise floor was measured by repeating one run with its data in another order, a verdict has to rest on more:
the difference (for `not_lower`, `not_higher` and `within` the margin) must be larger than the floor to reproduce a
claim, and the distance from the margin must be to contradict it. Else it is inconclusive.

What the rule cannot repair: Student's t takes the seeds for draws of one normal law, which few seeds can neither show
nor refute. The dots of all seeds are drawn for that reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats import ALPHA, Difference

Verdict = Literal["reproduced", "contradicted", "inconclusive", "untested", "blocked"]
Shape = Literal["above", "not_below", "within"]

SHAPES: dict[str, tuple[Shape, int]] = {  # of each expectation: the test, and the sign that makes more better
    "higher": ("above", 1),
    "lower": ("above", -1),
    "rises": ("above", 1),
    "falls": ("above", -1),
    "not_lower": ("not_below", 1),
    "not_higher": ("not_below", -1),
    "within": ("within", 1),
    "flat": ("within", 1),
}


@dataclass(frozen=True)
class Rule:
    """A test that was fixed before the result: the shape of its region, and the margin."""

    shape: Shape
    margin: float

    def holds(self, improvement: Difference) -> float:
        """p-value of `the claim is true`: the least level at which the claim would be reproduced."""
        if self.shape == "above":
            return min(1.0, max(2 * improvement.p_above(0.0), improvement.p_above(self.margin)))
        above = improvement.p_above(-self.margin)
        return above if self.shape == "not_below" else max(above, improvement.p_below(self.margin))

    def fails(self, improvement: Difference) -> float:
        """p-value of `the claim is false`: the least level at which the claim would be contradicted."""
        if self.shape == "above":
            return min(1.0, 2 * improvement.p_below(self.margin))
        below = improvement.p_below(-self.margin)
        return min(1.0, 2 * (below if self.shape == "not_below" else min(below, improvement.p_above(self.margin))))

    def beyond_noise(self, improvement: Difference, verdict: Verdict, floor: float) -> bool:
        """Whether a verdict rests on more than what another order of the data alone can change."""
        mean, m = improvement.mean, self.margin
        if verdict == "reproduced":
            return (mean if self.shape == "above" else m) > floor
        return {"above": m - mean, "not_below": -m - mean, "within": abs(mean) - m}[self.shape] > floor


@dataclass(frozen=True)
class Levels:
    """Holm's correction of one claim: the adjusted p-value, and the level that the plain one had to reach."""

    adjusted: float
    level: float


def holm(p_values: Sequence[float]) -> list[Levels]:
    """Holm's step-down correction of one family, in the order given; equal p-values get equal levels.

    A claim passes when its adjusted p-value is at most ALPHA, that is, when its plain one is at most its level.
    """
    # statsmodels' multipletests gives the same (a test compares), but collects garbage at each call: 0.07 s a paper.
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, reached = [0.0] * len(order), 0.0
    for step, place in enumerate(order):
        reached = max(reached, min(1.0, (len(order) - step) * p_values[place]))
        adjusted[place] = reached
    passed = sum(p <= ALPHA for p in adjusted)
    steps = [sum(q < p for q in p_values) if a <= ALPHA else passed for p, a in zip(p_values, adjusted, strict=True)]
    return [Levels(a, ALPHA / (len(order) - step)) for a, step in zip(adjusted, steps, strict=True)]


def all_of(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a sentence that promises every part."""
    return _joined(parts, decisive="contradicted", unanimous="reproduced")


def any_of(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a sentence that promises one of its parts at least."""
    return _joined(parts, decisive="reproduced", unanimous="contradicted")


def _joined(parts: Sequence[Verdict], decisive: Verdict, unanimous: Verdict) -> Verdict:
    if decisive in parts:
        return decisive
    if all(part == unanimous for part in parts):
        return unanimous
    if "blocked" in parts:
        return "blocked"
    return "untested" if "untested" in parts else "inconclusive"
