"""The grid of learning rates: chosen by held-out loss on a pilot, published whole, used and recorded by a training."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from harness import fit, train, tune
from harness.config import Config, Profile, load_profile
from harness.errors import UserError
from harness.files import write_json
from harness.job import Job, tune_file, with_grid
from harness.loss import nats_per_target
from harness.plan import Plan
from harness.runs import resolve, tuned
from harness.spec import Paper
from harness.tasks import Tune, recall
from tests.judging import claim, paper
from tests.site_files import Html
from tests.site_fixture import built

ROOT = Path(__file__).parents[1]
MODEL = {"width": 16, "layers": 1, "heads": 2, "mlp": 16, "conv": 4}
TASK = {"model": MODEL, "length": 32, "batch": 8, "steps": 40, "lr": 1e-3, "warmup": 4, "kinds": ["mqar-4", "needle-1"]}
GRID = {"rates": [1e-6, 3e-2, 1e-1], "steps": 20}


def profile(grid: Any = GRID) -> Profile:
    laptop = load_profile("laptop", ROOT / "config/profiles")
    tasks = {"recall": recall.Settings.model_validate({**TASK, "tune": grid})}
    return laptop.model_copy(update={"tasks": tasks})


def papers(**recipe: Any) -> dict[str, Paper]:
    given = paper(claim("untested", reason="r")).model_dump()
    given["runs"] = {"run": {"impl": "softmax", "recipe": {"recall": recipe} if recipe else {}}}
    return {"p": Paper.model_validate(given)}


@pytest.fixture
def job(tmp_path, monkeypatch) -> Job:
    monkeypatch.chdir(tmp_path)
    (run,) = resolve(papers(), profile()).values()
    return Job(run, "recall", 1_000_000, "tiny")


def test_the_rate_with_the_least_held_out_loss_is_chosen_used_and_recorded(job: Job):
    made = tune.tune(job, "cpu")
    losses = {each["lr"]: each["loss"] for each in made["rates"]}
    assert list(losses) == GRID["rates"]
    assert losses[1e-6] > losses[3e-2], "a rate that learns nothing costs more than one that learns"
    assert made["choice"] == min(losses, key=lambda lr: losses[lr])
    assert (made["status"], made["reason"], made["steps"], made["given"]) == ("ok", None, 20, 1e-3)
    write_json(tune_file(job), made)
    record = train.train(with_grid(dataclasses.replace(job, seed=0)), "cpu", print)
    assert (record["status"], record["settings"]["lr"]) == ("ok", made["choice"])
    assert record["tune"] == made


def test_equal_grids_give_equal_losses(job: Job):
    first, second = (tune.tune(job, "cpu") for _ in range(2))
    assert [each["loss"] for each in first["rates"]] == [each["loss"] for each in second["rates"]]


def test_a_pilot_that_diverges_is_out(job: Job, monkeypatch):
    real = fit.Fit.run

    def explodes(self, until, after):
        if self.settings.lr == 3e-2:
            raise fit.Diverged("the loss is nan at step 3")
        real(self, until, after)

    monkeypatch.setattr(fit.Fit, "run", explodes)
    made = tune.tune(job, "cpu")
    assert made["choice"] != 3e-2
    assert [each["reason"] for each in made["rates"]] == [None, "the loss is nan at step 3", None]


def test_a_pilot_that_raises_takes_no_other_with_it(job: Job, monkeypatch):
    real = fit.Fit.run

    def raises(self, until, after):
        if self.settings.lr == 3e-2:
            raise ArithmeticError("no inverse")
        real(self, until, after)

    monkeypatch.setattr(fit.Fit, "run", raises)
    made = tune.tune(job, "cpu")
    assert made["status"] == "ok"
    assert [each["reason"] for each in made["rates"]] == [None, "ArithmeticError: no inverse", None]


def test_without_any_number_the_run_fails_with_the_reason(job: Job, monkeypatch):
    def diverges(self, **given):
        raise fit.Diverged("no")

    monkeypatch.setattr(fit.Fit, "run", diverges)
    made = tune.tune(job, "cpu")
    assert (made["status"], made["choice"], made["edge"]) == ("failed", None, None)
    assert made["reason"] == "1e-06: no; 0.03: no; 0.1: no"
    write_json(tune_file(job), made)
    record = train.train(with_grid(job), "cpu", print)
    assert record["status"] == "failed"
    assert record["reason"] == f"ValueError: no rate of the grid could be trained: {made['reason']}"


def test_a_mechanism_that_raises_has_no_rate(job: Job):
    made = tune.tune(dataclasses.replace(job, run=dataclasses.replace(job.run, args={"heads": 3})), "cpu")
    assert (made["status"], made["rates"]) == ("failed", [])
    assert "3" in made["reason"]


def test_a_training_without_its_grid_is_refused_with_the_command(job: Job):
    with pytest.raises(
        UserError, match=rf"tune\.json cannot be read; make it with python -m harness\.tune {job.run.id}"
    ):
        with_grid(job)


def test_a_recipe_that_gives_the_rate_has_no_grid_and_neither_has_a_profile_without_one():
    (pinned,) = resolve(papers(lr=2e-3), profile()).values()
    (other,) = resolve(papers(beta2=0.9), profile()).values()
    (plain,) = resolve(papers(), profile(None)).values()
    assert [tuned(run, "recall") for run in (pinned, other, plain)] == [False, True, False]
    plan = Plan(Config(seeds=(0, 1), suites=("recall",)), profile(), papers(), resolve(papers(), profile()))
    (run,) = plan.runs
    assert plan.grid(run, "recall") == [f"results/runs/{run}/recall/tune.json"]
    assert Plan(plan.config, profile(None), papers(), {pinned.id: pinned}).grid(pinned.id, "recall") == []


def test_a_grid_makes_other_runs_and_its_absence_the_same_as_ever():
    names = [next(iter(resolve(papers(), profile(grid)))) for grid in (None, GRID, {**GRID, "steps": 30})]
    assert len(set(names)) == 3
    settings = profile(None).tasks["recall"].model_dump()
    assert settings.pop("tune") is None


@pytest.mark.parametrize(("choice", "said"), [(1e-3, "lowest"), (2e-3, None), (4e-3, "highest"), (None, None)])
def test_an_end_of_the_grid_is_flagged(choice, said):
    assert tune.edge(choice, [1e-3, 2e-3, 4e-3]) == said


def test_of_equal_losses_the_lowest_rate_is_chosen():
    assert tune.chosen([{"lr": 2.0, "loss": 1.0}, {"lr": 1.0, "loss": 1.0}, {"lr": 0.5, "loss": None}]) == 1.0


@pytest.mark.parametrize(
    "grid", [{"rates": [1e-3], "steps": 5}, {"rates": [2e-3, 1e-3], "steps": 5}, {"rates": [0.0, 1]}]
)
def test_a_grid_has_two_rates_in_order(grid):
    with pytest.raises(ValidationError):
        Tune.model_validate(grid)


def test_a_pilot_is_no_longer_than_a_training():
    with pytest.raises(ValidationError, match=r"tune\.steps: 41 is longer than steps: 40"):
        recall.Settings.model_validate({**TASK, "tune": {**GRID, "steps": 41}})


def test_warm_up_is_shortened_with_the_steps():
    made = tune.shortened(profile().tasks["recall"], 0.5)
    assert (made.lr, made.steps, made.warmup) == (0.5, 20, 2)


def test_held_out_rows_of_recall_are_drawn_by_no_training_and_no_evaluation():
    settings = profile().tasks["recall"]
    task = recall.Task(settings, seed=3)
    held = [bytes(row) for batch in task.held_out() for row in batch.inputs_BT]
    assert len(held) == 8 * 2 + 8
    trained = {bytes(row) for step in range(40) for row in task.batch(step).inputs_BT}
    measured = {bytes(row) for name in settings.kinds for row in recall.evaluation(name, 64, 32, 3).inputs_BT}
    assert not set(held) & (trained | measured)


def test_held_out_loss_counts_scored_targets_alone(job: Job):
    from harness.model import build, shape_of

    shape = shape_of("softmax", {"heads": 2}, job.settings.model, recall.VOCAB)
    model = build(shape, 0)
    model.embedding.weight.data.zero_()
    task = recall.Task(job.settings, seed=3)
    assert nats_per_target(model, task.held_out(), "cpu") == pytest.approx(math.log(recall.VOCAB), rel=1e-6)
    assert all(np.all(batch.text_bytes == 0) for batch in task.held_out())
    assert nats_per_target(model, [], "cpu") is None


def test_the_grid_is_on_the_pages_of_run_and_paper_with_its_end_flagged():
    (run,) = (built() / "runs").glob("gla-*.html")
    for path in (run, built() / "papers/eight.html"):
        text = path.read_text()
        page = Html(text)
        told = [cell.strip() for _, cell in page.cells]
        assert "chosen the highest of the grid" in told
        assert "the loss is <nan> at step 3" in {given.get("title") for given, _ in page.cells}
        assert "0.002" in told
        assert 'id="chart-rates-lm"' in text
    assert "python -m harness.tune gla-" in run.read_text()
    (other,) = (built() / "runs").glob("softpick-*.html")
    assert "Learning rates" not in other.read_text()


def test_the_tuned_laptop_is_the_laptop_with_a_small_grid_around_its_rates():
    plain, tuned = (load_profile(name, ROOT / "config/profiles") for name in ("laptop", "laptop-tuned"))
    assert tuned.model_copy(update={"name": plain.name, "tasks": plain.tasks}) == plain
    for task, settings in tuned.tasks.items():
        assert settings.model_copy(update={"tune": None}) == plain.tasks[task]
        low, middle, high = settings.tune.rates
        assert (low, middle, high) == (settings.lr / 2, settings.lr, 2 * settings.lr)
        assert settings.tune.steps < settings.steps
