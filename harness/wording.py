"""The one-sentence reason that stands beside a verdict."""

from __future__ import annotations

from typing import NamedTuple

from harness import claims
from harness.outcome import Outcome
from harness.stats import ALPHA, Difference
from harness.verdict import Rule, Verdict

SIDES = {1: ("above", "lower"), -1: ("below", "higher")}  # by sign: where it should lie, and what it should not be


def number(value: float) -> str:
    """Three significant digits with a real minus sign."""
    return f"{value + 0.0:.3g}".replace("-", "−")  # no −0


def percent(share: float) -> str:
    """`95 %`, `98.8 %`."""
    return f"{100 * share:.3g} %"


class Test(NamedTuple):
    """How a test went: its p-values for and against the claim, what they had to reach, and what stood in the way."""

    p: tuple[float, float]
    levels: tuple[float, float]
    family: int  # claims of the paper that were tested
    noisy: bool
    detectable: float | None


def reason(outcome: Outcome, verdict: Verdict, test: Test) -> str:
    """Why a tested claim got its verdict."""
    assert outcome.improvement is not None
    assert outcome.rule is not None
    said = f"The {_measure(outcome, outcome.improvement)}"
    if verdict == "inconclusive":
        open_ = _open(outcome, outcome.rule, outcome.improvement, test)
        return f"{said} {open_}; {_detectable(outcome.rule, outcome.improvement.n, test.detectable)}."
    return f"{said} {_decided(outcome.rule, outcome.sign, verdict, test.levels[0])}."


def _measure(outcome: Outcome, improvement: Difference) -> str:
    low, high = sorted(outcome.sign * (improvement.mean + step) for step in _steps(improvement, ALPHA / 2))
    test = outcome.test
    what = "difference"
    if isinstance(test, claims.Value):
        what = f"distance from {number(test.value)}"
    if isinstance(test, claims.Trend):
        what = f"slope per doubling of {test.over}"
        what = f"difference of {what.replace('slope', 'slopes')}" if test.baseline else what
    at = f"95 % interval {number(low)} to {number(high)}, {improvement.n} seeds"
    return f"{what} {number(outcome.sign * improvement.mean)} ({at})"


def _steps(improvement: Difference, alpha: float) -> tuple[float, float]:
    return -improvement.reach(alpha, -1), improvement.reach(alpha, 1)


def _decided(rule: Rule, sign: int, verdict: Verdict, level: float) -> str:
    (where, feared), m, sure = SIDES[sign], number(rule.margin), f"with {percent(1 - level)} confidence"
    if verdict == "reproduced":
        if rule.shape == "above":
            return f"lies {where} 0" + (f" and {sure} beyond the margin of {m}" if rule.margin else " as a whole")
        return f"stays within ±{m} {sure}" if rule.shape == "within" else f"is not {feared} by {m} or more, {sure}"
    if rule.shape == "within":
        return f"lies outside ±{m} as a whole"
    if rule.shape == "not_below":
        return f"is {feared} by more than {m} as a whole"
    return f"falls short of the margin of {m} as a whole" if rule.margin else f"lies on the other side of 0: {feared}"


def _open(outcome: Outcome, rule: Rule, improvement: Difference, test: Test) -> str:
    m = number(rule.margin)
    if test.noisy:
        return f"is not clear of the noise floor of {number(outcome.noise)}, what another order of the data can change"
    for p, level, how in zip(test.p, test.levels, ("pass", "be contradicted"), strict=True):
        if level < p <= ALPHA:
            many = f"the {test.family} claims tested in this paper"
            return f"would {how} alone, but not among {many} (Holm: p {number(p)} > {number(level)})"
    if rule.shape == "within":
        return f"does not stay within ±{m}"
    border = -rule.margin if rule.shape == "not_below" else rule.margin
    if rule.shape == "above" and improvement.p_above(0.0) > ALPHA / 2:
        border = 0.0
    return f"does not clear {number(outcome.sign * border)}"


def _detectable(rule: Rule, seeds: int, detectable: float | None) -> str:
    if detectable is None:
        return "there is no spread to plan with"
    could = "would show a true difference" if rule.shape == "above" else "could confirm a margin"
    return f"{seeds} seeds with this spread {could} of {number(detectable)} four times in five"
