"""The noise floor: a run repeated with its data in another order, and the differences that it leaves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness import evaluate, judge, noise, outcomes, train
from harness.config import Config, Profile, load_profile
from harness.errors import UserError
from harness.files import write_json
from harness.job import Job
from harness.plan import Plan
from harness.records import folder
from harness.runs import resolve
from tests.judging import SUITE, claim, paper, records, table

ROOT = Path(__file__).parents[1]
MODEL = {"width": 16, "layers": 1, "heads": 2, "mlp": 16, "conv": 4}
TASK = {"model": MODEL, "length": 32, "batch": 2, "steps": 3, "lr": 1e-3, "warmup": 1, "kinds": ["mqar-4"]}
SMALL = {"examples": 4, "kinds": ["mqar-4", "needle-1"], "multiples": [1]}


def profile(**more: Any) -> Profile:
    laptop = load_profile("laptop", ROOT / "config/profiles")
    tasks = {"recall": type(laptop.tasks["recall"]).model_validate(TASK)}
    suites = {"recall": type(laptop.suites["recall"]).model_validate(SMALL)}
    return laptop.model_copy(update={"tasks": tasks, "suites": suites, **more})


@pytest.fixture
def job(tmp_path, monkeypatch) -> Job:
    """The softmax reference, trained and measured once."""
    monkeypatch.chdir(tmp_path)
    papers = {"p": paper(claim("untested", reason="r"))}
    runs = resolve(papers, profile())
    found = Job(next(run for run in runs.values() if not run.args), "recall", 0, "tiny")
    assert train.train(found, "cpu", print)["status"] == "ok"
    record = evaluate.evaluate(found.run.id, "recall", 0, profile(), "cpu")
    write_json(found.folder / "recall.json", record.model_dump())
    return found


def test_another_order_changes_the_data_and_not_the_start(job: Job):
    again = dataclasses.replace(job, order=5)
    trained = train.train(again, "cpu", print)
    assert (trained["seed"], trained["order"], trained["status"]) == (0, 5, "ok")
    assert again.folder != job.folder
    first, second = ((each.folder / "curve.jsonl").read_text().splitlines() for each in (job, again))
    assert json.loads(first[0])["loss"] != json.loads(second[0])["loss"]
    same = dataclasses.replace(job, order=0)
    train.train(same, "cpu", print)
    assert (same.folder / "model.safetensors").read_bytes() == (job.folder / "model.safetensors").read_bytes()


def test_the_record_holds_a_difference_for_each_cell_and_repetition(job: Job):
    made = noise.repeat(job, [0, 5], ["recall"], profile(), "cpu", print)
    assert (made["status"], made["reason"], made["orders"]) == ("ok", None, [0, 5])
    assert set(made["cells"]) == {"recall/mqar-4/accuracy@32", "recall/needle-1/accuracy@32"}
    assert all(len(changes) == 2 and changes[0] == 0 for changes in made["cells"].values())


def test_a_repetition_that_fails_is_a_record_with_the_reason(job: Job, monkeypatch):
    monkeypatch.setattr(noise, "train", lambda *given: {"status": "diverged", "reason": "the loss is nan at step 2"})
    made = noise.repeat(job, [5], ["recall"], profile(), "cpu", print)
    assert (made["status"], made["cells"]) == ("failed", {})
    assert made["reason"] == "training with order 5 diverged: the loss is nan at step 2"


def test_a_run_that_was_not_measured_is_refused(job: Job):
    (folder(job.run.id, "recall", 0) / "recall.json").unlink()
    with pytest.raises(UserError, match=r"recall\.json is missing"):
        noise.differences(dataclasses.replace(job, order=0), "recall", profile(), "cpu")


@pytest.mark.parametrize(("changes", "floor"), [([0.25, -0.5], 0.5), ([], 0.0)])
def test_the_floor_is_the_most_that_a_repetition_changed(monkeypatch, changes, floor):
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)
    found = table(run__toy__score=[0.7, 0.71, 0.72], base__toy__score=[0.5, 0.5, 0.52])
    made = records(found, claim(), noise={"s/toy/score": changes})["c"]
    assert made["noise"] == floor
    assert made["verdict"] == ("inconclusive" if floor else "reproduced")


def test_the_floor_of_a_trend_is_a_slope(monkeypatch):
    """Of one repetition at a time: changes that shift all lengths alike change no slope."""
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)
    columns = {f"run__far__loss__{length}": [level, level + 0.01] for length, level in ((64, 1), (128, 2), (512, 4))}
    trend = claim("trend", expect="rises")
    alike = {f"s/far/loss@{length}": [0.5] for length in (64, 128, 512)}
    assert records(table(columns), trend, noise=alike, seeds=(0, 1))["c"]["noise"] == pytest.approx(0)
    steep = {f"s/far/loss@{length}": [change] for length, change in ((64, 0), (128, -2), (512, -6))}
    made = records(table(columns), trend, noise=steep, seeds=(0, 1))["c"]
    assert made["noise"] == pytest.approx(2.0)
    assert made["verdict"] == "inconclusive"
    partial = {"s/far/loss@64": [9.0]}
    assert records(table(columns), trend, noise=partial, seeds=(0, 1))["c"]["noise"] == 0


def test_a_trend_is_repeated_by_repetitions_that_measured_each_of_its_places(monkeypatch, tmp_path):
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)
    columns = {f"run__far__loss__{length}": [level, level + 0.01] for length, level in ((64, 1), (128, 2), (512, 4))}
    write_json(
        tmp_path / "lm.json",
        {
            "cells": {
                f"s/far/loss@{length}": changes for length, changes in ((64, [None, 0]), (128, [9, -2]), (512, [9, -6]))
            }
        },
    )
    found = judge.read_noise([tmp_path / "lm.json"])
    made = records(table(columns), claim("trend", expect="rises"), noise=found, seeds=(0, 1))["c"]
    assert made["noise"] == pytest.approx(2.0)  # of the second; the first lacks one of the three


def test_a_repetition_keeps_its_place_where_another_lacks_a_cell(job: Job, monkeypatch):
    first = "recall/mqar-4/accuracy@32"
    found = iter([({"needle-1/accuracy@32": 0.5}, "not measured: mqar-4/accuracy@32"), ({first[7:]: 0.25}, None)])
    monkeypatch.setattr(noise, "differences", lambda *given: next(found))
    monkeypatch.setattr(noise, "train", lambda *given: {"status": "ok", "reason": None})
    made = noise.repeat(job, [5, 6], ["recall"], profile(), "cpu", print)
    assert made["cells"] == {"recall/needle-1/accuracy@32": [0.5, None], first: [None, 0.25]}


def test_the_plan_repeats_the_plainest_softmax_run_with_orders_that_no_seed_has():
    papers = {"p": paper(claim("untested", reason="r"))}
    made = profile(noise=2)
    plan = Plan(Config(seeds=(0, 1_000_001), suites=("recall",)), made, papers, resolve(papers, made))
    assert plan.spare_seeds(3) == [1_000_000, 1_000_002, 1_000_003]
    assert plan.orders() == [1_000_002, 1_000_003]
    assert plan.runs[plan.reference() or ""].args == {}
    assert plan.repeated() == {"recall": "results/noise/recall.json"}
    quiet = Plan(plan.config, profile(noise=0), papers, plan.runs)
    assert quiet.repeated() == {}
    assert quiet.orders() == []
