"""Runs named by what they are: equal settings from two papers are one run, trained once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

import impls
from harness.claims import tests
from harness.config import Data, Profile
from harness.errors import UserError
from harness.metrics import load_suite, parse_key
from harness.references import TRAIN_LENGTH
from harness.spec import Paper, Run
from harness.studies import METHOD, STUDY


@dataclass(frozen=True)
class RunSettings:
    """All that decides a run's weights, or a study's measurements, but for task and seed."""

    id: str
    impl: str
    args: dict[str, Any]
    recipe: dict[str, dict[str, Any]]
    tasks: dict[str, Any]  # the profile's, with the recipe applied
    data: Data
    hf: str | None = None  # a model of the Hub, which is not trained
    wanted: frozenset[str] = frozenset()  # the tasks that a claim measures it on, or its mechanism is seen on in it
    kind: impls.Kind = "mechanism"  # what its module is
    base: str | None = None  # of a method: the run whose models it changes

    @property
    def step(self) -> str:
        """The module of the harness that makes it."""
        return "pretrained" if self.hf else {"mechanism": "train", "study": "study", "method": "apply"}[self.kind]

    def args_at(self, task: str) -> dict[str, Any]:
        """The mechanism's arguments for one training task, with `train_length` filled in."""
        length = self.tasks[task].length
        return {name: length if value == TRAIN_LENGTH else value for name, value in self.args.items()}


def asked(run: RunSettings, task: str) -> bool:
    """Whether a run has a model of a task: all have, but where the profile trains only those that are wanted.

    A method is applied only where a claim measures it; a study is made, under a name of its own in a task's place.
    """
    if STUDY in (run.kind, task):
        return run.kind == task
    if run.kind == METHOD:
        return task in run.wanted
    return task in run.wanted or getattr(run.tasks.get(task), "trained", "all") == "all"


def unasked(task: str) -> str:
    """Why a run that is not trained on a task is not."""
    return f"no claim measures this run on the task {task}"


def tuned(run: RunSettings, task: str) -> bool:
    """Whether a grid of learning rates is tried for this run: the profile has one, and its recipe gives no rate."""
    trained = run.hf is None and run.kind == "mechanism"
    return trained and run.tasks[task].tune is not None and "lr" not in run.recipe.get(task, {})


def plainness(run: RunSettings) -> tuple[int, str]:
    """Orders runs: those with fewer arguments and rates of their own come first."""
    return len(run.args) + len(run.recipe), run.id


def canonical(value: Any) -> str:
    """JSON that is the same text for equal values: sorted keys, and one spelling for 1 and 1.0."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def run_settings(run: Run, profile: Profile, others: Mapping[str, Run] | None = None) -> RunSettings:
    """One run of a paper under a profile; `others` are the paper's, among which a method has its base.

    Raises UserError when its recipe does not fit the profile.
    """
    if run.hf is not None:
        digest = hashlib.sha256(canonical({"hf": run.hf}).encode()).hexdigest()
        return RunSettings(f"{run.impl}-{digest[:8]}", run.impl, {}, {}, dict(profile.tasks), profile.data, run.hf)
    kind = impls.kind(run.impl) or "mechanism"
    if kind != "mechanism":
        base = run_settings((others or {})[run.base], profile) if run.base else None
        whole = {"impl": run.impl, "args": run.args, "base": base and base.id, "effort": profile.effort}
        digest = hashlib.sha256(canonical(whole).encode()).hexdigest()
        return RunSettings(
            f"{run.impl}-{digest[:8]}",
            run.impl,
            dict(run.args),
            {},
            base.tasks if base else {},
            profile.data,
            kind=kind,
            base=base.id if base else None,
        )
    recipe = {task: given for task, rates in run.recipe.items() if (given := rates.model_dump(exclude_unset=True))}
    training = {
        "data": profile.data.model_dump(),
        "tasks": {task: _given(settings.model_dump()) for task, settings in profile.tasks.items()},
    }
    whole = {"impl": run.impl, "args": run.args, "recipe": recipe, "training": training}
    digest = hashlib.sha256(canonical(whole).encode()).hexdigest()
    tasks = {task: _overridden(settings, recipe.get(task, {})) for task, settings in profile.tasks.items()}
    return RunSettings(f"{run.impl}-{digest[:8]}", run.impl, dict(run.args), recipe, tasks, profile.data)


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """What decides weights: not who is trained nor by how many, nor a grid of rates that is not asked for."""
    idle = {"trained", "processes"} | ({"tune"} if settings["tune"] is None else set())
    return {key: value for key, value in settings.items() if key not in idle}


def _overridden(settings: Any, recipe: dict[str, Any]) -> Any:
    try:
        return type(settings).model_validate({**settings.model_dump(), **recipe})
    except ValidationError as error:
        raise UserError(f"the recipe {recipe} does not fit: {error.errors()[0]['msg']}") from None


def run_ids(paper: Paper, profile: Profile) -> dict[str, str]:
    """The run id of each of a paper's runs, by the name the paper gives it."""
    return {name: run_settings(run, profile, paper.runs).id for name, run in paper.runs.items()}


def resolve(papers: Mapping[str, Paper], profile: Profile) -> dict[str, RunSettings]:
    """Every run of every paper by its id, in the order of ids."""
    found: dict[str, RunSettings] = {}
    for slug in sorted(papers):
        for name, run in papers[slug].runs.items():
            settings = run_settings(run, profile, papers[slug].runs)
            known = found.setdefault(settings.id, settings)
            if (known.args, known.recipe, known.base) != (settings.args, settings.recipe, settings.base):
                raise UserError(
                    f"{slug}: run {name!r} got the name {known.id} of another run; change one of them slightly"
                )
    for paper in papers.values():
        for run, task in _claimed(paper, run_ids(paper, profile)):
            for id in filter(None, (run, found[run].base)):  # a method needs its base's model
                found[id] = _wanted(found[id], task)
    for task, settings in profile.tasks.items():
        for run in _unseen(found.values(), task) if settings.trained == "mechanisms" else ():
            found[run.id] = _wanted(run, task)
    return dict(sorted(found.items()))


def _wanted(run: RunSettings, task: str) -> RunSettings:
    return replace(run, wanted=run.wanted | {task})


def _unseen(runs: Iterable[RunSettings], task: str) -> list[RunSettings]:
    """For each mechanism that no claim measures on a task, the run to see it in: measured elsewhere, and plain."""
    trained = [run for run in runs if run.step == "train"]
    seen = {run.impl for run in trained if task in run.wanted}
    best: dict[str, RunSettings] = {}
    for run in sorted(trained, key=lambda run: (-len(run.wanted), plainness(run))):
        best.setdefault(run.impl, run)
    return [run for impl, run in best.items() if impl not in seen]


def _claimed(paper: Paper, ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(run id, task) of every measurement that a claim of the paper needs."""
    for test in (test for claim in paper.claims for _, test in tests(claim)):
        names = (getattr(test, "run", None), getattr(test, "baseline", None))
        needed = [(name, getattr(test, "metric", None)) for name in names]
        needed += [(need.run, need.metric) for need in getattr(test, "needs", ())]
        for name, metric in needed:
            if name and metric:
                key = parse_key(metric)
                own = {STUDY: STUDY, METHOD: key.task}
                yield ids[name], own.get(key.suite) or load_suite(key.suite).TASK


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
