"""The benchmark of training steps, at a size that takes no time."""

from __future__ import annotations

import argparse
import io

import pytest
from rich.console import Console

from benchmarks import train_step

SMALL = {"width": 32, "length": 16, "batch": 1, "layers": 1, "heads": 2, "mlp": 32, "vocab": 50, "rounds": 3}


@pytest.fixture(scope="module")
def found():
    return train_step.measure(["softmax", "delta_net"], argparse.Namespace(**SMALL, warmup=0))


def test_models_are_the_same_but_for_the_mechanism(found):
    parameters = [found_of_one[0] for found_of_one in found.values()]
    assert max(parameters) <= 1.01 * min(parameters)
    assert found["softmax"][0] == found[train_step.BASELINE][0]


def test_the_yardstick_is_1_and_all_are_positive(found):
    assert found[train_step.BASELINE][2] == 1
    assert all(ratio > 0 and milliseconds > 0 for _, milliseconds, ratio, _ in found.values())


def test_the_table_names_every_setting(found):
    page = io.StringIO()
    Console(width=120, file=page).print(train_step.table(found, argparse.Namespace(**SMALL)))
    assert all(name.split()[0] in page.getvalue() for name in found)


def test_settings_are_those_of_the_papers():
    settings = train_step.settings(["sigmoid"], 77)
    assert ("sigmoid", {"n": 77}) in settings.values()
