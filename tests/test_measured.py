"""What is read from the tables, items shared by all seeds, and the bytes of verdicts.json."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from harness import judge, measured, outcomes
from harness.errors import UserError
from harness.measured import Measurements, Place, Value
from harness.metrics import load_suite
from harness.plan import Plan
from tests.judging import IDS, SUITE, claim, records, table

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def toy(monkeypatch):
    """The suite of `judging` in place of the real ones."""
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)


# items


def with_items(shared):
    rng = np.random.default_rng(0)
    easy = rng.random(100)
    found = table(n=100, run__toy__score=[0] * 3, base__toy__score=[0] * 3)
    for name, level in (("run", 0.12), ("base", 0.0)):
        for seed in range(3):
            right = (rng.random(100) < np.clip(easy + level * 5 * (easy > 0.8), 0, 1)).astype(float)
            key = IDS[name], Place("s", "toy", "score", None)
            found.values[key][seed] = Value(float(right.mean()), 100)
            if shared:
                found.items.setdefault(key, {})[seed] = right
    return found


def test_items_that_all_seeds_share_widen_the_interval(toy):
    alone, shared = (records(with_items(items), claim())["c"] for items in (False, True))
    assert shared["difference"] == pytest.approx(alone["difference"])
    assert shared["item_error"] > 0 == alone["item_error"]
    assert shared["high"] - shared["low"] > alone["high"] - alone["low"]


def test_the_interval_does_not_depend_on_what_was_expected(toy):
    found = with_items(True)
    base = IDS["base"], Place("s", "toy", "score", None)
    for seed in range(3):  # a few items on which the run is far better: a skewed mean
        found.items[base][seed] = np.where(np.arange(100) < 6, 1.0, 0.5)
        found.items[IDS["run"], base[1]][seed] = np.where(np.arange(100) < 6, 9.0, 0.5)
        found.values[base][seed] = Value(float(found.items[base][seed].mean()), 100)
        found.values[IDS["run"], base[1]][seed] = Value(float(found.items[IDS["run"], base[1]][seed].mean()), 100)
    higher, lower = (records(found, claim(expect=expect))["c"] for expect in ("higher", "lower"))
    assert (higher["low"], higher["high"]) == pytest.approx((lower["low"], lower["high"]))
    assert higher["high"] - higher["difference"] > 1.2 * (higher["difference"] - higher["low"])


def test_items_of_another_number_are_not_paired(toy):
    found = with_items(True)
    found.items[IDS["run"], Place("s", "toy", "score", None)][1] = np.ones(99)
    assert records(found, claim())["c"]["item_error"] == 0


def test_items_are_scaled_to_the_measured_value():
    found = Measurements()
    place = Place("s", "toy", "score", None)
    for name, value in (("run", 0.75), ("base", 0.5)):
        found.values[IDS[name], place] = dict.fromkeys((0, 1), Value(value, 8))
        found.items[IDS[name], place] = {seed: np.array([4.0, 0.0]) + 2 * (name == "run") for seed in (0, 1)}
    d_SI = found.paired_items("run-1", "base-1", place, [0, 1])
    assert d_SI is not None
    assert d_SI.mean(axis=1) == pytest.approx([0.25, 0.25])


# tables and bytes


def write_table(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["run", "impl", "seed", "suite", "task", "length", "metric", "value", "n"])
        writer.writeheader()
        writer.writerows(rows)


def row(seed: int, value: Any, run: str = "a-1", n: int = 10, length: Any = ""):
    return {
        "run": run,
        "impl": "a",
        "seed": seed,
        "suite": "s",
        "task": "toy",
        "length": length,
        "metric": "score",
        "value": value,
        "n": n,
    }


def test_numbers_that_are_not_finite_are_no_measurements(tmp_path):
    write_table(tmp_path / "m.csv", [row(0, "nan"), row(1, "inf"), row(2, ""), row(3, 0.0), row(4, 0.5)])
    (tmp_path / "runs.json").write_text("[]")
    found = measured.read(tmp_path / "m.csv", tmp_path / "runs.json")
    assert dict(found.at("a-1", Place("s", "toy", "score", None))) == {3: Value(0.0, 10), 4: Value(0.5, 10)}


def test_parquet_and_items_are_read_like_csv(tmp_path):
    rows = [row(0, 0.5, length=64), row(1, 0.25, length=64)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    items = [
        {**row(seed, 0), "items": scores, "length": 64} for seed, scores in ((0, [1.0, 0.0]), (7, [1.0]), (1, [0.25]))
    ]
    pq.write_table(pa.Table.from_pylist(items), tmp_path / "items.parquet")
    (tmp_path / "runs.json").write_text("[]")
    found = measured.read(tmp_path / "m.parquet", tmp_path / "runs.json", tmp_path / "items.parquet")
    place = Place("s", "toy", "score", 64)
    assert found.at("a-1", place)[1].value == 0.25
    assert {seed: scores.tolist() for seed, scores in found.items["a-1", place].items()} == {0: [1.0, 0.0], 1: [0.25]}


@pytest.mark.parametrize(
    ("rows", "why"),
    [([row(0, 0.5), row(0, 0.6)], "seed 0 has two values of s/toy/score"), ([{"run": "a"}], "harness.aggregate")],
)
def test_tables_that_cannot_be_trusted_are_refused(tmp_path, rows, why):
    if "seed" in rows[0]:
        write_table(tmp_path / "m.csv", rows)
    else:
        (tmp_path / "m.csv").write_text("run,seed\na,0\n")
    (tmp_path / "runs.json").write_text("[]")
    with pytest.raises(UserError, match=why):
        measured.read(tmp_path / "m.csv", tmp_path / "runs.json")


def test_missing_tables_name_the_step_that_makes_them(tmp_path):
    with pytest.raises(UserError, match=r"m\.csv is not there; make it with python -m harness\.aggregate"):
        measured.read(tmp_path / "m.csv", tmp_path / "runs.json")


@pytest.mark.parametrize(
    "content", ["{", "[1]", "{}", '{"cells": {"k": [true]}}', '{"cells": {"k": ["x"]}}', '{"cells": {"k": [NaN]}}']
)
def test_noise_is_lists_of_numbers(tmp_path, content):
    (tmp_path / "noise.json").write_text(content)
    with pytest.raises(UserError, match=r"noise\.json holds no differences"):
        judge.read_noise([tmp_path / "noise.json"])


def test_noise_of_several_tasks_is_joined_and_a_missing_file_adds_none(tmp_path):
    (tmp_path / "lm.json").write_text('{"cells": {"loss/test/nats@64": [-0.5, 1]}}')
    (tmp_path / "recall.json").write_text('{"cells": {"recall/mqar-4/accuracy@64": [0.1]}}')
    found = judge.read_noise(tmp_path / f"{task}.json" for task in ("lm", "other", "recall"))
    assert found == {"loss/test/nats@64": [-0.5, 1.0], "recall/mqar-4/accuracy@64": [0.1]}


SPEC = """
title: T{k}
arxiv: "2000.0000{k}"
year: 2020
authors: [A]
summary: S
scale_gap: none
runs:
{runs}
claims:
{claims}
"""
CLAIMS = [
    "- {id: more, quote: q, where: abstract, kind: compare, run: x, baseline: y, metric: recall/mqar-32/accuracy, "
    "expect: higher, margin: 0.1, margin_from: us}",
    "- {id: less, quote: q, where: abstract, kind: compare, run: x, baseline: y, metric: loss/test/bits_per_byte, "
    "expect: lower, margin: 0.0, margin_from: us}",
    "- {id: slope, quote: q, where: abstract, kind: trend, run: x, metric: recall/mqar/accuracy, over: pairs, "
    "expect: falls, margin: 0.0, margin_from: us}",
    "- {id: sum, quote: q, where: abstract, kind: property, run: x, check: rows_sum_to_one}",
    "- {id: both, quote: q, where: abstract, kind: all_of, parts: [{kind: property, run: x, check: causal}, "
    "{kind: value, run: x, metric: recall/mqar-4/accuracy, value: 0.9, tolerance: 0.2, tolerance_from: us}]}",
]
RUNS = ["  x: {impl: softmax}", "  y: {impl: softmax, args: {rope: false}}"]


ITEM_COLUMNS = ("run", "seed", "suite", "task", "length", "metric")


def shared_items(row):
    """Scores of four windows around a value: hard ones are hard in every seed of a run."""
    rng = np.random.default_rng([*row["run"].encode(), *row["task"].encode(), int(row["length"] or 0)])
    return list(row["value"] + 0.1 * rng.normal(size=4))


def build(folder, shuffle, monkeypatch, values):
    """verdicts.json of two papers, everything in an order that `shuffle` decides."""
    (folder / "papers").mkdir(parents=True)
    (folder / "config").symlink_to(ROOT / "config")
    for k in shuffle([1, 2]):
        claims_ = [shuffled_keys(line, shuffle) for line in shuffle(CLAIMS)]
        runs = "\n".join(shuffle(RUNS))
        spec = SPEC.format(k=k, runs=runs, claims="\n".join(f"  {line}" for line in claims_))
        (folder / "papers" / f"paper-{k}.yaml").write_text(spec.strip() + "\n")
    monkeypatch.chdir(folder)
    plan = Plan.load({"profile": "laptop", "seeds": shuffle([0, 1, 2])})
    rows, trainings = [], []
    for run in plan.runs:
        for seed in (0, 1, 2):
            for suite in ("loss", "recall"):
                for task, length, metric in load_suite(suite).cells(plan.profile):
                    value = values(run, seed, task, metric)
                    rows.append(row(seed, value, run, 640, length) | {"suite": suite, "task": task, "metric": metric})
            trainings.append({"run": run, "task": "lm", "seed": seed, "status": "ok", "suites": {}})
    write_table(folder / "m.csv", shuffle(rows))
    (folder / "runs.json").write_text(json.dumps(shuffle(trainings)))
    loss = [row for row in rows if row["suite"] == "loss"]
    scores = [{name: row[name] for name in ITEM_COLUMNS} | {"items": shared_items(row)} for row in loss]
    pq.write_table(pa.Table.from_pylist(shuffle(scores)), folder / "items.parquet")
    cells = {str(Place(r["suite"], r["task"], r["metric"], r["length"])): [0.001, -0.002] for r in rows}
    (folder / "noise.json").write_text(json.dumps({"cells": dict(shuffle(list(cells.items())))}))
    given = ["--measurements", "m.csv", "--runs", "runs.json", "--out", "v.json", "--profile", "laptop"]
    judge.main([*given, "--items", "items.parquet", "--noise", "noise.json"])
    return (folder / "v.json").read_bytes()


def shuffled_keys(line, shuffle):
    """`- {a: 1, b: 2}` with its keys in another order; lines with nested mappings stay."""
    inner = line.removeprefix("- {").removesuffix("}")
    return line if "{" in inner else "- {" + ", ".join(shuffle(inner.split(", "))) + "}"


def test_no_order_changes_a_byte_of_the_verdicts(tmp_path, monkeypatch):
    noise = random.Random(0)
    drawn: dict[tuple, float] = {}

    def values(run, seed, task, metric):
        return drawn.setdefault((run, seed, task, metric), round(640 * (0.5 + 0.4 * noise.random())) / 640)

    plain = build(tmp_path / "plain", list, monkeypatch, values)
    made = json.loads(plain)
    assert len(made) == 2 * len(CLAIMS)
    assert all(record["item_error"] > 0 and record["noise"] == 0.002 for record in made if record["claim"] == "less")
    for seed in range(3):
        mixer = random.Random(seed)
        mixed_up = build(
            tmp_path / f"mixed{seed}", lambda items, m=mixer: m.sample(list(items), len(items)), monkeypatch, values
        )
        assert mixed_up == plain
