"""What a schema cannot see: that a paper's mechanisms, arguments, tasks, runs, metrics and checks exist."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import create_model

import impls
from harness import checks, claims, closed, config, metrics, tasks
from harness.errors import UserError, suggest
from harness.studies import OWN, STUDY, Sheet, sheet
from harness.yamlio import Document, Where

if TYPE_CHECKING:
    from harness.spec import Paper, Run

TRAIN_LENGTH = "train_length"  # as a value in args: the training length of the task at hand


def check(paper: Paper, doc: Document) -> None:
    """Note in `doc` every name that a paper uses and that does not exist, and every argument its mechanism refuses."""
    for name, run in paper.runs.items():
        _check_run(run, doc, ("runs", name))
        _check_base(run, paper, doc, ("runs", name))
    seen: dict[str, int] = {}
    for place, claim in enumerate(paper.claims):
        at = ("claims", place)
        if seen.setdefault(claim.id, place) != place:
            doc.blame((*at, "id"), f"the claim id {claim.id!r} was given before, to claims[{seen[claim.id]}]")
        for k, number in enumerate(claim.numbers):
            _check_number(number, paper, doc, (*at, "numbers", k), f"claim {claim.id!r}")
        for below, test in claims.tests(claim):
            _check_test(test, paper, doc, (*at, *below), f"claim {claim.id!r}")


def _check_test(test: Any, paper: Paper, doc: Document, at: Where, name: str) -> None:
    for role in ("run", "baseline"):
        run = getattr(test, role, None)
        if run is not None and run not in paper.runs:
            doc.blame((*at, role), f"{name} names an unknown run {run!r}{suggest(run, paper.runs)}")
    if getattr(test, "baseline", None) == getattr(test, "run", ""):
        doc.blame((*at, "baseline"), f"{name} compares the run with itself; name another baseline")
    if test.kind == "property" and test.check not in checks.names():
        doc.blame((*at, "check"), f"unknown check {test.check!r}{suggest(test.check, checks.names())}")
    if test.kind == "property" and (what := _kind(test.run, paper)) in ("study", "method"):
        doc.blame((*at, "run"), f"{name} asks a check of {test.run!r}, a {what}; checks are of mechanisms")
    if test.kind in ("compare", "value", "trend"):
        for fault in _metric_faults(test, paper):
            doc.blame((*at, "metric"), f"{name}: {fault}")
        for place, need in enumerate(test.needs):
            if need.run not in paper.runs:
                fault = f"{name} needs an unknown run {need.run!r}{suggest(need.run, paper.runs)}"
                doc.blame((*at, "needs", place, "run"), fault)
            for fault in _metric_faults(need, paper):
                doc.blame((*at, "needs", place, "metric"), f"{name}: {fault}")


def _check_number(number: claims.Number, paper: Paper, doc: Document, at: Where, name: str) -> None:
    if number.run is None or number.measured is None:
        return
    if number.run not in paper.runs:
        doc.blame((*at, "run"), f"{name} names an unknown run {number.run!r}{suggest(number.run, paper.runs)}")
    for fault in _metric_faults(SimpleNamespace(metric=number.measured, run=number.run), paper):
        doc.blame((*at, "measured"), f"{name}: {fault}")


def _check_run(run: Run, doc: Document, at: Where) -> None:
    if run.hf is not None:  # whether it exists is seen when it is fetched
        return
    kind = impls.kind(run.impl)
    if kind is None:
        known = [*impls.names(), *impls.studies(), *impls.methods()]
        doc.blame((*at, "impl"), f"unknown impl {run.impl!r}{suggest(run.impl, known)}")
        return
    if run.recipe and kind != "mechanism":
        doc.blame((*at, "recipe"), f"{run.impl} is a {kind}, which is not trained; leave recipe away")
    for task in run.recipe:
        if task not in tasks.names():
            doc.blame((*at, "recipe", task), f"unknown task {task!r}{suggest(task, tasks.names())}")
    try:
        module = importlib.import_module(f"impls.{run.impl}")
        Config = getattr(module, {"mechanism": "Mixer", "study": "Study", "method": "Method"}[kind]).Config
    except Exception:  # the module's own fault: it shows as the reason of a failed run, not as a fault of the paper
        return
    trained = kind != "study"
    args = {name: 128 if trained and value == TRAIN_LENGTH else value for name, value in run.args.items()}
    if closed.check(_arguments(Config), args, doc, (*at, "args")) is not None:
        try:
            Config(**args)
        except (TypeError, ValueError) as error:
            doc.blame((*at, "args"), f"{run.impl} refuses its arguments: {error}")


def _check_base(run: Run, paper: Paper, doc: Document, at: Where) -> None:
    """A method starts from the trained models of a mechanism; nothing else starts from anything."""
    if run.hf is not None or (kind := impls.kind(run.impl)) is None:
        return
    if kind != "method":
        if run.base is not None:
            doc.blame((*at, "base"), f"{run.impl} is a {kind}, which starts from no other run; leave base away")
    elif run.base is None:
        doc.blame(at, f"{run.impl} is a method; give the run whose trained models it changes as base")
    elif run.base not in paper.runs:
        doc.blame((*at, "base"), f"unknown run {run.base!r}{suggest(run.base, paper.runs)}")
    elif _kind(run.base, paper) != "mechanism":
        doc.blame((*at, "base"), f"{run.base!r} is trained nowhere here; the base of a method is a run of a mechanism")


def _kind(name: str, paper: Paper) -> str | None:
    """What a run of the paper is; None where that is not known."""
    run = paper.runs.get(name)
    return None if run is None else "model of the Hub" if run.hf is not None else impls.kind(run.impl)


@cache
def _arguments(Config: type) -> type[closed.Closed]:
    """A mechanism's Config as a closed model, so that wrong types and unknown names become faults with a line."""
    hints = typing.get_type_hints(Config)
    known: dict[str, Any] = {}
    for field in fields(Config):
        required = field.default is MISSING and field.default_factory is MISSING
        known[field.name] = (hints[field.name], ... if required else None)
    return create_model("Arguments", __base__=closed.Closed, **known)


def _metric_faults(claim: Any, paper: Paper) -> Iterator[str]:
    """What is wrong with a claim's metric, judged by the union of what all profiles measure."""
    names = [name for role in ("run", "baseline") if (name := getattr(claim, role, None)) in paper.runs]
    try:
        key = metrics.parse_key(claim.metric)
        if key.suite in OWN:
            for name in names:
                yield from _own_faults(claim, key, name, paper)
            return
        suite = metrics.load_suite(key.suite)
    except UserError as error:
        yield str(error)
        return
    yield from (
        f"{name!r} is a study, which no suite measures; name a metric as {STUDY}/<task>/<metric>"
        for name in names
        if _kind(name, paper) == "study"
    )
    if key.metric not in suite.METRICS:
        yield f"unknown metric {key.metric!r} of suite {key.suite!r}{suggest(key.metric, suite.METRICS)}"
        return
    cells = _cells(key.suite)
    named = {task for task, _, metric in cells if metric == key.metric}
    if isinstance(claim, claims.Trend):
        yield from _trend_faults(claim, key, cells)
    elif key.task not in named:
        yield f"unknown task {key.task!r} of suite {key.suite!r}{suggest(key.task, named)}"
    else:
        yield from _length_faults(key, cells)


def _own_faults(claim: Any, key: metrics.Key, name: str, paper: Paper) -> Iterator[str]:
    """The same for a run that must be a study or a method, by what its module says it measures."""
    run, kind = paper.runs[name], key.suite
    if _kind(name, paper) != kind:
        yield f"{name!r} is no {kind}, so that it has no {key}"
        return
    known = _sheet(run)
    if known is None:
        return
    cells = {cell for cell in known.cells if cell[2] == key.metric}
    known_tasks = {task for task, _, _ in cells}
    lengths = {length for task, length, _ in cells if task == key.task}
    if key.metric not in known.metrics:
        yield f"unknown metric {key.metric!r} of the {kind} {run.impl!r}{suggest(key.metric, known.metrics)}"
    elif isinstance(claim, claims.Trend):
        yield from _trend_faults(claim, key, cells, f"the {kind} {run.impl!r} of {name!r}")
    elif key.task not in known_tasks:
        yield f"unknown task {key.task!r} of the {kind} {run.impl!r}{suggest(key.task, known_tasks)}"
    elif key.length is None and key.multiple is None and len(lengths) > 1:
        offered = ", ".join(f"@{length}" for length in sorted(lengths - {None}, key=lambda length: length or 0))
        yield f"{claim.metric!r} is measured at several places; add one of {offered}"
    else:
        yield from _length_faults(key, cells, f"the {kind} {run.impl!r} of {name!r} never")


def _sheet(run: Run) -> Sheet | None:
    """What such a run measures; None where its module, or its arguments, do not let it say: that is told elsewhere."""
    try:
        return sheet(run.impl, run.args)
    except Exception:
        return None


def _trend_faults(
    claim: claims.Trend, key: metrics.Key, cells: set[tuple[str, Any, str]], who: str = ""
) -> Iterator[str]:
    if key.length is not None or key.multiple is not None:
        yield "a trend takes its metric over all lengths; leave the @ away"
    if claim.over == "length":
        seen = {length for task, length, metric in cells if (task, metric) == (key.task, key.metric)}
    else:
        seen = {task for task, _, metric in cells if metric == key.metric and task.rpartition("-")[0] == key.task}
    if len(seen) < 2:
        bases = {task if claim.over == "length" else task.rpartition("-")[0] for task, _, _ in cells}
        who = f"{who} does not measure" if who else "no profile measures"
        yield f"{who} {claim.metric!r} at two or more values of {claim.over}{suggest(key.task, bases)}"


def _length_faults(key: metrics.Key, cells: set[tuple[str, Any, str]], who: str = "no profile") -> Iterator[str]:
    seen = {length for task, length, metric in cells if (task, metric) == (key.task, key.metric)}
    if key.length is None and key.multiple is None:
        return
    wanted = f"{key.multiple:g}x" if key.multiple is not None else key.length
    if wanted not in seen:
        offered = ", ".join(f"@{length}" for length in sorted(seen - {None}, key=str))
        yield f"{who} measures {key.task!r} at @{wanted}" + (f"; choose one of {offered}" if offered else "")


@cache
def _cells(suite_name: str) -> set[tuple[str, Any, str]]:
    """What a suite measures under any profile: (task, length, metric), each length in tokens and as a multiple."""
    suite = metrics.load_suite(suite_name)
    cells: set[tuple[str, Any, str]] = set()
    for name in config.profile_names():
        profile = config.load_profile(name)
        if suite_name not in profile.suites or suite.TASK not in profile.tasks:
            continue
        train = profile.task(suite.TASK).length
        for task, length, metric in suite.cells(profile):
            cells.add((task, length, metric))
            if length is not None:
                cells.add((task, f"{length / train:g}x", metric))
    return cells


def check_builds(paper: Paper, profile: config.Profile, doc: Document) -> None:
    """Build every run at the widths of a profile, on no device; note in `doc` the arguments that do not fit."""
    import torch

    from harness import model, runs

    for name, run in paper.runs.items():
        if _kind(name, paper) != "mechanism":
            continue
        where = f"run {name!r} at profile {profile.name!r}"
        try:
            settings = runs.run_settings(run, profile)
        except UserError as error:
            doc.blame(("runs", name, "recipe"), f"{where}: {error}")
            continue
        for task, known in settings.tasks.items():
            try:
                shape = model.shape_of(run.impl, settings.args_at(task), known.model, vocab=256)
                with torch.device("meta"):
                    impls.build(run.impl, shape.width, shape.args)
            except ValueError as error:
                doc.blame(("runs", name, "args"), f"{where}, task {task!r}: {error}")
            except Exception:  # the module's own fault: a failed run says so on its page
                continue
