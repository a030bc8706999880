"""Claims that are judged only where something else holds, such as a sink in the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import outcomes
from harness.errors import UserError
from harness.spec import load_files
from tests.judging import NEAR, SUITE, UP, claim, part, records, table

SINK = {"run": "base", "metric": "s/toy/error", "at_least": 30.0, "lacking": "no sink in the baseline"}
DONE = {"run": "run", "metric": "s/toy/error", "at_most": 5.0, "lacking": "the run does not do the task"}


@pytest.fixture(autouse=True)
def _suite(monkeypatch):
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)


def judged(needs, base_error=(60.0, 55.0, 70.0), run_error=(1.0, 2.0, 3.0), **more):
    columns = {"run__toy__score": UP, "base__toy__score": NEAR, "base__toy__error": base_error}
    found = table({**columns, "run__toy__error": run_error})
    return records(found, claim(needs=needs, **more))["c"]


@pytest.mark.parametrize("expect", ["higher", "lower", "within"])
def test_a_need_that_is_met_changes_nothing(expect: str):
    margin = 0.1 if expect == "within" else 0.0
    plain = judged([], expect=expect, margin=margin)
    assert judged([SINK, DONE], expect=expect, margin=margin) == plain
    assert plain["verdict"] == {"higher": "reproduced", "lower": "contradicted", "within": "contradicted"}[expect]


@pytest.mark.parametrize("error", [(0.0, 0.0, 0.0), (60.0, 29.9, 70.0)])
@pytest.mark.parametrize("expect", ["higher", "lower"])
def test_without_a_sink_in_every_seed_of_the_baseline_nothing_is_judged(error, expect: str):
    record = judged([SINK], base_error=error, expect=expect)
    assert record["verdict"] == "inconclusive"
    shown = ", ".join(f"{value:g}" for value in error)
    assert record["reason"] == (
        f"No sink in the baseline: s/toy/error of base is {shown}; the claim needs at least 30 in every seed."
    )
    assert record["p"] is None
    assert record["run_values"] == pytest.approx(UP)


def test_a_bound_is_met_by_its_own_value_and_the_first_need_that_fails_is_named():
    assert judged([SINK], base_error=(30.0, 30.0, 30.0))["verdict"] == "reproduced"
    assert judged([DONE], run_error=(5.0, 5.0, 5.0))["verdict"] == "reproduced"
    record = judged([SINK, DONE], run_error=(5.0, 5.1, 5.0))
    assert record["reason"].startswith("The run does not do the task: s/toy/error of run is 5, 5.1, 5; ")
    assert judged([SINK, DONE], (0.0, 0.0, 0.0), (9.0, 9.0, 9.0))["reason"].startswith("No sink")


def test_a_need_that_was_not_measured_blocks():
    record = judged([SINK], base_error=(60.0, None, 70.0))
    assert record["verdict"] == "blocked"
    assert "base lacks seed 1" in record["reason"]


def test_seeds_that_the_test_does_not_use_need_nothing():
    columns = {"run__toy__score": [*UP[:2], None], "base__toy__score": NEAR, "base__toy__error": [60.0, 60.0, 0.0]}
    record = records(table(columns), claim(needs=[SINK], expect="higher"))["c"]
    assert (record["verdict"], record["seeds"]) == ("reproduced", [0, 1])


def test_a_claim_that_is_not_judged_is_not_counted_among_those_tested():
    columns = {
        "run__toy__score": UP,
        "base__toy__score": NEAR,
        "base__toy__error": [0.0] * 3,
        "run__toy__error": [0] * 3,
    }
    alone = records(table(columns), claim())["c"]
    beside = records(table(columns), claim(), claim(id="d", needs=[SINK]))
    assert beside["c"] == alone
    assert beside["d"]["verdict"] == "inconclusive"


def test_a_part_and_a_trend_and_a_value_may_need_something():
    columns = {"run__toy__score": UP, "base__toy__score": NEAR, "base__toy__error": [0.0] * 3}
    columns |= {f"run__far__loss__{length}": NEAR for length in (64, 128, 512)}
    found = table(columns)
    both = {"kind": "all_of", "id": "c", "quote": "q", "where": "w", "parts": [part(), part(needs=[SINK])]}
    assert records(found, both)["c"]["verdict"] == "inconclusive"
    for kind in ("trend", "value"):
        assert records(found, claim(kind, needs=[SINK]))["c"]["reason"].startswith("No sink in the baseline")


PAPER = """\
title: T
arxiv: "2001.00001"
year: 2020
authors: [A]
summary: S
scale_gap: G
runs: {softpick: {impl: softpick}, softmax: {impl: softmax}}
claims:
  - id: c
    quote: Q
    where: abstract
    kind: compare
    run: softpick
    baseline: softmax
    metric: loss/test/bits_per_byte
    expect: lower
    margin: 0.1
    margin_from: ours
    needs:
      - {run: softmax, metric: trigger/quiet/sink_rate, at_least: 0.5, lacking: no sink}
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("{run: softmax,", "{run: softmx,", "claim 'c' needs an unknown run 'softmx'; did you mean 'softmax'?"),
        (
            "quiet/sink_rate",
            "quiet/sink_rat",
            "unknown metric 'sink_rat' of suite 'trigger'; did you mean 'sink_rate'?",
        ),
        ("at_least: 0.5, ", "", "needs one bound: at_least or at_most"),
        ("at_least: 0.5", "at_least: 0.5, at_most: 1.0", "needs one bound: at_least or at_most"),
        ("at_least: 0.5", "atleast: 0.5", "unknown key 'atleast'"),
    ],
)
def test_faults_have_a_line(old: str, new: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    file = tmp_path / "p.yaml"
    file.write_text(PAPER)
    assert load_files([file])
    file.write_text(PAPER.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_files([file])
    assert f"{file}:20: " in str(caught.value)
    assert fault in str(caught.value)
