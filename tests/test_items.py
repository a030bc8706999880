"""Scores behind the numbers: gathered for suites whose items all seeds share, and used to widen intervals."""

from __future__ import annotations

import numpy as np
import pytest
from pyarrow import parquet

from harness import items, measured, suites
from harness.aggregate import collect, write, write_items
from harness.config import Config
from harness.measured import Place
from harness.plan import Plan
from tests.test_aggregate import PROFILE, RUNS, measure, row, state, train

CELL = "test/bits_per_byte@16"
SCORES = {("gla-00", 0): "2 3 4", ("gla-00", 1): "2.5 3 4", ("softmax-11", 0): "2 2 2", ("softmax-11", 1): "2 2 2.6"}


@pytest.fixture
def plan():
    return Plan(Config(seeds=(0, 1)), PROFILE, {}, RUNS)


def fill(folder, scores=SCORES):
    for (run, seed), text in scores.items():
        for task in ("lm", "recall"):
            train(folder / "runs", run=run, task=task, seed=seed)
        value = float(np.mean(np.array(text.split(), dtype=float))) if text != "x" else 1.0
        rows = [row("test", 16, "bits_per_byte", value)]
        measure(folder / "runs", rows, run=run, suite="loss", seed=seed, items={CELL: text, "other/nats@16": "1 2"})
        measure(folder / "runs", [row()], run=run, seed=seed, items={"mqar-4/accuracy@16": "1 0 1"})


def test_items_that_seeds_share_are_a_table_and_others_stay_in_their_records(plan, tmp_path):
    fill(tmp_path)
    rows, trainings = collect(plan, tmp_path / "runs")
    write(rows, trainings, tmp_path)
    write_items(rows, tmp_path)
    table = parquet.read_table(tmp_path / "items.parquet").to_pylist()
    assert [(each["run"], each["seed"]) for each in table] == sorted(SCORES)
    assert {(each["suite"], each["task"], each["length"], each["metric"]) for each in table} == {
        ("loss", "test", 16, "bits_per_byte")
    }
    assert table[1]["items"] == [2.5, 3, 4]
    found = measured.read(tmp_path / "measurements.csv", tmp_path / "runs.json", tmp_path / "items.parquet")
    d_SI = found.paired_items("gla-00", "softmax-11", Place("loss", "test", "bits_per_byte", 16), [0, 1])
    assert d_SI is not None
    assert d_SI == pytest.approx(np.array([[0, 1, 2], [0.5, 1, 1.4]]))


def test_a_table_without_items_has_its_columns(tmp_path):
    (tmp_path / "none.parquet").write_bytes(items.to_parquet([]))
    assert parquet.read_table(tmp_path / "none.parquet").column_names == [*items.NAMES, "items"]


@pytest.mark.parametrize("text", ["1 nan", "1 x"])
def test_a_damaged_score_fails_its_suite_with_the_file(plan, tmp_path, text):
    fill(tmp_path)
    measure(tmp_path / "runs", [row("test", 16, "bits_per_byte", 1.0)], suite="loss", items={CELL: text})
    rows, trainings = collect(plan, tmp_path / "runs")
    _, found = state(trainings, suite="loss")
    assert found["status"] == "failed"
    assert "gla-00/lm/seed0/loss.json is damaged (items of test/bits_per_byte@16" in found["reason"]
    assert len([row for row in rows if row["suite"] == "loss"]) == 3


def test_what_a_window_contributes_averages_to_the_ratio_and_spreads_like_its_error():
    rng = np.random.default_rng(0)
    bytes_W = rng.integers(300, 600, 64)
    nats_W = bytes_W * rng.normal(2, 0.3, 64)
    items_W = np.array(suites.influence(nats_W, bytes_W))
    value, stderr = suites.ratio(nats_W, bytes_W)
    assert items_W.mean() == pytest.approx(value)
    assert items_W.std(ddof=1) / 8 == pytest.approx(stderr)
    assert suites.influence(nats_W * np.nan, bytes_W) == []
