"""The tables: every measurement once, nothing invented, everything missing with its reason."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from harness import aggregate
from harness.aggregate import COLUMNS, collect, curve, report, thin, to_csv, to_parquet, write
from harness.config import Config, Data
from harness.files import write_json
from harness.plan import Plan
from harness.records import folder
from harness.runs import RunSettings
from harness.suites import loss, recall

PITFALLS = Path(__file__).parents[1].parent / "shared" / "pitfalls"
SHAPE = SimpleNamespace(length=16, model=SimpleNamespace(heads=2))
SUITES = {
    "loss": loss.Settings(tokens=64, multiples=(1,)),
    "recall": recall.Settings(kinds=("mqar-4", "needle-1"), multiples=(1, 2)),
}
PROFILE: Any = SimpleNamespace(name="tiny", task=lambda name: SHAPE, suite=SUITES.__getitem__)
RUNS = {name: RunSettings(name, name.split("-")[0], {"heads": 2}, {}, {}, Data()) for name in ("gla-00", "softmax-11")}
COMMIT = "c" * 40


@pytest.fixture
def plan():
    return Plan(Config(seeds=(0, 1)), PROFILE, {}, RUNS)


def row(task: str = "mqar-4", length: Any = 16, metric: str = "accuracy", value: Any = 0.5, **more: Any) -> Any:
    return {
        "task": task,
        "length": length,
        "metric": metric,
        "value": value,
        "n": 8,
        "stderr": 0.25,
        "unit": "share",
    } | more


def identity(run, task, seed):
    return {"run": run, "impl": run.split("-")[0], "task": task, "seed": seed}


def train(runs, run="gla-00", task="recall", seed=0, **more):
    record = identity(run, task, seed) | {
        "status": "ok",
        "reason": None,
        "commit": COMMIT,
        "steps": 3,
        "profile": "tiny",
    }
    write_json(folder(run, task, seed, runs) / "run.json", record | more)


def measure(runs, rows, run="gla-00", suite="recall", seed=0, says=None, **more):
    """Write an evaluation at the place of (run, suite, seed); `says` is what it holds otherwise."""
    task = {"recall": "recall", "loss": "lm"}[suite]
    record = identity(run, task, seed) | {
        "suite": suite,
        "status": "ok",
        "reason": None,
        "commit": COMMIT,
        "seconds": 1.5,
    }
    write_json(folder(run, task, seed, runs) / f"{suite}.json", record | {"rows": rows} | more | (says or {}))


def state(trainings, run="gla-00", suite="recall", seed=0):
    task = {"recall": "recall", "loss": "lm"}[suite]
    found = [t for t in trainings if (t["run"], t["task"], t["seed"]) == (run, task, seed)]
    assert len(found) == 1
    return found[0], found[0]["suites"][suite]


def test_every_training_of_the_plan_is_a_record_even_with_nothing_on_disk(plan, tmp_path):
    rows, trainings = collect(plan, tmp_path)
    assert rows == []
    assert [(t["run"], t["task"], t["seed"]) for t in trainings] == [
        (run, task, seed) for run in RUNS for task in ("lm", "recall") for seed in (0, 1)
    ]
    training, suite = state(trainings)
    assert (training["status"], suite["status"]) == ("missing", "missing")
    assert training["reason"] == f"{tmp_path}/gla-00/recall/seed0/run.json is missing; run snakemake to make it"
    assert suite["missing"] == ["mqar-4/accuracy@16", "needle-1/accuracy@16", "needle-1/accuracy@32"]
    assert (training["args"], training["curve"]) == ({"heads": 2}, [])
    assert (suite["seconds"], suite["commit"]) == (None, None)


def test_a_measurement_is_a_row_with_its_run_and_zero_is_a_measurement(plan, tmp_path):
    train(tmp_path)
    measure(tmp_path, [row(value=0.0, stderr=0.0), row("needle-1", 32, value=1.0, stderr=None)])
    rows, trainings = collect(plan, tmp_path)
    shared = {"run": "gla-00", "impl": "gla", "seed": 0, "suite": "recall", "metric": "accuracy", "commit": COMMIT}
    assert rows == [
        shared | {"task": "mqar-4", "length": 16, "value": 0.0, "n": 8, "stderr": 0.0, "unit": "share"},
        shared | {"task": "needle-1", "length": 32, "value": 1.0, "n": 8, "stderr": None, "unit": "share"},
    ]
    assert [list(each) for each in rows] == [list(COLUMNS)] * 2
    training, suite = state(trainings)
    assert (training["status"], training["steps"], training["mixed"]) == ("ok", 3, None)
    expected = {"status": "ok", "reason": None, "seconds": 1.5, "commit": COMMIT, "gaps": {}}
    expected |= {"missing": ["needle-1/accuracy@16"]}
    assert suite == expected


def test_reasons_of_trainings_and_suites_are_carried(plan, tmp_path):
    train(tmp_path, status="diverged", reason="the loss is NaN at step 2")
    measure(tmp_path, [], status="blocked", reason="training diverged: the loss is NaN at step 2")
    train(tmp_path, run="softmax-11")
    measure(tmp_path, [row()], run="softmax-11", status="failed", reason="not finite: needle-1/accuracy@32")
    rows, trainings = collect(plan, tmp_path)
    assert [each["run"] for each in rows] == ["softmax-11"]  # what a failed suite did measure counts
    assert state(trainings)[0]["reason"] == "the loss is NaN at step 2"
    assert state(trainings)[1]["status"] == "blocked"
    assert state(trainings, "softmax-11")[1]["reason"] == "not finite: needle-1/accuracy@32"
    lines = list(report(rows, trainings))
    assert "gla-00 recall seed 0: training diverged: the loss is NaN at step 2" in lines
    assert "softmax-11 recall seed 0: recall failed: not finite: needle-1/accuracy@32" in lines
    assert not any("blocked" in line for line in lines)  # said once, at the training


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": 1}, "recall.json is of seed 1, not 0"),
        ({"run": "softmax-11"}, "recall.json is of run 'softmax-11', not 'gla-00'"),
        ({"impl": "softmax"}, "recall.json is of impl 'softmax', not 'gla'"),
        ({"suite": "loss"}, "recall.json is of suite 'loss', not 'recall'"),
        ({"rows": [row(), row()]}, "recall.json holds mqar-4/accuracy@16 twice"),
        ({"rows": [row("mqar-9")]}, "recall.json holds mqar-9/accuracy@16, which the profile does not ask for"),
        ({"rows": [row(value=None)]}, "recall.json is damaged (rows.0.value: Input should be a valid number)"),
        ({"rows": [row(value="0.5")]}, "recall.json is damaged (rows.0.value: Input should be a valid number)"),
        ({"rows": [row(n=0)]}, "recall.json is damaged (rows.0.n: Input should be greater than or equal to 1)"),
        ({"rows": [row(stderr=-1.0)]}, "recall.json is damaged (rows.0.stderr: Input should be greater"),
        ({"rows": [row() | {"note": ""}]}, "recall.json is damaged (rows.0.note: Extra inputs are not permitted)"),
        ({"status": "fine"}, "recall.json is damaged (status: Input should be"),
    ],
)
def test_a_file_that_cannot_be_trusted_gives_no_rows_and_a_sentence(plan, tmp_path, changes, sentence):
    train(tmp_path)
    measure(tmp_path, [row()], says=changes)
    rows, trainings = collect(plan, tmp_path)
    suite = state(trainings)[1]
    assert rows == []
    assert suite["status"] == "failed"
    assert sentence in suite["reason"]
    assert suite["reason"].endswith("; delete it and run snakemake again")
    assert len(suite["missing"]) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"status": NaN}', '{"status": "ok"'])
def test_damaged_files_are_said_and_nothing_else_is_lost(plan, tmp_path, text):
    for run in RUNS:
        train(tmp_path, run=run)
        measure(tmp_path, [row()], run=run)
    place = folder("gla-00", "recall", 0, tmp_path)
    (place / "run.json").write_text(text)
    (place / "recall.json").write_text(text)
    rows, trainings = collect(plan, tmp_path)
    assert [each["run"] for each in rows] == ["softmax-11"]
    training, suite = state(trainings)
    assert training["status"] == suite["status"] == "failed"
    assert "run.json is damaged" in training["reason"]
    assert "recall.json is damaged" in suite["reason"]
    write(rows, trainings, tmp_path / "out")


def test_nan_in_a_file_never_reaches_a_table(plan, tmp_path):
    train(tmp_path)
    measure(tmp_path, [row()])
    path = folder("gla-00", "recall", 0, tmp_path) / "recall.json"
    path.write_text(path.read_text().replace("0.5", "NaN"))
    rows, trainings = collect(plan, tmp_path)
    assert rows == []
    assert "NaN is no number" in state(trainings)[1]["reason"]


def test_what_the_plan_does_not_ask_for_stays_out(plan, tmp_path):
    for run, seed in (("gla-00", 0), ("gla-00", 7), ("retnet-99", 0)):
        train(tmp_path, run=run, seed=seed)
        measure(tmp_path, [row()], run=run, seed=seed)
    rows, trainings = collect(plan, tmp_path)
    assert [(each["run"], each["seed"]) for each in rows] == [("gla-00", 0)]
    assert len(trainings) == 2 * 2 * 2


def test_a_run_that_no_claim_measures_says_so_and_lacks_no_file(tmp_path):
    tasks = {"lm": SimpleNamespace(trained="claimed"), "recall": SimpleNamespace(trained="claimed")}
    run = RunSettings("gla-00", "gla", {}, {}, tasks, Data())
    rows, trainings = collect(Plan(Config(seeds=(0,)), PROFILE, {}, {"gla-00": run}), tmp_path)
    assert not rows
    assert [training["status"] for training in trainings] == ["skipped", "skipped"]
    states = [state for training in trainings for state in training["suites"].values()]
    assert {(state["status"], state["reason"].rpartition(" ")[0]) for state in states} == {
        ("blocked", "no claim measures this run on the task")
    }
    assert all(state["missing"] for state in states)


def test_versions_that_differ_are_said(plan, tmp_path):
    train(tmp_path)
    measure(tmp_path, [row()], says={"commit": "d" * 40})
    train(tmp_path, run="softmax-11")
    measure(tmp_path, [row()], run="softmax-11")
    rows, trainings = collect(plan, tmp_path)
    assert (
        state(trainings)[0]["mixed"] == "made by different versions: training by cccccccccccc, recall by dddddddddddd"
    )
    assert state(trainings, "softmax-11")[0]["mixed"] is None
    assert [each["commit"] for each in rows] == ["d" * 40, COMMIT]
    assert any(line.startswith("mixed: these measurements were made by 2 versions") for line in report(rows, trainings))
    assert not any(line.startswith("mixed") for line in report(rows[1:], trainings))


def full(runs):
    """Both suites of two runs and two seeds, written in an order that is not that of the tables."""
    numbers = iter([0.1 + 0.2, 1e-17, 0.0, 1.0, 123456.789, 1 / 3, 2.0, 5e-324] * 9)
    for run in reversed(RUNS):
        for seed in (1, 0):
            train(runs, run=run, seed=seed)
            train(runs, run=run, task="lm", seed=seed)
            cells = [*reversed(recall.cells(PROFILE))]
            measure(runs, [row(*cell, value=next(numbers)) for cell in cells], run=run, seed=seed)
            losses = [
                row("test", None, "perplexity", next(numbers), stderr=None),
                row("test", 16, "nats", next(numbers)),
            ]
            measure(runs, losses, run=run, seed=seed, suite="loss")


def test_csv_parquet_and_json_hold_the_same_rows(plan, tmp_path, monkeypatch):
    announced = [("test", None, "perplexity"), ("test", 16, "nats")]
    monkeypatch.setattr(loss, "cells", lambda profile: announced)
    full(tmp_path)
    rows, trainings = collect(plan, tmp_path)
    assert len(rows) == 2 * 2 * (3 + 2)
    write(rows, trainings, tmp_path / "out")
    exact: Any = pd.read_parquet(tmp_path / "out" / "measurements.parquet")
    text = pd.read_csv(tmp_path / "out" / "measurements.csv")
    pd.testing.assert_frame_equal(exact, text, check_dtype=False, check_exact=True)
    assert list(exact.columns) == list(COLUMNS)
    assert exact["stderr"].isna().sum() == exact["length"].isna().sum() == 4
    back = [
        {key: None if pd.isna(value) else value for key, value in each.items()} for each in exact.to_dict("records")
    ]
    assert back == rows == json.loads((tmp_path / "out" / "measurements.json").read_text())
    raw = list(csv.DictReader((tmp_path / "out" / "measurements.csv").open()))
    assert {each["length"] for each in raw} == {"", "16", "32"}  # whole numbers, not 16.0
    assert [float(each["value"]) for each in raw] == [each["value"] for each in rows]


def test_the_tables_are_sorted_and_the_same_bytes_each_time(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(loss, "cells", lambda profile: [("test", None, "perplexity"), ("test", 16, "nats")])
    full(tmp_path)
    made = []
    for runs in (RUNS, dict(reversed(RUNS.items()))):
        rows, trainings = collect(Plan(plan.config, plan.profile, {}, runs), tmp_path)
        keys = [(r["run"], r["seed"], r["suite"], r["task"], r["length"] or 0, r["metric"]) for r in rows]
        assert keys == sorted(keys)
        assert len(set(keys)) == len(keys)
        write(rows, trainings, tmp_path / "out")
        made.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert made[0] == made[1]
    assert sorted(made[0]) == ["measurements.csv", "measurements.json", "measurements.parquet", "runs.json"]


def test_an_empty_table_has_its_columns(tmp_path):
    write([], [], tmp_path)
    assert (tmp_path / "measurements.csv").read_text() == ",".join(COLUMNS) + "\n"
    assert list(pd.read_parquet(tmp_path / "measurements.parquet").columns) == list(COLUMNS)
    assert json.loads((tmp_path / "measurements.json").read_text()) == []


def test_text_with_commas_and_quotes_survives():
    odd = dict.fromkeys(COLUMNS) | {"run": 'a,"b"\nc', "value": 1.0, "n": 1}
    assert next(csv.DictReader(to_csv([odd]).splitlines(keepends=True)))["run"] == odd["run"]
    assert to_parquet([odd]) == to_parquet([odd])


def test_a_curve_is_thinned_between_its_ends(tmp_path):
    path = tmp_path / "curve.jsonl"
    assert curve(path) == []
    path.write_text("".join(json.dumps({"step": step, "loss": 1 / step, "lr": 0.1}) + "\n" for step in range(1, 1001)))
    points = curve(path)
    assert len(points) == aggregate.CURVE_POINTS
    assert (points[0], points[-1]) == ([1, 1.0], [1000, 0.001])
    gaps = {b[0] - a[0] for a, b in itertools.pairwise(points)}
    assert gaps <= {10, 11}
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": NaN}\n{"step": 3, "loss": null}\n')
    assert curve(path) == [[1, 2.0]]
    assert thin([1, 2, 3], 3) == [1, 2, 3]
    assert thin([1, 2, 3], 2) == [1, 3]


def test_missing_is_missing_and_zero_is_zero_by_the_pitfall_rules(plan, tmp_path, monkeypatch):
    """-1, NaN and absent give no row, 0.0 does; a cell that was asked for is never silently dropped (C02, C03)."""
    if not PITFALLS.is_dir():
        pytest.skip("the pitfall cases are not beside this repository")
    monkeypatch.syspath_prepend(str(PITFALLS / "dev"))
    case = importlib.import_module("e03_results_collector")

    def by_way_of_the_table(raw, wanted):
        """Their results as a suite of ours would yield them, then collected."""
        cells = [(task, length, "accuracy") for task, length in wanted]
        monkeypatch.setattr(recall, "cells", lambda profile: cells)
        measured = []
        for task, length, metric in cells:
            value = raw["results"].get(task, {}).get(f"{length},none")
            if value is not None and math.isfinite(value) and value >= 0:
                measured.append(row(task, length, metric, value))
        train(tmp_path)
        measure(tmp_path, measured)
        rows, trainings = collect(plan, tmp_path)
        found = {(each["task"], each["length"]): each["value"] for each in rows}
        missing = state(trainings)[1]["missing"]
        assert len(missing) + len(found) == len(wanted)
        return found | {(task, length): None for task, length in wanted if f"{task}/accuracy@{length}" in missing}

    case.check(by_way_of_the_table)
