"""From the outcomes of a paper's tests to the records of its claims: correction, verdict, reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness import wording
from harness.outcome import Outcome
from harness.power import Design
from harness.spec import Paper
from harness.stats import ALPHA
from harness.verdict import Levels, Verdict, all_of, any_of, holm

EXACT = {"reproduced": (0.0, 1.0), "contradicted": (1.0, 0.0)}  # p-values of a check that is no test

BLANK = {  # a record before anything is known
    **dict.fromkeys(
        (
            "metric",
            "length",
            "unit",
            "better",
            "expect",
            "margin",
            "run_id",
            "baseline_id",
            "check",
            "difference",
            "low",
            "high",
            "confidence",
            "decided_low",
            "decided_high",
            "p",
            "p_adjusted",
            "level",
            "level_against",
            "detectable",
            "spread",
            "item_error",
            "noise",
        )
    ),
    **dict.fromkeys(("seeds", "run_values", "baseline_values", "parts"), ()),
}


class Ps(NamedTuple):
    """p-values of `the claim is true` and `the claim is false`; None where that can not be found out."""

    holds: float | None
    fails: float | None


class Family(NamedTuple):
    """What Holm's correction makes of one claim: its levels, and how many claims were tested beside it."""

    holds: Levels
    fails: Levels
    size: int


def judge_paper(slug: str, paper: Paper, found: Mapping[str, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """Records of one paper's claims from the outcomes of their tests, corrected together, in the order of ids."""
    by_id = {claim.id: claim for claim in paper.claims}
    ps = {id: p_values(by_id[id].kind, found[id]) for id in sorted(found)}
    holds, fails = ({id: p[side] for id, p in ps.items() if p[side] is not None} for side in (0, 1))
    holds_levels = dict(zip(holds, holm(list(holds.values())), strict=True))  # type: ignore[arg-type]
    fails_levels = dict(zip(fails, holm(list(fails.values())), strict=True))  # type: ignore[arg-type]
    records = []
    for id in ps:
        alone = Levels(1.0, ALPHA)
        family = Family(holds_levels.get(id, alone), fails_levels.get(id, alone), len(holds))
        head = {"paper": slug, "claim": id, "kind": by_id[id].kind, "scale_gap": paper.scale_gap}
        records.append({**BLANK, **head, **claim_record(by_id[id].kind, found[id], family)})
    return records


def p_values(kind: str, outcomes: Sequence[Outcome]) -> Ps:
    """The p-values of a claim, for a composite from those of its parts; None where none of it was tested.

    Where all parts must decide one way the largest p-value counts; where one is enough, the least times their number.
    """
    parts = [_p_values(outcome) for outcome in outcomes]
    tested = sum(outcome.improvement is not None for outcome in outcomes)
    if kind not in ("all_of", "any_of"):
        return parts[0] if tested else Ps(None, None)
    if not tested:
        return Ps(None, None)
    holds, fails = ([p[side] for p in parts] for side in (0, 1))
    if kind == "all_of":
        return Ps(_largest(holds), _least(fails, tested))
    return Ps(_least(holds, tested), _largest(fails))


def _p_values(outcome: Outcome) -> Ps:
    return Ps(*(outcome.p_values or EXACT.get(outcome.settled or "", (None, None))))


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _least(values: list[float | None], tested: int) -> float | None:
    return min(1.0, tested * min(value for value in values if value is not None))


def claim_record(kind: str, outcomes: Sequence[Outcome], family: Family) -> dict[str, Any]:
    """What is recorded of a claim, its verdict and reason among it."""
    if kind not in ("all_of", "any_of"):
        return test_record(outcomes[0], family)
    tested = max(1, sum(outcome.improvement is not None for outcome in outcomes))
    shared = {"all_of": (1, tested), "any_of": (tested, 1)}[kind]
    levels = [Levels(side.adjusted, side.level / k) for side, k in zip(family[:2], shared, strict=True)]
    inner = Family(levels[0], levels[1], family.size)
    parts = [{**BLANK, **test_record(outcome, inner), "kind": outcome.test.kind} for outcome in outcomes]
    verdicts: list[Verdict] = [part["verdict"] for part in parts]
    verdict = all_of(verdicts) if kind == "all_of" else any_of(verdicts)
    said = "; ".join(f"part {place} {part}" for place, part in enumerate(verdicts, 1))
    needed = "Every part must hold" if kind == "all_of" else "One part must hold"
    adjusted = (family.fails if verdict == "contradicted" else family.holds).adjusted
    p = p_values(kind, outcomes)[verdict == "contradicted"]
    facts = {"p": p, "p_adjusted": None if p is None else adjusted, "parts": parts}
    return {"verdict": verdict, "reason": f"{needed}: {said}.", **facts}


def test_record(outcome: Outcome, family: Family) -> dict[str, Any]:
    """What is recorded of one test, given the levels its p-values have to reach."""
    improvement, rule = outcome.improvement, outcome.rule
    if improvement is None or rule is None:
        reason = " ".join(filter(None, (outcome.reason, outcome.gaps)))
        return {**outcome.facts, "verdict": outcome.settled, "reason": reason}
    pointed = _pointed(outcome, family)
    noisy = pointed != "inconclusive" and not rule.beyond_noise(improvement, pointed, outcome.noise)
    verdict: Verdict = "inconclusive" if noisy else pointed
    contradicted = verdict == "contradicted"
    p_values = outcome.p_values or (1.0, 1.0)
    levels = family.fails if contradicted else family.holds
    design = Design(improvement.n, improvement.spread, improvement.item_error, family.holds.level)
    detectable = design.detectable(rule)
    reached = (family.holds.level, family.fails.level)
    reason = wording.reason(outcome, verdict, wording.Test(p_values, reached, family.size, noisy, detectable))
    confidence = 1 - levels.level * (1 if contradicted else 2)
    low, high = _turned(improvement.interval(), outcome.sign)
    decided_low, decided_high = _turned(improvement.interval(confidence), outcome.sign)
    return {
        **outcome.facts,
        "verdict": verdict,
        "reason": f"{reason} {outcome.gaps}".rstrip(),
        "difference": outcome.sign * improvement.mean,
        "low": low,
        "high": high,
        "confidence": confidence,
        "decided_low": decided_low,
        "decided_high": decided_high,
        "p": p_values[contradicted],
        "p_adjusted": levels.adjusted,
        "level": family.holds.level,
        "level_against": family.fails.level,
        "detectable": detectable,
        "spread": improvement.spread,
        "item_error": improvement.item_error,
        "noise": outcome.noise,
    }


def _pointed(outcome: Outcome, family: Family) -> Verdict:
    """The verdict that the p-values point to, whatever the noise floor."""
    holds, fails = outcome.p_values or (1.0, 1.0)
    if holds <= family.holds.level:
        return "reproduced"
    return "contradicted" if fails <= family.fails.level else "inconclusive"


def _turned(interval: tuple[float, float], sign: int) -> tuple[float, float]:
    low, high = sorted(sign * end for end in interval)
    return low, high
