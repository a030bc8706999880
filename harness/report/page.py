"""What every page is made of, and the parts that several pages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.metrics import parse_key
from harness.report.drawing import Chart, Point
from harness.report.evidence import DONE, Cell, Evidence, Run
from harness.report.numbers import compact, count, decimals, duration, t_quantile
from harness.report.palette import Style
from harness.report.tables import Column, Item, absent, measured
from harness.report.ties import MANY, Ties, within_budget
from harness.studies import OWN

VERDICTS = ("reproduced", "contradicted", "inconclusive", "untested", "blocked")


@dataclass(frozen=True)
class Page:
    """A file of the site: its path, its template, what the template shows, and the words it is found by."""

    path: str
    template: str
    title: str
    context: Mapping[str, Any]
    words: str = ""
    kind: str = "page"
    parts: list[tuple[str, str]] = field(default_factory=list)  # (anchor, text) of what can be found inside
    part: str = "claim"  # what that is

    @property
    def stem(self) -> str:
        """The page's name in a flat folder: `papers-softpick`."""
        return self.path.removesuffix(".html").replace("/", "-")

    @property
    def entries(self) -> list[list[str]]:
        """What the search knows of it: kind, title, address, and words to be found by."""
        inside = [[self.part, text, f"{self.path}#{anchor}", self.title] for anchor, text in self.parts]
        return [[self.kind, self.title, self.path, self.words], *inside]

    @property
    def root(self) -> str:
        """The way back to the top folder: empty, or `../`."""
        return "../" * self.path.count("/")


def verdict_counts(verdicts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many verdicts of each kind, in the fixed order."""
    found = [verdict["verdict"] for verdict in verdicts]
    return {name: found.count(name) for name in VERDICTS}


def cell_of(evidence: Evidence, text: str, length: int | None = None) -> Cell | None:
    """The cell that a metric key means: at its own length, else the given one, else that of training."""
    key = parse_key(text)
    if key.suite in OWN:
        return Cell(key.suite, key.task, key.length or length, key.metric)
    train = evidence.train_length(key.suite)
    wanted = (key.tokens(train) if train else key.length) or length or train
    same = [
        cell for cell in evidence.cells if (cell.suite, cell.task, cell.metric) == (key.suite, key.task, key.metric)
    ]
    return next((cell for cell in same if cell.length == wanted), same[0] if len(same) == 1 else None)


def at(evidence: Evidence, cell: Cell) -> str:
    """A length beside the training length: `@ 1,024 (8×)`; empty where the task has one length, the training length."""
    train = evidence.train_length(cell.suite)
    if cell.length is None or (cell.length == train and len(lengths(evidence, cell)) == 1):
        return ""
    times = f" ({cell.length / train:g}×)" if train and cell.length >= train else ""
    return f"@ {count(cell.length)}{times}"


def lengths(evidence: Evidence, cell: Cell) -> list[int]:
    """Every length at which the cell's task and metric are measured."""
    return sorted(
        other.length
        for other in evidence.cells
        if (other.suite, other.task, other.metric) == (cell.suite, cell.task, cell.metric) and other.length is not None
    )


def cell_name(evidence: Evidence, cell: Cell) -> str:
    """`recall/needle-8 accuracy @ 1,024 (8×)`."""
    parts = (f"{cell.suite}/{cell.task}", heading(evidence, cell)[0], at(evidence, cell))
    return " ".join(part for part in parts if part)


def words(name: str) -> str:
    """`bits per byte` for `bits_per_byte`."""
    return name.replace("_", " ")


def column(evidence: Evidence, cell: Cell, *, shown: bool = True) -> Column:
    """The heading of a measured cell."""
    above = " ".join(part for part in (f"{cell.suite}/{cell.task}", at(evidence, cell)) if part)
    label, told = heading(evidence, cell)
    return Column(label, unit=told, better=evidence.metric(cell).better, numeric=True, group=above, shown=shown)


def unit(name: str) -> str:
    """A unit as it is printed; shares and pure numbers have none."""
    plain = name.removeprefix("share").removeprefix("1").strip()
    return plain if plain in ("", "per doubling") else name


def heading(evidence: Evidence, cell: Cell, run: Run | None = None) -> tuple[str, str]:
    """(name, unit) of a cell's metric; the unit alone where it says it all, as `nats per token` for nats."""
    metric = evidence.metric(cell, run)
    name, spelled = words(cell.metric), metric.unit.replace("/", " per ")
    return (spelled, "") if spelled.startswith(name) else (name, unit(metric.unit))


def score(ties: Ties, run: Run, cell: Cell, places: int, root: str) -> Item:
    """A measurement in a table: mean ± interval with its tie letters, linked to its seeds; or why there is none."""
    evidence, summary = ties.evidence, run.summary(cell)
    if summary is None:
        return absent(evidence.missing(run, cell), f"{root}{run.page}#seeds")
    item = measured(summary, places, seeds=len(evidence.seeds), href=f"{root}{run.page}#{cell.id}")
    letters = ties.letters(cell).get(run.id, "")
    best = "a" in letters and summary.seeds == len(evidence.seeds)
    return replace(item, best=best, letters=letters if len(evidence.runs) <= MANY else "")


def run_item(run: Run, root: str) -> Item:
    """A run's name, linked; marked when it is outside its budget."""
    return Item(run.label, href=f"{root}{run.page}", note="" if within_budget(run) else "outside budget")


def places_of(evidence: Evidence, cell: Cell, runs: Iterable[Run]) -> int:
    """Decimals for a column of means."""
    summaries = [run.summary(cell) for run in runs]
    return decimals(summary.mean for summary in summaries if summary)


def points(runs: Iterable[Run], cells: Mapping[Cell, float]) -> list[Point]:
    """(label, seed, x, y) of every measurement of these cells, whose x is given."""
    return [
        (run.label, seed, x, value.value)
        for run in runs
        for cell, x in cells.items()
        for seed, value in sorted(run.values.get(cell, {}).items())
    ]


def state(run: Run, seeds: Sequence[int], tasks: Iterable[str]) -> str:
    """How training went, over tasks and seeds: `ok`, or `2 of 6 failed`."""
    records = [run.records.get((task, seed)) for task in tasks for seed in seeds]
    if all(record and record["status"] == DONE for record in records):
        return DONE
    kinds = [record["status"] if record else "not run" for record in records]
    bad = [kind for kind in dict.fromkeys(kinds) if kind != DONE]
    return ", ".join(f"{kinds.count(kind)} of {len(kinds)} {kind}" for kind in bad)


def seconds(run: Run) -> float | None:
    """Training time of all tasks, averaged over seeds; None when nothing was trained."""
    by_task: dict[str, list[float]] = {}
    for (task, _), record in run.records.items():
        if record["status"] == DONE:
            by_task.setdefault(task, []).append(record["seconds"])
    return sum(sum(times) / len(times) for times in by_task.values()) if by_task else None


def largest(run: Run, key: str) -> Item:
    """A cost of the run's largest model: `parameters`, `flops_per_token`, `state_bytes`, `tokens`."""
    found = [record[key] for record in run.records.values() if record.get(key) is not None]
    return Item(compact(max(found)), max(found)) if found else Item("not known", why="no training recorded it")


def time_item(value: float | None) -> Item:
    """A duration as a table cell."""
    return Item(duration(value), value) if value is not None else Item("not run", why="nothing was trained")


def legend(
    evidence: Evidence, runs: Iterable[Run] | None = None, charts: Sequence[Chart] | None = None
) -> list[tuple[Run, Style]]:
    """Each run with how it is drawn: all runs by default; where charts are given, those that they show."""
    seen = {name for chart in charts or () for name in chart.series}
    given = evidence.runs.values() if runs is None else runs
    return [(run, evidence.styles[run.label]) for run in given if charts is None or run.label in seen]


def t_table(largest: int = 60) -> list[float]:
    """Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom."""
    return [round(t_quantile(df), 4) for df in range(1, largest + 1)]
