"""Intervals, p-values, corrections and power against scipy, statsmodels, closed forms and simulation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from harness import stats
from harness.power import Design, seeds_to_settle
from harness.verdict import Rule, holm

TRIALS = 2000


def crossed(rng, seeds=5, items=300, of_seeds=0.0, of_items=0.0, of_answers=0.4):
    """d_SI with true mean 0, noise of seeds, of items, and of single answers."""
    shape = of_seeds * rng.normal(size=(seeds, 1)) + of_items * rng.normal(size=items)
    return shape + of_answers * rng.normal(size=(seeds, items))


@pytest.mark.parametrize("d_S", [[0.3, 0.1], [77.7, 75.3, 1.7], [-0.2, 0.1, 0.4, 0.0, 0.3]])
def test_interval_and_p_values_are_those_of_a_paired_t_test(d_S):
    found, wanted = stats.difference(d_S), scipy_stats.ttest_1samp(d_S, 0.25, alternative="greater")
    p_value = float(wanted[1])  # type: ignore[arg-type]
    low, high = wanted.confidence_interval(0.95)
    assert found.p_above(0.25) == pytest.approx(p_value)
    assert found.p_below(0.25) == pytest.approx(1 - p_value)
    assert found.interval(0.90)[0] == pytest.approx(low)
    assert high == np.inf


@pytest.mark.parametrize("seeds", [3, 5])
def test_95_percent_interval_covers_the_truth(seeds):
    rng = np.random.default_rng(seeds)
    held = 0
    for _ in range(TRIALS):
        low, high = stats.difference(rng.normal(0.7, 1.3, size=seeds)).interval()
        held += low <= 0.7 <= high
    assert 0.93 <= held / TRIALS <= 0.97


@pytest.mark.parametrize(
    "noise",
    [
        {"of_items": 0.4},
        {"of_seeds": 0.02, "of_items": 0.4},
        {"of_seeds": 0.1},
        {"of_answers": 1.0, "of_seeds": 0.05, "of_items": 0.5},
    ],
)
def test_interval_with_shared_items_covers_the_truth(noise):
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(TRIALS):
        d_SI = crossed(rng, **noise)
        low, high = stats.difference(d_SI.mean(axis=1), items=d_SI).interval()
        held += low <= 0 <= high
    assert 0.93 <= held / TRIALS <= 0.97


def test_seeds_alone_do_not_cover_when_items_are_shared():
    """What the bootstrap over items is for: without it the interval misses the noise that all seeds share."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(TRIALS // 4):
        low, high = stats.difference(crossed(rng, of_items=0.4).mean(axis=1)).interval()
        held += low <= 0 <= high
    assert held / (TRIALS // 4) < 0.9


def test_item_interval_is_the_bca_interval_of_scipy():
    rng = np.random.default_rng(0)
    d_SI = np.repeat(rng.exponential(size=(1, 200)), 2, axis=0)  # no noise of answers: all of it is of items
    found, mean = stats.item_noise(d_SI), d_SI.mean()
    wanted = scipy_stats.bootstrap((d_SI[0],), np.mean, n_resamples=20_000, method="BCa", rng=1).confidence_interval
    assert found.share == 1
    assert mean - found.reach(0.025, -1) == pytest.approx(wanted.low, abs=0.01)
    assert mean + found.reach(0.025, 1) == pytest.approx(wanted.high, abs=0.01)
    assert found.reach(0.025, 1) > found.reach(0.025, -1)  # the law is skewed to the right
    assert found.error == pytest.approx(d_SI[0].std(ddof=1) / np.sqrt(200))


def test_a_short_skewed_sample_is_corrected_for_bias_and_skew_as_in_scipy():
    rng = np.random.default_rng(3)
    d_SI = np.repeat(rng.exponential(size=(1, 25)), 2, axis=0)
    found, mean = stats.item_noise(d_SI), d_SI.mean()
    wanted = scipy_stats.bootstrap((d_SI[0],), np.mean, n_resamples=50_000, method="BCa", rng=1).confidence_interval
    assert mean - found.reach(0.025, -1) == pytest.approx(wanted.low, abs=0.12 * found.error)
    assert mean + found.reach(0.025, 1) == pytest.approx(wanted.high, abs=0.12 * found.error)


def test_p_value_is_the_level_whose_bound_touches_the_border():
    d_SI = crossed(np.random.default_rng(2), of_seeds=0.05, of_items=0.6) + 0.2
    found = stats.difference(d_SI.mean(axis=1), items=d_SI)
    for away in (0.02, 0.1, 0.3):
        low, high = found.mean - away, found.mean + away
        assert found.mean - found.reach(found.p_above(low), -1) == pytest.approx(low, abs=1e-6)
        assert found.mean + found.reach(found.p_below(high), 1) == pytest.approx(high, abs=1e-6)
        assert found.p_above(high) + found.p_below(high) == pytest.approx(1)


def test_reach_never_shrinks_with_confidence():
    d_SI = crossed(np.random.default_rng(3), of_items=0.5)
    found = stats.difference(d_SI.mean(axis=1), items=d_SI)
    for side in (-1, 1):
        reach = [found.reach(alpha, side) for alpha in np.geomspace(1e-9, 0.5, 80)]
        assert all(a >= b for a, b in pairwise(reach))
        assert found.items is not None
        near, far = (found.items.reach(alpha, side) for alpha in (stats.TAIL, 1e-9))
        normal = scipy_stats.norm.isf(1e-9) / scipy_stats.norm.isf(stats.TAIL)
        assert far / near == pytest.approx(normal), "where resamples are too few, the tail is that of a normal law"


def test_many_items_are_grouped_without_changing_the_error():
    d_SI = crossed(np.random.default_rng(4), seeds=2, items=10_000, of_items=0.5, of_answers=0.0)
    found = stats.item_noise(d_SI)
    assert found.error == pytest.approx(d_SI[0].std(ddof=1) / 100, rel=0.05)


def test_equal_items_add_nothing():
    found = stats.difference([0.5, 0.4, 0.6], items=np.full((3, 50), 0.5))
    assert found.item_error == 0
    assert found.interval() == stats.difference([0.5, 0.4, 0.6]).interval()


@pytest.mark.parametrize("bad", [[0.1], [], [0.1, float("nan")], [0.1, float("inf"), 0.2], [[0.1, 0.2]]])
def test_a_difference_needs_two_finite_seeds(bad):
    with pytest.raises(ValueError, match="finite value"):
        stats.difference(bad)


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, float("nan")], [1.0, 2.0]]])
def test_items_need_two_seeds_by_two_items(bad):
    with pytest.raises(ValueError, match="items need finite values"):
        stats.item_noise(bad)


@pytest.mark.parametrize(
    ("values", "counts", "scale", "step"),
    [
        ([1.0, 0.75, 0.5], [64, 64, 64], 1, 1 / 64),
        ([1.0, 0.75], [64, 16], 1, 1 / 16),
        ([100.0, 96.875], [64, 64], 100, 100 / 64),
        ([65536, 1024], [1, 1], 1, 1.0),
        ([2.1034567, 2.2], [1000, 1000], 1, 2.2e-6),
        ([0.0, 0.0], [0, 0], 1, 0.0),
    ],
)
def test_resolution_of_a_metric(values, counts, scale, step):
    assert stats.resolution(values, counts, scale) == pytest.approx(step)


def test_equal_differences_are_known_to_the_resolution_only():
    found = stats.difference([0.25, 0.25, 0.25], resolution=1 / 64)
    low, high = found.interval()
    assert high - 0.25 == pytest.approx(1 / 64, rel=0.02)  # with three seeds about one step to each side
    assert 0.25 - low == pytest.approx(high - 0.25)


def test_no_spread_at_all_is_certain():
    found = stats.difference([0.0, 0.0, 0.0])
    assert found.interval() == (0.0, 0.0)
    assert (found.p_above(-0.1), found.p_above(0.1)) == (0.0, 1.0)


def test_holm_gives_the_adjusted_p_values_of_the_textbook_case_and_matching_levels():
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert [round(each.adjusted, 6) for each in found] == [0.03, 0.06, 0.06, 0.02]
    assert [each.level for each in found] == pytest.approx([0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4])


def test_holm_level_and_adjusted_p_value_agree_on_every_family():
    rng = np.random.default_rng(0)
    for _ in range(300):
        p_values = [round(float(p), 3) for p in rng.beta(0.3, 2, size=rng.integers(1, 9))]
        for p, found in zip(p_values, holm(p_values), strict=True):
            assert (p <= found.level) == (found.adjusted <= stats.ALPHA), p_values
    assert holm([]) == []


def test_holm_is_that_of_statsmodels():
    p_values = np.random.default_rng(1).beta(0.3, 2, size=12).round(3)
    wanted = multipletests(p_values, method="holm")[1]
    assert [found.adjusted for found in holm(p_values.tolist())] == pytest.approx(np.asarray(wanted).tolist())


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_detectable_difference_is_that_of_a_two_sided_t_test(seeds):
    wanted = TTestPower().solve_power(nobs=seeds, alpha=0.05, power=0.8, alternative="two-sided")
    assert Design(seeds, 2.0).detectable(Rule("above", 0.0)) == pytest.approx(2 * wanted, rel=1e-3)


@pytest.mark.parametrize("rule", [Rule("above", 0.0), Rule("above", 0.5), Rule("within", 2.5), Rule("not_below", 2.0)])
@pytest.mark.parametrize("truth", [1.1, -3.0])
def test_chance_of_a_verdict_is_how_often_it_comes(rule, truth):
    rng, hits = np.random.default_rng(5), {"reproduced": 0, "contradicted": 0}
    for _ in range(TRIALS):
        found = stats.difference(rng.normal(truth, 1.0, size=4))
        hits["reproduced"] += rule.holds(found) <= 0.05
        hits["contradicted"] += rule.fails(found) <= 0.05
    for verdict, count in hits.items():
        assert Design(4, 1.0).chance(rule, truth, verdict) == pytest.approx(count / TRIALS, abs=0.035)


def test_seeds_that_settle_have_the_power_and_one_less_has_not():
    rule = Rule("above", 0.2)
    seeds = seeds_to_settle(rule, 0.8, Design(3, 0.9))
    assert seeds is not None
    assert Design(seeds, 0.9).chance(rule, 0.8) >= 0.8 > Design(seeds - 1, 0.9).chance(rule, 0.8)


def test_some_claims_no_number_of_seeds_settles():
    assert seeds_to_settle(Rule("above", 0.5), 0.5, Design(3, 0.1)) is None  # on the border itself
    assert seeds_to_settle(Rule("above", 0.0), 0.1, Design(3, 0.01, item_error=0.1)) is None  # more items, not seeds


def test_noise_of_items_is_part_of_the_design():
    with_noise, without = (Design(5, 1.0, noise).detectable(Rule("above", 0.0)) for noise in (0.5, 0.0))
    assert with_noise is not None
    assert without is not None
    assert with_noise > without
    many = Design(200, 1.0, 0.5).detectable(Rule("above", 0.0))  # about normal: 1.96 + 0.84 standard errors
    assert many == pytest.approx(2.802 * np.sqrt(1 / 200 + 0.5**2), rel=0.01)
