"""What a study or a method measures itself, as its module says: the counterpart of a suite's `METRICS` and `cells`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import impls
from harness import metrics, tasks
from harness.files import dump_json
from harness.metrics import Metric
from harness.suites import Cell

STUDY = "study"  # in a metric key, in the place of a suite; and in a folder's name, in the place of a training task
METHOD = "method"  # in a metric key likewise; its task is the training task of the changed model
OWN = (STUDY, METHOD)


@dataclass(frozen=True)
class Sheet:
    """Everything that one run measures itself, in order; of a module that cannot say, nothing."""

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()  # of a method on each of the tasks
    axes: Mapping[str, str] = field(default_factory=dict)  # by task, what `length` counts
    files: tuple[str, ...] = ()  # that a study reads


def sheet(impl: str, args: Mapping[str, Any]) -> Sheet:
    """The sheet of a study or a method with these arguments. Whatever its module raises is passed on."""
    return _sheet(impl, dump_json(args))


def told(impl: str, args: Mapping[str, Any]) -> Sheet:
    """The same, but an empty sheet where the module raises: its runs are failed, and say why."""
    try:
        return sheet(impl, args)
    except Exception:
        return Sheet()


def timed(run: Mapping[str, Any], place: str) -> bool:
    """Whether a clock measures what a key names of a run, of which `impl` and `args` are read."""
    key = metrics.parse_key(place)
    if key.suite not in OWN:
        return metrics.timed(place)
    known = told(run["impl"], run.get("args", {})).metrics.get(key.metric)
    return known is not None and known.timed


@lru_cache
def _sheet(impl: str, args: str) -> Sheet:
    given = json.loads(args)
    if impls.kind(impl) == METHOD:
        metrics = impls.build_method(impl, given).METRICS
        return Sheet(metrics, tuple((task, None, metric) for task in tasks.names() for metric in metrics))
    study = impls.build_study(impl, given)
    return Sheet(study.METRICS, tuple(study.cells()), study.AXES, tuple(study.files()))
