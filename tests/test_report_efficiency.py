"""The page of costs, from results that nobody measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config import Config, load_profile
from harness.plan import Plan
from harness.report import efficiency
from harness.report.evidence import Cell
from harness.report.reading import load
from harness.runs import resolve
from tests import site_fixture

QUALITY = Cell("loss", "test", 128, "bits_per_byte")


def page(tmp_path: Path, suites: tuple[str, ...]) -> Any:
    profile, papers = load_profile("laptop"), {"eight": site_fixture.ordinary_paper()}
    plan = Plan(Config(suites=suites), profile, papers, resolve(papers, profile))
    site_fixture.make(plan, tmp_path)
    return next(efficiency.pages(load(plan, tmp_path)), None)


def test_counted_costs_need_no_times(tmp_path: Path):
    found = page(tmp_path, ("loss",))
    assert [chart.id for chart in found.context["charts"]] == ["pareto-state-bytes"]  # the fixture counts no training
    assert found.context["table_"] is None
    assert found.context["bare"] == []  # all eight have one


def test_times_stand_beside_what_is_counted(tmp_path: Path):
    found = page(tmp_path, ("loss", "efficiency"))
    assert [chart.id for chart in found.context["charts"]] == ["pareto-train", "pareto-state-bytes"]
    table = found.context["table_"]
    assert len(table.rows) == 9
    assert all(len(row.items) == len(table.columns) for row in table.rows)


def test_without_quality_there_is_no_page(tmp_path: Path):
    assert page(tmp_path, ("recall",)) is None


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({"a": 1.0, "b": 2.0, "c": 3.0}, ["a"]),  # the best is the cheapest
        ({"a": 3.0, "b": 2.0, "c": 1.0}, ["c", "b", "a"]),
        ({"a": 2.0, "b": 2.0, "c": 1.0}, ["c", "a"]),  # equal cost, worse
        ({"b": 2.0, "c": 2.5}, ["b"]),  # one of unknown cost beats nobody
    ],
)
def test_the_front_is_what_nothing_beats_in_both(costs: dict[str, float], expected: list[str]):
    means = {"a": 1.0, "b": 2.0, "c": 3.0}
    runs = {id: SimpleNamespace(summary=lambda cell, id=id: SimpleNamespace(mean=means[id])) for id in means}
    evidence: Any = SimpleNamespace(runs=runs)
    assert efficiency.front(evidence, QUALITY, efficiency.Cost("x", "x", costs)) == expected
