"""The rule on tables with known verdicts: every kind of claim, ties, no spread, seeds that are missing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness import claims, outcomes
from harness.measured import Place
from harness.outcomes import Bench
from tests.judging import IDS, NEAR, PROFILE, SUITE, UP, claim, judged, records, table


@pytest.fixture(autouse=True)
def _suite(monkeypatch):
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)


@pytest.mark.parametrize(
    ("expect", "margin", "run", "base", "verdict"),
    [
        ("higher", 0.0, UP, NEAR, "reproduced"),
        ("higher", 0.1, UP, NEAR, "reproduced"),
        ("higher", 0.2, UP, NEAR, "inconclusive"),  # straddles the margin
        ("higher", 0.4, UP, NEAR, "contradicted"),  # better, but short of what was promised
        ("higher", 0.0, NEAR, UP, "contradicted"),
        ("higher", 0.1, NEAR, UP, "contradicted"),
        ("higher", 0.0, [0.6, 0.3, 0.9], NEAR, "inconclusive"),  # straddles 0
        ("lower", 0.0, NEAR, UP, "reproduced"),
        ("lower", 0.1, NEAR, UP, "reproduced"),
        ("lower", 0.0, UP, NEAR, "contradicted"),
        ("lower", 0.4, NEAR, UP, "contradicted"),
        ("lower", 0.0, [0.6, 0.3, 0.9], NEAR, "inconclusive"),
        ("within", 0.3, UP, NEAR, "reproduced"),
        ("within", 0.3, NEAR, UP, "reproduced"),
        ("within", 0.1, UP, NEAR, "contradicted"),
        ("within", 0.1, NEAR, UP, "contradicted"),
        ("within", 0.2, UP, NEAR, "inconclusive"),
        ("within", 0.1, [0.6, 0.3, 0.9], NEAR, "inconclusive"),
        ("not_lower", 0.1, NEAR, NEAR, "reproduced"),
        ("not_lower", 0.1, UP, NEAR, "reproduced"),
        ("not_lower", 0.1, NEAR, UP, "contradicted"),
        ("not_lower", 0.2, NEAR, UP, "inconclusive"),
        ("not_higher", 0.1, UP, NEAR, "contradicted"),
        ("not_higher", 0.1, NEAR, UP, "reproduced"),
        ("not_higher", 0.2, UP, NEAR, "inconclusive"),
    ],
)
def test_verdicts_of_comparisons(expect, margin, run, base, verdict):
    assert judged(run, base, expect, margin)["verdict"] == verdict


def test_published_toy_seeds_of_multi_token_attention():
    """Error % by seed, MTA against its baseline (facebookresearch/RAM, projects/mta/toy_task/README.md)."""
    given = {"expect": "lower", "metric": "s/toy/error", "n": 1000}
    for margin in (0.0, 10.0):
        record = judged([0.0, 0.0, 0.2], [77.7, 75.3, 1.9], margin=margin, **given)
        assert record["verdict"] == "inconclusive", "77.7, 75.3 and 1.9 leave it open"
    record = judged([0.0, 0.0, 0.0], [83.9, 83.1, 37.6], margin=10.0, **given)
    assert record["verdict"] == "reproduced"
    assert record["high"] < 0, "the 95 % interval lies below 0"
    assert record["high"] > -10 > record["decided_high"], "the 90 % one, one-sided against the margin, lies below −10"
    assert (record["p"], record["confidence"]) == (pytest.approx(0.0468, abs=1e-4), pytest.approx(0.9))


# ties, no spread, resolution


def test_exact_ties_are_equal_to_the_resolution_of_the_metric():
    tied = [1.0, 1.0, 1.0]
    assert judged(tied, tied, "within", 0.05, n=64)["verdict"] == "reproduced"
    assert judged(tied, tied, "within", 0.01, n=64)["verdict"] == "inconclusive"  # one answer of 64 is more than 0.01
    assert judged(tied, tied, "higher", 0.0, n=64)["verdict"] == "inconclusive"
    assert judged(tied, tied, "higher", 0.1, n=64)["verdict"] == "contradicted"
    assert judged(tied, tied, "not_lower", 0.05, n=64)["verdict"] == "reproduced"


def test_a_constant_difference_counts_from_two_steps_on():
    base = [32 / 64] * 3
    assert judged([33 / 64] * 3, base, n=64)["verdict"] == "inconclusive"
    assert judged([34 / 64] * 3, base, n=64)["verdict"] == "reproduced"
    assert judged([30 / 64] * 3, base, n=64)["verdict"] == "contradicted"


def test_a_percentage_has_steps_of_a_hundredth_of_n():
    given = {"metric": "s/toy/error", "n": 64}
    assert judged([100 * 33 / 64] * 3, [50.0] * 3, **given)["verdict"] == "inconclusive"
    assert judged([100 * 34 / 64] * 3, [50.0] * 3, **given)["verdict"] == "reproduced"


def test_numbers_that_never_vary_are_judged_exactly():
    """Sizes of a state in bytes, the same for every seed."""
    record = judged([1024.0] * 3, [65536.0] * 3, "lower", 0.0, n=1)
    assert record["verdict"] == "reproduced"
    assert judged([0.0] * 3, [0.0] * 3, "within", 0.1, n=0)["verdict"] == "reproduced"
    assert judged([0.0] * 3, [0.0] * 3, "higher", 0.0, n=0)["verdict"] == "inconclusive"


# seeds that are not there


def test_one_seed_has_no_interval():
    record = judged([0.9], [0.1], seeds=(0,))
    assert (record["verdict"], record["low"], record["p"]) == ("inconclusive", None, None)
    assert record["run_values"] == [0.9]
    assert "at least two" in record["reason"]


def test_two_seeds_have_one():
    assert judged([0.9, 0.91], [0.1, 0.11])["verdict"] == "reproduced"


def test_only_pairs_count_and_the_reason_says_what_is_missing():
    found = table(run__toy__score=[0.7, None, 0.71, 0.72], base__toy__score=[0.5, 0.5, 0.51, 0.52])
    reason = "diverged: the loss is not finite at step 310"
    found.trainings[IDS["run"], "lm", 1] = {"status": "diverged", "reason": reason}
    record = records(found, claim())["c"]
    assert record["seeds"] == [0, 2, 3]
    assert record["verdict"] == "reproduced"
    assert record["reason"].endswith("run lacks seed 1: training diverged: the loss is not finite at step 310.")


@pytest.mark.parametrize(
    ("training", "why"),
    [
        (None, "not trained yet"),
        ({"status": "failed", "reason": "out of memory"}, "training failed: out of memory"),
        ({"status": "ok", "suites": {}}, "not evaluated yet"),
        ({"status": "ok", "suites": {"s": {"status": "failed", "reason": "no file"}}}, "evaluation failed: no file"),
        ({"status": "ok", "suites": {"s": {"status": "ok"}}}, "no finite number was measured for s/toy/score"),
    ],
)
def test_no_pair_at_all_is_blocked_with_the_reason(training, why):
    found = table(base__toy__score=[0.5, 0.5, 0.5])
    if training is not None:
        found.trainings |= {(IDS["run"], "lm", seed): training for seed in range(3)}
    record = records(found, claim())["c"]
    assert record["verdict"] == "blocked"
    assert record["reason"] == f"run lacks seeds 0, 1, 2: {why}."


def test_a_suite_that_was_not_asked_for_blocks():
    bench = Bench(PROFILE, (0, 1), [], table(), {})  # type: ignore[arg-type]
    outcome = bench.outcome(claims.CompareClaim(**claim()), IDS, lambda name: ("softmax", {}))
    assert outcome.settled == "blocked"
    assert "not among the suites" in outcome.reason


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("s/far/loss@4096", "does not measure s/far/loss at 4096 tokens"),
        ("s/nowhere/loss", "does not measure s/nowhere/loss"),
    ],
)
def test_a_cell_that_the_profile_leaves_out_blocks(metric, why):
    record = records(table(), claim(metric=metric))["c"]
    assert record["verdict"] == "blocked"
    assert why in record["reason"]


def test_the_training_length_is_meant_where_a_key_names_none():
    columns = {f"{run}__far__loss__{length}": [1.0, 1.1, 1.2] for run in ("run", "base") for length in (64, 128, 512)}
    for metric, length in (("s/far/loss", 64), ("s/far/loss@8x", 512), ("s/far/loss@128", 128)):
        assert records(table(columns), claim(metric=metric))["c"]["length"] == length


# other kinds


def lengths(run, base=(0.0, 0.0, 0.0), noise=0.01):
    """Loss that rises by `run` per doubling of the length (64, 128, 512), a little different for each seed."""
    columns = {}
    for name, slopes in (("run", run), ("base", base)):
        for doublings, length in ((0, 64), (1, 128), (3, 512)):
            columns[f"{name}__far__loss__{length}"] = [
                2 + doublings * slope + noise * math.sin(seed + length) for seed, slope in enumerate(slopes)
            ]
    return table(columns)


@pytest.mark.parametrize(
    ("expect", "margin", "run", "verdict"),
    [
        ("rises", 0.0, [0.50, 0.51, 0.49], "reproduced"),
        ("falls", 0.0, [0.50, 0.51, 0.49], "contradicted"),
        ("falls", 0.1, [-0.50, -0.51, -0.49], "reproduced"),
        ("flat", 0.1, [0.0, 0.01, -0.01], "reproduced"),
        ("flat", 0.1, [0.50, 0.51, 0.49], "contradicted"),
        ("rises", 0.0, [0.5, -0.4, 0.1], "inconclusive"),
    ],
)
def test_verdicts_of_trends(expect, margin, run, verdict):
    record = records(lengths(run), claim("trend", expect=expect, margin=margin))["c"]
    assert record["verdict"] == verdict
    assert record["run_values"] == pytest.approx(run, abs=0.02), "slopes per doubling"


def test_a_trend_against_a_baseline_is_a_difference_of_slopes():
    found = lengths([0.50, 0.51, 0.49], base=[0.50, 0.50, 0.50])
    assert records(found, claim("trend", expect="rises"))["c"]["verdict"] == "reproduced"
    record = records(found, claim("trend", baseline="base", expect="flat", margin=0.1))["c"]
    assert record["verdict"] == "reproduced"
    assert record["difference"] == pytest.approx(0, abs=0.02)


def test_a_trend_over_pairs_takes_the_number_from_the_task():
    columns = {
        f"run__mqar_{pairs}__score": [0.9 - 0.1 * math.log2(pairs) + 0.01 * s for s in range(3)] for pairs in (4, 8, 16)
    }
    given = claim("trend", metric="s/mqar/score", over="pairs", expect="falls", margin=0.05)
    record = records(table(columns), given)["c"]
    assert record["run_values"] == pytest.approx([-0.1] * 3, abs=1e-3)
    assert record["verdict"] == "reproduced"


def test_a_trend_needs_every_length():
    found = lengths([0.50, 0.51, 0.49])
    del found.values[IDS["run"], Place("s", "far", "loss", 512)][1]
    record = records(found, claim("trend"))["c"]
    assert record["seeds"] == [0, 2]
    assert "run lacks seed 1" in record["reason"]


@pytest.mark.parametrize(
    ("run", "verdict"),
    [([0.50, 0.52, 0.49], "reproduced"), ([0.80, 0.82, 0.79], "contradicted"), ([0.55, 0.70, 0.5], "inconclusive")],
)
def test_verdicts_of_reported_values(run, verdict):
    record = records(table(run__toy__score=run), claim("value"))["c"]
    assert record["verdict"] == verdict
    assert record["difference"] == pytest.approx(np.mean(run) - 0.5)
    assert record["baseline_id"] is None


def test_verdicts_of_properties_and_untested_claims():
    made = records(
        table(),
        claim("property", "holds", check="rows_sum_to_one"),
        claim("property", "fails", check="weights_of_both_signs"),
        claim("property", "cannot", check="last_write_wins"),
        claim("untested", "open", reason="needs a GPU"),
    )
    assert {id: record["verdict"] for id, record in made.items()} == {
        "holds": "reproduced",
        "fails": "contradicted",
        "cannot": "blocked",
        "open": "untested",
    }
    assert made["open"]["reason"] == "needs a GPU"
    assert made["holds"]["reason"].startswith("“The weights of every query sum to one” holds")
