"""Rankings: ties share letters, separated pairs do not, and what is missing stays visible."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from harness.rank import letter_display, mean_over, rank, told_apart


def pairs(*names):
    return {frozenset(name) for name in names}


@pytest.mark.parametrize(
    ("order", "apart", "letters"),
    [
        ("abc", (), {"a": "a", "b": "a", "c": "a"}),
        ("abc", ("ab", "ac", "bc"), {"a": "a", "b": "b", "c": "c"}),
        ("abc", ("ac",), {"a": "a", "b": "ab", "c": "b"}),
        ("abcd", ("ad", "ac", "bd"), {"a": "a", "b": "ab", "c": "bc", "d": "c"}),
        ("", (), {}),
    ],
)
def test_letters_of_small_cases(order, apart, letters):
    assert letter_display(list(order), pairs(*apart)) == letters


def test_letters_of_the_eight_treatments_of_piepho():
    """Eight treatments, five pairs told apart (Piepho 2004, example 3, as given in github.com/cbsteh/CLD)."""
    apart = pairs("17", "18", "24", "25", "35")
    shown = letter_display(list("12345678"), apart)
    assert len(set("".join(shown.values()))) == 5, "1346 ties nobody that another group does not tie"
    for pair in combinations("12345678", 2):
        assert bool(set(shown[pair[0]]) & set(shown[pair[1]])) == (frozenset(pair) not in apart)


def test_no_separated_pair_shares_a_letter_and_every_tie_does():
    rng = np.random.default_rng(0)
    for _ in range(200):
        order = [f"r{k}" for k in range(rng.integers(2, 9))]
        apart = {frozenset(pair) for pair in combinations(order, 2) if rng.random() < 0.4}
        shown = letter_display(order, apart)
        for a, b in combinations(order, 2):
            assert bool(set(shown[a]) & set(shown[b])) == (frozenset((a, b)) not in apart)
        assert shown[order[0]].startswith("a")


def seeds(mean, *, spread=0.005, count=5, seed=0):
    return dict(enumerate((mean + spread * np.random.default_rng(seed).normal(size=count)).tolist()))


def test_runs_that_differ_clearly_have_their_own_letter_and_ties_share_one():
    found = rank(
        {
            "softmax": seeds(0.99),
            "delta": seeds(0.5, seed=1),
            "gla": seeds(0.501, seed=2),
            "retnet": seeds(0.1, seed=3),
        },
        wanted=5,
        better="higher",
    )
    letters = {line.run: line.letters for line in found}
    assert [line.run for line in found][0::3] == ["softmax", "retnet"]
    assert (letters["softmax"], letters["retnet"]) == ("a", "c")
    assert letters["delta"] == letters["gla"] == "b"


def test_lower_is_first_where_lower_is_better():
    found = rank({"a": seeds(2.0), "b": seeds(1.0, seed=1)}, wanted=5, better="lower")
    assert [(line.run, line.letters) for line in found] == [("b", "a"), ("a", "b")]
    with pytest.raises(ValueError, match="better higher or lower"):
        rank({}, wanted=1, better="none")


def test_a_large_spread_ties_what_means_would_order():
    """Multi-token attention's toy seeds: 77.7, 75.3 and 1.9 against 0, 0 and 0.2 are not told apart."""
    found = rank({"mta": {0: 0.0, 1: 0.0, 2: 0.2}, "softmax": {0: 77.7, 1: 75.3, 2: 1.9}}, wanted=3, better="lower")
    assert [(line.run, line.letters) for line in found] == [("mta", "a"), ("softmax", "a")]


def test_missing_cells_are_listed_not_zero():
    found = rank(
        {
            "full": seeds(0.5, count=3),
            "two": seeds(0.7, count=2),
            "one": {0: 0.9},
            "none": {},
            "bad": {0: float("nan")},
        },
        wanted=3,
        better="higher",
        excluded={"big": "parameters 4 % over the reference", "full": ""},
    )
    shown = {line.run: (line.count, line.letters, line.note) for line in found}
    assert shown["one"] == ("1/3", "", "one seed only")
    assert shown["none"] == shown["bad"] == ("0/3", "", "not measured")
    assert shown["big"] == ("0/3", "", "parameters 4 % over the reference")
    assert shown["two"][0] == "2/3"
    assert [line.run for line in found if line.letters] == ["two"], "an excluded run is not ranked, though measured"
    assert {line.run: line.mean for line in found}["none"] is None


def test_correction_counts_all_pairs():
    """Two runs that would differ alone do not beside six that are all the same."""
    rng = np.random.default_rng(3)
    two = {"a": dict(enumerate([3.0, 3.4, 2.7, 3.1])), "b": dict(enumerate([1.0, 0.9, 1.6, 0.6]))}
    rest = {f"r{k}": dict(enumerate(rng.normal(2, 2, size=4).tolist())) for k in range(6)}
    assert told_apart(two) == pairs("ab")
    assert told_apart(two | rest) == set()


def test_ties_to_the_resolution_are_ties():
    same = dict.fromkeys(range(3), 1.0)
    near = dict.fromkeys(range(3), 1.0 - 1 / 64)
    far = dict.fromkeys(range(3), 1.0 - 32 / 64)
    assert told_apart({"a": same, "b": same}) == set()
    assert told_apart({"a": same, "b": near}, step=1 / 64) == set()
    assert told_apart({"a": same, "b": far}, step=1 / 64) == pairs("ab")


def test_order_of_runs_and_seeds_does_not_matter():
    values = {f"r{k}": seeds(0.5 + 0.05 * (k % 3), seed=k) for k in range(6)}
    turned = {run: dict(reversed(found.items())) for run, found in reversed(values.items())}
    assert rank(values, wanted=5, better="higher") == rank(turned, wanted=5, better="higher")


def test_equals_are_seldom_told_apart():
    rng = np.random.default_rng(0)
    wrong = sum(bool(told_apart({f"r{k}": dict(enumerate(rng.normal(size=5))) for k in range(5)})) for _ in range(400))
    assert wrong / 400 <= 0.05


def test_a_mean_says_how_many_cells_it_has():
    assert str(mean_over([0.5, 0.7])) == "0.6"
    partial = mean_over([0.5, None, 0.0])
    assert (partial.value, partial.complete, str(partial)) == (0.25, False, "0.25 (2/3)")
    assert (str(mean_over([None])), mean_over([]).complete) == ("– (0/1)", False)
