"""Reading the results into one `Evidence`."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from harness import history
from harness.config import Profile
from harness.errors import UserError
from harness.files import read_json, verify
from harness.metrics import load_suite
from harness.plan import Plan
from harness.proofs.record import read as read_proofs
from harness.report import items
from harness.report.evidence import Cell, Evidence, Run, Value
from harness.runs import RunSettings, run_ids
from harness.spec import Paper
from harness.studies import OWN, STUDY, Sheet, told
from harness.tasks import REFERENCE

BUILDS = 20  # shown at most
ROWS = 20_000  # of measurements, read at a time


def load(plan: Plan, results: Path) -> Evidence:
    """Read `results`. Raises UserError that names the missing file and the step that makes it."""
    for name in ("runs.json", "measurements.parquet", "items.parquet"):
        verify(results / name, "python -m harness.aggregate")
    records = _read(results / "runs.json", "harness.aggregate", _dense)
    verdicts = _read(results / "verdicts.json", "harness.judge")
    names = {slug: run_ids(paper, plan.profile) for slug, paper in plan.papers.items()}
    runs = _runs(plan, names, records)
    _fill(runs, results / "measurements.parquet")
    suites = {suite: load_suite(suite) for suite in plan.config.suites}
    return Evidence(
        config=plan.config,
        profile=plan.profile,
        papers=plan.papers,
        runs=runs,
        names=names,
        verdicts=_by_paper(plan.papers, verdicts),
        cells=_cells(suites, plan.profile, runs.values()),
        metrics={(suite, name): metric for suite, mod in suites.items() for name, metric in mod.METRICS.items()},
        tasks=plan.tasks,
        manifest=_optional(results / "data" / plan.profile.data.folder.name / "manifest.json", {}),
        proofs=read_proofs(proofs) if (proofs := results / "proofs.json").exists() else [],
        results=results,
        history=history.latest(BUILDS, results / "history"),
        items=items.read(results / "items.parquet"),
    )


def _read(path: Path, step: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    try:
        return json.loads(path.read_bytes(), object_hook=hook)
    except FileNotFoundError:
        raise UserError(f"{path} is not there; make it with python -m {step}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON ({error.msg}); make it again with python -m {step}") from None


def _dense(record: dict[str, Any]) -> dict[str, Any]:
    """The same with its curve as numbers in a row, before the next is read: as lists all curves fill the memory."""
    if "run" in record:
        record["curve"] = array("d", [number for point in record.get("curve") or [] for number in point])
    return record


def _optional(path: Path, default: Any) -> Any:
    return read_json(path) if path.exists() else default


def _runs(plan: Plan, names: Mapping[str, Mapping[str, str]], records: Iterable[dict[str, Any]]) -> dict[str, Run]:
    uses: dict[str, list[tuple[str, str]]] = {}
    for slug, ids in names.items():
        for name, id in ids.items():
            uses.setdefault(id, []).append((slug, name))
    labels, years = _labels(plan.runs), _years(plan.papers.values())
    order = sorted(
        plan.runs.values(),
        key=lambda s: (s.kind == STUDY, s.impl != REFERENCE, years.get(s.impl, 9999), labels[s.id]),
    )
    runs = {
        s.id: Run(s.id, s.impl, s.args, s.recipe, labels[s.id], uses.get(s.id, []), s.kind, sheet_of(s)) for s in order
    }
    for record in records:
        if record["run"] in runs:
            runs[record["run"]].records[record["task"], record["seed"]] = record
    return runs


def sheet_of(run: RunSettings) -> Sheet:
    """What a study or method measures itself; nothing for others."""
    return told(run.impl, run.args) if run.kind in OWN else Sheet()


def _years(papers: Iterable[Paper]) -> dict[str, int]:
    """The year of the earliest paper that has each mechanism."""
    years: dict[str, int] = {}
    for paper in papers:
        for run in paper.runs.values():
            years[run.impl] = min(paper.year, years.get(run.impl, paper.year))
    return years


def _labels(settings: Mapping[str, Any]) -> dict[str, str]:
    """The mechanism's name where it has one run; else with the arguments and rates that tell its runs apart."""
    by_impl: dict[str, list[Any]] = {}
    for run in settings.values():
        by_impl.setdefault(run.impl, []).append(run)
    labels: dict[str, str] = {}
    for impl, group in by_impl.items():
        flat = {
            run.id: {**run.args, **{f"{t}.{k}": v for t, r in run.recipe.items() for k, v in r.items()}}
            for run in group
        }
        keys = sorted({key for given in flat.values() for key in given})
        telling = [key for key in keys if len({repr(given.get(key)) for given in flat.values()}) > 1]
        for id, given in flat.items():
            told = ", ".join(f"{key}={given[key]}" for key in telling if key in given)
            labels[id] = impl if not told else f"{impl} ({told if len(told) <= 40 else id[-8:]})"
    twice = {label for label in labels.values() if list(labels.values()).count(label) > 1}
    return {id: f"{label} {id[-8:]}" if label in twice else label for id, label in labels.items()}


def _fill(runs: Mapping[str, Run], path: Path) -> None:
    if not path.exists():
        raise UserError(f"{path} is not there; make it with python -m harness.aggregate")
    names = ("run", "suite", "task", "length", "metric", "seed", "value", "n", "stderr")
    cells: dict[tuple[Any, ...], Cell] = {}  # one object for all runs
    for part in pq.ParquetFile(path).iter_batches(ROWS, columns=list(names)):
        columns = part.to_pydict()
        for id, suite, task, length, metric, seed, number, n, stderr in zip(*(columns[k] for k in names), strict=True):
            run, number, length, n = runs.get(id), _finite(number), _finite(length), _finite(n)
            if run is None or number is None:
                continue
            new = Cell(suite, task, None if length is None else int(length), metric)
            cell = cells.setdefault((suite, task, length, metric), new)
            value = Value(float(number), None if n is None else int(n), _finite(stderr))
            run.values.setdefault(cell, {})[int(seed)] = value


def _finite(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _cells(suites: Mapping[str, Any], profile: Profile, runs: Iterable[Run]) -> list[Cell]:
    """What the suites plan to measure, then whatever else was measured."""
    planned = [Cell(suite, *cell) for suite, module in suites.items() for cell in module.cells(profile)]
    found = {cell for run in runs for cell in run.values if cell.suite in suites} - set(planned)
    return list(dict.fromkeys([*planned, *sorted(found, key=lambda cell: (*cell.place, cell.metric))]))


def _by_paper(papers: Mapping[str, Paper], verdicts: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found = {(verdict["paper"], verdict["claim"]): verdict for verdict in verdicts}
    return {
        slug: [found.get((slug, claim.id)) or _not_judged(slug, claim) for claim in paper.claims]
        for slug, paper in papers.items()
    }


def _not_judged(slug: str, claim: Any) -> dict[str, Any]:
    reason = "no verdict was recorded; run python -m harness.judge"
    return {"paper": slug, "claim": claim.id, "kind": claim.kind, "verdict": "blocked", "reason": reason}
