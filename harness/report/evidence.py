"""Everything the site speaks of, read once: papers, runs, measurements, verdicts, data, and why cells are missing."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from harness import records, suites
from harness.config import Config, Profile
from harness.metrics import Metric
from harness.proofs.record import Proof
from harness.report.numbers import Summary, summarise
from harness.report.palette import DASHES, SHAPES, Style, styles
from harness.spec import Paper
from harness.studies import METHOD, STUDY, Sheet

DONE = "ok"
SKIPPED = "skipped"
FLOORS = {"echo", "guess"}  # metrics of answerers without a model: the same for every run


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


class Kept(NamedTuple):
    """The answers of one run and suite that are shown: a seed's."""

    seed: int
    path: Path


@dataclass(frozen=True)
class Run:
    """One mechanism, study or method with its arguments, under the site-wide name `label`."""

    id: str
    impl: str
    args: dict[str, Any]
    recipe: dict[str, Any]
    label: str
    uses: list[tuple[str, str]]  # (paper, the paper's name for it)
    kind: str = "mechanism"  # or study, or method
    sheet: Sheet = field(default_factory=Sheet)  # what a study or method measures itself
    records: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)  # by training task and seed
    values: dict[Cell, dict[int, Value]] = field(default_factory=dict)

    @property
    def page(self) -> str:
        return f"runs/{self.id}.html"

    @property
    def hf(self) -> str | None:
        """The id or folder of a model of the Hub."""
        return next((str(record["hf"]) for record in self.records.values() if record.get("hf")), None)

    @property
    def base(self) -> str | None:
        """The run whose models a method changes."""
        return next((str(record["base"]) for record in self.records.values() if record.get("base")), None)

    @property
    def own(self) -> list[Cell]:
        """What a study measures, or a method of the models that it has changed."""
        tasks = {task for (task, _), record in self.records.items() if record["status"] != SKIPPED}
        return [Cell(self.kind, *cell) for cell in self.sheet.cells if self.kind == STUDY or cell[0] in tasks]

    def summary(self, cell: Cell) -> Summary | None:
        """The cell over seeds, or None when no seed has it."""
        return summarise({seed: value.value for seed, value in self.values.get(cell, {}).items()})


@dataclass(frozen=True)
class Evidence:
    """All inputs of the site.

    `runs` stand with the reference first, then by the year of the earliest paper that has the mechanism, then by name;
    `cells` holds what each suite should measure under the profile, in its order.
    """

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
    proofs: list[Proof]
    results: Path
    history: list[dict[str, Any]] = field(default_factory=list)  # records of the last builds, oldest first
    items: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # run -> cell's id -> packed scores

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.config.seeds

    @cached_property
    def styles(self) -> dict[str, Style]:
        """How each run is drawn, by its label: the mechanism's colour, and further dashes for its further runs.

        Runs stand in the order of their mechanisms' years, so a new mechanism changes no other's colour.
        """
        # a study's runs are compared with each other, so that each has its own colour
        drawn_as = {run.id: run.id if run.kind == STUDY else run.impl for run in self.runs.values()}
        by_impl = styles(list(dict.fromkeys(drawn_as.values())))
        drawn: dict[str, Style] = {}
        seen: dict[str, int] = {}
        for run in self.runs.values():
            key = drawn_as[run.id]
            style, k = by_impl[key], seen.setdefault(key, 0)
            shape = SHAPES[(SHAPES.index(style.shape) + k) % len(SHAPES)]
            dash = DASHES[(DASHES.index(style.dash) + k) % len(DASHES)]
            drawn[run.label] = Style(style.index, style.colour, shape, dash)
            seen[key] += 1
        return drawn

    @cached_property
    def written(self) -> dict[str, dict[str, Kept]]:
        """By run and suite, the answers that the first seed with any kept; only runs that have some."""
        found: dict[str, dict[str, Kept]] = {}
        for run in self.runs:
            for suite, task in self.tasks.items():
                folders = {seed: records.folder(run, task, seed, self.results / "runs") for seed in self.seeds}
                kept = (Kept(seed, folder / f"{suite}.raw.json") for seed, folder in folders.items())
                if first := next((each for each in kept if each.path.is_file()), None):
                    found.setdefault(run, {})[suite] = first
        return found

    @cached_property
    def models(self) -> dict[str, Run]:
        """The runs that suites measure: all but studies."""
        return {id: run for id, run in self.runs.items() if run.kind != STUDY}

    @cached_property
    def floors(self) -> set[tuple[str, str]]:
        """(suite, metric) of what no run decides, so that it is told once."""
        return {(suite, metric) for suite, metric in self.metrics if metric in FLOORS}

    def metric(self, cell: Cell, run: Run | None = None) -> Metric:
        """What a number is; the run is needed where a study or method measures it itself."""
        if run is not None and cell.suite == run.kind:
            return run.sheet.metrics.get(cell.metric) or Metric(unit="", better="none")
        return self.metrics.get((cell.suite, cell.metric)) or Metric(unit="", better="none")

    def train_length(self, suite: str) -> int | None:
        """Tokens in a training row of the models that a suite measures."""
        settings = self.profile.tasks.get(self.tasks.get(suite, ""))
        return settings.length if settings is not None else None

    def why_missing(self, run: Run, cell: Cell, seed: int) -> str:
        """The reason for an absent measurement, in a few words."""
        record = run.records.get((self.task_of(cell), seed))
        if record is None:
            return "not run yet"
        if record["status"] != DONE:
            return trouble(record)
        suite = record.get("suites", {}).get(cell.suite)
        if suite is None or suite["status"] == "missing":
            return "not evaluated yet"
        gap = suite.get("gaps", {}).get(suites.name((cell.task, cell.length, cell.metric)))
        return gap or ("the suite gave no finite number" if suite["status"] == DONE else trouble(suite))

    def task_of(self, cell: Cell) -> str:
        """The training task whose model a cell is of; a study's is its own name."""
        return {STUDY: STUDY, METHOD: cell.task}.get(cell.suite) or self.tasks.get(cell.suite, "")

    def skipped(self, run: Run, task: str) -> bool:
        """Whether the run was left untrained on a task because no claim measures it there."""
        return any(run.records.get((task, seed), {}).get("status") == SKIPPED for seed in self.seeds)

    def missing(self, run: Run, cell: Cell) -> dict[int, str]:
        """Reason by seed for every seed without this measurement."""
        have = run.values.get(cell, {})
        seeds = self.seeds[:1] if run.impl.startswith("hf_") else self.seeds  # a model of the Hub has one record
        return {seed: self.why_missing(run, cell, seed) for seed in seeds if seed not in have}


def trouble(record: Mapping[str, Any]) -> str:
    """`diverged: loss is not finite at step 310`; `not run yet` for a record of what is not there."""
    if record["status"] == "missing":
        return "not run yet"
    reason = str(record.get("reason") or "no reason was recorded")
    return reason if reason.startswith(record["status"]) else f"{record['status']}: {reason}"


READING = "READING"  # the first word of a mechanism's module where nobody published its equations


def reading(impl: str, folder: Path = Path("impls")) -> str:
    """What the module of a mechanism says of its reading, in one paragraph; empty where the equations are a paper's."""
    first, _, _ = docstring(impl, folder).partition("\n\n")
    tag, _, rest = " ".join(first.split()).partition(", ")
    return rest if tag == READING else ""


@cache
def docstring(impl: str, folder: Path = Path("impls")) -> str:
    """The module docstring of a mechanism, read without importing it; empty when there is none."""
    path = folder / f"{impl}.py"
    try:
        return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except (OSError, SyntaxError, ValueError):
        return ""
