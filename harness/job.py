"""Which training a command asks for: one run, task and seed under a profile, and where its files lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import load_profile
from harness.errors import UserError, suggest
from harness.files import read_json
from harness.runs import RunSettings, asked, resolve, tuned
from harness.spec import load_papers

RESULTS = Path("results")


@dataclass(frozen=True)
class Job:
    """One run, task and seed, under a profile."""

    run: RunSettings
    task: str
    seed: int
    profile: str
    order: int | None = None  # the seed of the data's order, where it is not that of the weights
    grid: Mapping[str, Any] | None = None  # the pilots that chose its learning rate (harness.tune)

    @property
    def runs(self) -> Path:
        """Where trained models lie; those of another order lie apart."""
        return RESULTS / "runs" if self.order is None else RESULTS / "noise" / f"order{self.order}"

    @property
    def folder(self) -> Path:
        return self.runs / self.run.id / self.task / f"seed{self.seed}"

    @property
    def state_file(self) -> Path:
        above = RESULTS / "state" if self.order is None else RESULTS / "state" / f"order{self.order}"
        return above / self.run.id / self.task / f"seed{self.seed}" / "state.pt"

    @property
    def settings(self) -> Any:
        settings = self.run.tasks[self.task]
        chosen = self.grid["choice"] if self.grid else None
        return settings if chosen is None else settings.model_copy(update={"lr": chosen})


def find(run: str, task: str, seed: int, profile: str, step: str = "train") -> Job:
    """The job of that name for a step that makes runs. Raises UserError where no paper has such a run.

    So too where it is made by another step, as a model of the Hub, a study and a method are.
    """
    known = resolve(load_papers(), load_profile(profile))
    if run not in known:
        raise UserError(f"no paper has the run {run!r} under the profile {profile!r}{suggest(run, known)}")
    if known[run].step != step:
        kind = "model of the Hub" if known[run].hf else known[run].kind
        raise UserError(f"{run} is a {kind}; make it with python -m harness.{known[run].step}")
    if step != "study" and task not in known[run].tasks:
        raise UserError(f"the profile {profile!r} has no task {task!r}{suggest(task, known[run].tasks)}")
    return Job(known[run], task, seed, profile)


def with_grid(job: Job) -> Job:
    """The job with the outcome of its grid, if it has one. Raises UserError where that was not made yet."""
    if not (asked(job.run, job.task) and tuned(job.run, job.task)):
        return job
    path = tune_file(job)
    try:
        return dataclasses.replace(job, grid=read_json(path))
    except (OSError, ValueError):
        made = f"python -m harness.tune {job.run.id} --task {job.task} --profile {job.profile}"
        raise UserError(f"{path} cannot be read; make it with {made}") from None


def tune_file(job: Job) -> Path:
    """Where the grid of a run and task lies: one for all seeds and orders."""
    return RESULTS / "runs" / job.run.id / job.task / "tune.json"
