"""Everything the site speaks of, read once: papers, runs, measurements, verdicts, data, and why cells are missing."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from harness.config import Config, Profile
from harness.errors import UserError
from harness.files import read_json
from harness.metrics import Metric, load_suite
from harness.plan import Plan
from harness.report.numbers import Summary, summarise
from harness.report.palette import DASHES, SHAPES, Style, styles
from harness.runs import run_ids
from harness.spec import Paper

DONE = "ok"


@dataclass(frozen=True)
class Cell:
    """One thing a suite measures; `length` in tokens, None where the suite has one length only."""

    suite: str
    task: str
    length: int | None
    metric: str

    @property
    def id(self) -> str:
        """The cell's name in addresses: `loss.test.256.bits_per_byte`."""
        return f"{self.suite}.{self.task}.{self.length or 0}.{self.metric}"

    @property
    def place(self) -> tuple[str, str, int]:
        """What two metrics of one measurement share."""
        return self.suite, self.task, self.length or 0


class Value(NamedTuple):
    """One measurement: a number over n items, with the standard error the suite gives, or None."""

    value: float
    n: int | None
    stderr: float | None


@dataclass(frozen=True)
class Run:
    """One mechanism with its arguments, under the site-wide name `label`."""

    id: str
    impl: str
    args: dict[str, Any]
    recipe: dict[str, Any]
    label: str
    uses: list[tuple[str, str]]  # (paper, the paper's name for it)
    records: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)  # by training task and seed
    values: dict[Cell, dict[int, Value]] = field(default_factory=dict)

    @property
    def page(self) -> str:
        return f"runs/{self.id}.html"

    def summary(self, cell: Cell) -> Summary | None:
        """The cell over seeds, or None when no seed has it."""
        return summarise({seed: value.value for seed, value in self.values.get(cell, {}).items()})


@dataclass(frozen=True)
class Evidence:
    """All inputs of the site. `cells` holds what each suite should measure under the profile, in its order."""

    config: Config
    profile: Profile
    papers: Mapping[str, Paper]
    runs: Mapping[str, Run]
    names: Mapping[str, Mapping[str, str]]  # paper -> its name of a run -> run id
    verdicts: Mapping[str, list[dict[str, Any]]]  # paper -> its verdicts in the order of its claims
    cells: list[Cell]
    metrics: Mapping[tuple[str, str], Metric]
    tasks: Mapping[str, str]  # suite -> the training task whose model it measures
    manifest: dict[str, Any]
    proofs: list[dict[str, Any]]
    results: Path

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.config.seeds

    @cached_property
    def styles(self) -> dict[str, Style]:
        """How each run is drawn, by its label: the mechanism's colour, and further dashes for its further runs."""
        first = {run.impl: (self.year(run), run.impl) for run in self.runs.values()}
        by_impl = styles(sorted(first, key=lambda impl: first[impl]))
        drawn: dict[str, Style] = {}
        seen: dict[str, int] = {}
        for run in self.runs.values():
            style, k = by_impl[run.impl], seen.setdefault(run.impl, 0)
            shape = SHAPES[(SHAPES.index(style.shape) + k) % len(SHAPES)]
            dash = DASHES[(DASHES.index(style.dash) + k) % len(DASHES)]
            drawn[run.label] = Style(style.index, style.colour, shape, dash)
            seen[run.impl] += 1
        return drawn

    def year(self, run: Run) -> int:
        """The year of the earliest paper that uses the mechanism."""
        impl_papers = (p for p in self.papers.values() if any(other.impl == run.impl for other in p.runs.values()))
        return min((paper.year for paper in impl_papers), default=9999)

    def metric(self, cell: Cell) -> Metric:
        return self.metrics.get((cell.suite, cell.metric)) or Metric(unit="", better="none")

    def train_length(self, suite: str) -> int | None:
        """Tokens in a training row of the models that a suite measures."""
        settings = self.profile.tasks.get(self.tasks.get(suite, ""))
        return settings.length if settings is not None else None

    def why_missing(self, run: Run, cell: Cell, seed: int) -> str:
        """The reason for an absent measurement, in a few words."""
        record = run.records.get((self.tasks.get(cell.suite, ""), seed))
        if record is None:
            return "not run yet"
        if record["status"] != DONE:
            return trouble(record)
        suite = record.get("suites", {}).get(cell.suite)
        if suite is None:
            return "not evaluated yet"
        return "the suite gave no finite number" if suite["status"] == DONE else trouble(suite)

    def missing(self, run: Run, cell: Cell) -> dict[int, str]:
        """Reason by seed for every seed without this measurement."""
        have = run.values.get(cell, {})
        return {seed: self.why_missing(run, cell, seed) for seed in self.seeds if seed not in have}


def trouble(record: Mapping[str, Any]) -> str:
    """`diverged: loss is not finite at step 310`."""
    reason = str(record.get("reason") or "no reason was recorded")
    return reason if reason.startswith(record["status"]) else f"{record['status']}: {reason}"


def load(plan: Plan, results: Path) -> Evidence:
    """Read `results`. Raises UserError that names the missing file and the step that makes it."""
    records = _read(results / "runs.json", "harness.aggregate")
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
        manifest=_optional(results / "data" / "manifest.json", {}),
        proofs=_optional(results / "proofs.json", []),
        results=results,
    )


def _read(path: Path, step: str) -> Any:
    try:
        return read_json(path)
    except FileNotFoundError:
        raise UserError(f"{path} is not there; make it with python -m {step}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON ({error.msg}); make it again with python -m {step}") from None


def _optional(path: Path, default: Any) -> Any:
    return read_json(path) if path.exists() else default


def _runs(plan: Plan, names: Mapping[str, Mapping[str, str]], records: Iterable[dict[str, Any]]) -> dict[str, Run]:
    uses: dict[str, list[tuple[str, str]]] = {}
    for slug, ids in names.items():
        for name, id in ids.items():
            uses.setdefault(id, []).append((slug, name))
    labels = _labels(plan.runs)
    runs = {id: Run(id, s.impl, s.args, s.recipe, labels[id], uses.get(id, [])) for id, s in plan.runs.items()}
    for record in records:
        if record["run"] in runs:
            runs[record["run"]].records[record["task"], record["seed"]] = record
    return runs


def _labels(settings: Mapping[str, Any]) -> dict[str, str]:
    """The mechanism's name where it has one run; else with the arguments and rates that tell its runs apart."""
    by_impl: dict[str, list[Any]] = {}
    for run in settings.values():
        by_impl.setdefault(run.impl, []).append(run)
    labels: dict[str, str] = {}
    for impl, group in by_impl.items():
        flat = {run.id: {**run.args, **{f"{t}.{k}": v for t, r in run.recipe.items() for k, v in r.items()}} for run in group}
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
    table = pq.read_table(path)
    for row in table.to_pylist():
        run = runs.get(row["run"])
        if run is None or row["value"] is None or not math.isfinite(row["value"]):
            continue
        length, n, stderr = (_finite(row[key]) for key in ("length", "n", "stderr"))
        cell = Cell(row["suite"], row["task"], None if length is None else int(length), row["metric"])
        value = Value(float(row["value"]), None if n is None else int(n), stderr)
        run.values.setdefault(cell, {})[int(row["seed"])] = value


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


def docstring(impl: str, folder: Path = Path("impls")) -> str:
    """The module docstring of a mechanism, read without importing it; empty when there is none."""
    path = folder / f"{impl}.py"
    try:
        return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except (OSError, SyntaxError, ValueError):
        return ""
