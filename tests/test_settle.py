"""Composite claims, Holm's correction, the noise floor, and how often equals are called different."""

from __future__ import annotations

import numpy as np
import pytest

from harness import claims, outcomes, settle, stats
from harness.outcome import Outcome
from harness.verdict import SHAPES, Rule, all_of, any_of
from tests.judging import NEAR, SUITE, UP, claim, judged, part, records, table


@pytest.fixture(autouse=True)
def _suite(monkeypatch):
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)


# composites

CLEAR = part(expect="higher")  # reproduced on `mixed`
WRONG = part(expect="lower")  # contradicted
VAGUE = part(metric="s/toy/error")  # inconclusive
ABSENT = part(metric="s/nowhere/score")  # blocked
CHECK = part("property", check="rows_sum_to_one")  # reproduced
NOT_SO = part("property", check="weights_of_both_signs")  # contradicted
LEFT = part("untested", reason="r")


def mixed():
    return table(run__toy__score=UP, base__toy__score=NEAR, run__toy__error=[1, 5, 9], base__toy__error=[4, 5, 6])


@pytest.mark.parametrize(
    ("parts", "both", "either"),
    [
        ([CLEAR, CHECK], "reproduced", "reproduced"),
        ([CLEAR, WRONG], "contradicted", "reproduced"),
        ([CLEAR, VAGUE], "inconclusive", "reproduced"),
        ([WRONG, VAGUE], "contradicted", "inconclusive"),
        ([WRONG, NOT_SO], "contradicted", "contradicted"),
        ([CLEAR, ABSENT], "blocked", "reproduced"),
        ([WRONG, ABSENT], "contradicted", "blocked"),
        ([VAGUE, ABSENT], "blocked", "blocked"),
        ([CLEAR, LEFT], "untested", "reproduced"),
        ([CHECK, NOT_SO], "contradicted", "reproduced"),
        ([CHECK, CHECK], "reproduced", "reproduced"),
    ],
)
def test_verdicts_of_composites(parts, both, either):
    made = records(mixed(), claim("all_of", "both", parts=parts), claim("any_of", "either", parts=parts))
    assert (made["both"]["verdict"], made["either"]["verdict"]) == (both, either)
    assert len(made["both"]["parts"]) == len(parts)


def test_a_composite_agrees_with_its_parts_on_every_table():
    rng = np.random.default_rng(11)
    for _ in range(150):
        shift = rng.choice([0.0, 0.05, 0.2], size=2)
        found = table(
            run__toy__score=list(0.5 + shift[0] + 0.02 * rng.normal(size=3)),
            base__toy__score=list(0.5 + 0.02 * rng.normal(size=3)),
            run__toy__error=list(5 + 10 * shift[1] + 0.3 * rng.normal(size=3)),
            base__toy__error=list(5 + 0.3 * rng.normal(size=3)),
        )
        parts = [part(expect=rng.choice(["higher", "lower"])), part(metric="s/toy/error", expect="higher", margin=0.1)]
        made = records(found, claim("all_of", "a", parts=parts), claim("any_of", "b", parts=parts), claim(id="c"))
        for id, join in (("a", all_of), ("b", any_of)):
            record = made[id]
            assert record["verdict"] == join([each["verdict"] for each in record["parts"]])
            assert (record["verdict"] in ("reproduced", "contradicted")) == (record["p_adjusted"] <= 0.05)


# correction, noise floor, intervals


def test_holm_counts_all_tested_claims_of_a_paper():
    weak = claim(id="weak", metric="s/toy/error")
    found = table(
        run__toy__score=[0.55, 0.35, 0.50],
        base__toy__score=NEAR,
        run__toy__error=[5.0, 5.9, 5.4],
        base__toy__error=[4, 4, 4],
    )
    assert records(found, weak)["weak"]["verdict"] == "reproduced"
    made = records(found, weak, *(claim(id=f"other-{k}") for k in range(3)))
    assert made["weak"]["verdict"] == "inconclusive"
    assert made["weak"]["p"] <= 0.05 < made["weak"]["p_adjusted"]
    assert "would pass alone, but not among the 4 claims" in made["weak"]["reason"]
    made = records(found, {**weak, "expect": "lower"}, *(claim(id=f"other-{k}") for k in range(3)))
    assert made["weak"]["verdict"] == "inconclusive"
    assert "would be contradicted alone, but not among the 4 claims" in made["weak"]["reason"]
    made = records(found, weak, *(claim("untested", f"left-{k}", reason="r") for k in range(9)))
    assert made["weak"]["verdict"] == "reproduced", "claims that are not tested cost nothing"
    made = records(found, weak, claim("all_of", "half", parts=[CLEAR, ABSENT]))
    assert made["weak"]["verdict"] == "reproduced", "nor do those that can only be contradicted"


@pytest.mark.parametrize(
    ("expect", "margin", "run", "floor", "verdict"),
    [
        ("higher", 0.0, UP, 0.19, "reproduced"),
        ("higher", 0.0, UP, 0.25, "inconclusive"),
        ("lower", 0.0, UP, 0.25, "inconclusive"),
        ("higher", 0.4, UP, 0.25, "inconclusive"),
        ("higher", 0.6, UP, 0.25, "contradicted"),
        ("within", 0.3, UP, 0.25, "reproduced"),
        ("within", 0.3, UP, 0.35, "inconclusive"),
        ("not_lower", 0.1, UP, 0.15, "inconclusive"),
    ],
)
def test_a_verdict_must_exceed_the_noise_floor(expect, margin, run, floor, verdict):
    record = judged(run, NEAR, expect, margin, noise={"s/toy/score": [-floor, 0.5 * floor]})
    assert record["verdict"] == verdict
    assert ("noise floor" in record["reason"]) == (verdict == "inconclusive")


@pytest.mark.parametrize("expect", sorted(set(SHAPES) - {"rises", "falls", "flat"}))
def test_the_interval_shown_agrees_with_the_verdict(expect):
    """Whoever redraws a claim from its record comes to the same verdict, in families of any size."""
    rng = np.random.default_rng(len(expect))
    seen = set()
    for _ in range(200):
        margin = 0.05 if expect not in ("higher", "lower") else float(rng.choice([0.0, 0.05]))
        run = list(0.5 + rng.choice([-0.2, 0.0, 0.02, 0.2]) + 0.02 * rng.normal(size=3))
        base = list(0.5 + 0.02 * rng.normal(size=3))
        others = [claim(id=f"other-{k}", metric="s/toy/error") for k in range(rng.integers(0, 4))]
        found = table(run__toy__score=run, base__toy__score=base, run__toy__error=[1, 5, 9], base__toy__error=[4, 5, 6])
        record = records(found, claim(expect=expect, margin=margin), *others)["c"]
        low, high = record["decided_low"], record["decided_high"]
        if SHAPES[expect][1] < 0:
            low, high = -high, -low
        shape, verdict = SHAPES[expect][0], record["verdict"]
        claimed = {"above": low > margin, "not_below": low > -margin, "within": -margin < low and high < margin}[shape]
        against = {"above": high < margin, "not_below": high < -margin, "within": low > margin or high < -margin}[shape]
        assert claimed or verdict != "reproduced"
        assert against == (verdict == "contradicted") or verdict == "inconclusive"
        if verdict == "inconclusive" and shape != "above":
            assert not claimed
        if shape == "above" and margin == 0 and record["confidence"] < 0.9 + 1e-9:
            assert (record["low"] > 0 or record["high"] < 0) == (verdict != "inconclusive")
        assert record["low"] <= record["difference"] <= record["high"]
        level = record["level_against"] if verdict == "contradicted" else 2 * record["level"]
        assert record["confidence"] == pytest.approx(1 - level)
        seen.add(verdict)
    assert seen == {"reproduced", "contradicted", "inconclusive"}


def test_an_open_claim_says_what_its_seeds_could_have_seen():
    record = judged([0.6, 0.3, 0.9], NEAR)
    assert record["detectable"] > 0.3
    assert record["reason"] == (
        "The difference 0.0937 (95 % interval −0.658 to 0.845, 3 seeds) does not clear 0; "
        "3 seeds with this spread would show a true difference of 0.988 four times in five."
    )
    record = judged([0.6, 0.3, 0.9], NEAR, "within", 0.1)
    assert "could confirm a margin of" in record["reason"]


# error rates


@pytest.mark.parametrize("seeds", [3, 5])
def test_no_true_difference_is_seldom_called_higher(seeds):
    """Of 2,000 comparisons of equals at most 5 % may be `reproduced`, and the 95 % intervals hold 0 in 95 ± 2 %."""
    rng = np.random.default_rng(seeds)
    test = claims.CompareClaim(**claim())
    found = {"reproduced": 0, "contradicted": 0, "inconclusive": 0}
    held = 0
    for _ in range(2000):
        d_S = rng.normal(0.0, 0.1, size=seeds) - rng.normal(0.0, 0.1, size=seeds)
        outcome = Outcome(test, {}, Rule("above", 0.0), 1, stats.difference(d_S))
        levels = settle.holm([0.05])[0]
        record = settle.test_record(outcome, settle.Family(levels, levels, 1))
        found[record["verdict"]] += 1
        held += record["low"] <= 0 <= record["high"]
    assert found["reproduced"] <= 0.05 * 2000
    assert 0.93 <= held / 2000 <= 0.97


def test_no_paper_of_ten_equal_claims_is_called_right_too_often():
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        p_values = [Rule("above", 0.0).holds(stats.difference(rng.normal(size=5))) for _ in range(10)]
        wrong += any(found.adjusted <= 0.05 for found in settle.holm(p_values))
    assert wrong / 400 <= 0.05
