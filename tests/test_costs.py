"""Costs of trained models as a table, and which budgets a run shares with the reference."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import cost, costs
from harness.config import Config, load_profile
from harness.files import write_json
from harness.model import shape_of
from harness.plan import Plan
from harness.report import budget
from harness.report.evidence import Run
from harness.runs import resolve
from tests.judging import claim, paper


@pytest.fixture
def plan() -> Plan:
    papers, profile = {"p": paper(claim("untested", reason="r"))}, load_profile("laptop")
    return Plan(Config(suites=("loss", "recall")), profile, papers, resolve(papers, profile))


def train(plan: Plan, runs: Path, run: str, task: str, **more: Any) -> None:
    settings = plan.runs[run].tasks[task]
    shape = shape_of(plan.runs[run].impl, plan.runs[run].args, settings.model, 64)
    record = {"run": run, "task": task, "seed": 0, "status": "ok", "model": dataclasses.asdict(shape)}
    write_json(runs / run / task / "seed0" / "run.json", record | {"settings": {"length": settings.length}} | more)


def test_costs_are_those_of_the_recorded_models_counted_once_for_equal_ones(plan, tmp_path, monkeypatch):
    first, second = plan.runs
    for run in (first, second):
        train(plan, tmp_path, run, "lm")
    train(plan, tmp_path, first, "recall", status="failed", model=None)
    counted = []
    real = cost.measure
    monkeypatch.setattr(cost, "measure", lambda shape, length: counted.append(shape) or real(shape, length))
    found = costs.measure(plan, tmp_path)
    assert {run: list(tasks) for run, tasks in found.items()} == {first: ["lm"], second: ["lm"]}
    assert found[first]["lm"] == dataclasses.asdict(real(counted[0], 128))
    assert len(counted) == 2
    assert json.loads(json.dumps(found)) == found
    twin = json.loads((tmp_path / first / "lm/seed0/run.json").read_text())
    write_json(tmp_path / second / "lm/seed0/run.json", {**twin, "run": second})
    counted.clear()
    costs.measure(plan, tmp_path)
    assert len(counted) == 1


def test_a_mechanism_that_raises_has_no_costs_and_takes_no_other_with_it(plan, tmp_path, monkeypatch, capsys):
    for run in plan.runs:
        train(plan, tmp_path, run, "lm")
    real, faults = cost.measure, [ArithmeticError("upside down")]

    def measure(shape, length):
        if faults:
            raise faults.pop()
        return real(shape, length)

    monkeypatch.setattr(cost, "measure", measure)
    assert list(costs.measure(plan, tmp_path)) == list(plan.runs)[1:]
    assert "upside down" in capsys.readouterr().err


def test_a_training_gets_what_is_known_of_its_model_and_nothing_else():
    trainings = [{"run": "a", "task": "lm"}, {"run": "a", "task": "recall"}, {"run": "b", "task": "lm"}]
    known = dataclasses.asdict(cost.Cost(8, 10, 3.0, 1.0, 2, 64))
    costs.merged(trainings, {"a": {"lm": known}})
    told = {"flops_training": 3.0, "flops_per_token": 1.0, "flops_decoding": 2, "state_bytes": 64}
    assert trainings == [{"run": "a", "task": "lm", **told}, *trainings[1:]]
    assert [len(training) for training in trainings[1:]] == [2, 2]


def run(impl: str, **costs_: Any) -> Run:
    usual = {"status": "ok", "parameters": 1000, "flops_per_token": 50.0, "state_bytes": 64}
    return Run(impl, impl, {}, {}, impl, [], records={("lm", 0): usual | costs_})


@pytest.mark.parametrize(
    ("given", "shared"),
    [
        ({}, "iso-parameter, iso-FLOP, iso-state"),
        ({"parameters": 1010, "flops_per_token": 55.0, "state_bytes": 58}, "iso-parameter, iso-FLOP, iso-state"),
        ({"parameters": 1011}, "iso-FLOP, iso-state"),
        ({"flops_per_token": 55.1}, "iso-parameter, iso-state"),
        ({"state_bytes": 57}, "iso-parameter, iso-FLOP"),
        ({"state_bytes": None}, "iso-parameter, iso-FLOP"),
        ({"status": "failed"}, "none"),
    ],
)
def test_a_budget_is_shared_within_its_tolerance(given, shared):
    evidence: Any = SimpleNamespace(runs={"softmax": run("softmax"), "gla": run("gla", **given)})
    assert budget.shared(evidence, evidence.runs["gla"]).text == shared
    assert budget.shared(evidence, evidence.runs["softmax"]).text == "iso-parameter, iso-FLOP, iso-state"
