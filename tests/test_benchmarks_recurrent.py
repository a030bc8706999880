"""The benchmarks of recurrences and of decoding, at sizes that take no time."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import decode, recurrent
from harness.errors import UserError

SMALL = argparse.Namespace(batch=1, length=40, heads=2, key=8, value=6, rounds=2)


def test_an_opponent_that_gives_our_numbers_is_timed_and_another_is_not():
    pytest.importorskip("transformers")
    race = next(recurrent.races(SMALL.key**-0.5, None))
    assert recurrent.measure(race, SMALL).ratio > 0
    wrong = replace(race, theirs=lambda *inputs: 1.01 * race.theirs(*inputs))
    with pytest.raises(AssertionError, match="not close"):
        recurrent.measure(wrong, SMALL)


def test_a_folder_without_the_package_is_named():
    with pytest.raises(UserError, match="--fla /nowhere does not hold"):
        recurrent.naive(Path("/nowhere"), "gla")


def test_mechanisms_with_a_fixed_state_are_found_and_their_next_token_timed():
    names = decode.recurrent()
    assert {"gla", "gated_delta_net", "hola"} <= set(names)
    assert "softmax" not in names
    seconds = decode.medians(decode.mixer("gla", {}, 32, 2), 32, (3, 5), rounds=2, steps=1)
    assert len(seconds) == 2
    assert min(seconds) > 0
