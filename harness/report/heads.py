"""Single heads as heat maps: for each measure of heads one small grid a run, layers down and heads across."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.evidence import Cell, Evidence, Run
from harness.report.numbers import decimals, show
from harness.report.page import unit, words
from harness.report.tables import Item, absent, tinted

PLACE = re.compile(r"(?:layer(\d+)-)?head(\d+)")  # a model of one layer need not say so
PART = re.compile(r"layer\d+|" + PLACE.pattern)  # of a model
RATE = "sink_rate"  # of the whole model, told beside its grid
WIDE = 5  # characters of a number at most, since grids are narrow


@dataclass(frozen=True)
class Grid:
    """One run: its rate of sinks in words, and a row of cells a layer."""

    run: Run
    rate: str
    layers: list[tuple[int, list[Item]]]


@dataclass(frozen=True)
class Panel:
    """One measure of heads over all runs; the tint goes from `low` to `top`."""

    title: str
    summary: str
    heads: list[int]
    low: str
    top: str
    grids: list[Grid]


def place(cell: Cell) -> tuple[int, int] | None:
    """(layer, head) of a cell that is of one head."""
    found = PLACE.fullmatch(cell.task)
    return (int(found[1] or 1), int(found[2])) if found else None


def panels(evidence: Evidence, suite: str, runs: Sequence[Run]) -> list[Panel]:
    """A panel for each metric that the suite has of single heads; runs without heads are left out."""
    cells = {cell: at for cell in evidence.cells if cell.suite == suite and (at := place(cell))}
    return [
        panel(evidence, metric, {cell: at for cell, at in cells.items() if cell.metric == metric}, runs)
        for metric in dict.fromkeys(cell.metric for cell in cells)
    ]


def panel(evidence: Evidence, metric: str, cells: dict[Cell, tuple[int, int]], runs: Sequence[Run]) -> Panel:
    shown = [run for run in runs if any(run.values.get(cell) for cell in cells)]
    means = [summary.mean for run in shown for cell in cells if (summary := run.summary(cell))]
    low, top = min(means, default=0.0), max(means, default=0.0)
    low = low if low > top / 2 else 0.0  # from 0 where that still tells them apart
    any_cell = next(iter(cells))
    told = unit(evidence.metric(any_cell).unit)
    grids = [Grid(run, rate(any_cell.suite, run), layers(evidence, run, cells, (low, top))) for run in shown]
    title = f"{words(metric)[0].upper()}{words(metric)[1:]}" + (f", {told}" if told and told not in metric else "")
    heads = sorted({head for _, head in cells.values()})
    least, most = (show(end, places_of(means)) for end in (low, top))
    return Panel(title, evidence.metric(any_cell).summary, heads, least, most, grids)


def layers(
    evidence: Evidence, run: Run, cells: dict[Cell, tuple[int, int]], ends: tuple[float, float]
) -> list[tuple[int, list[Item]]]:
    """(layer, its heads from left to right)."""
    rows: dict[int, list[Item]] = {}
    for cell, (layer, _) in sorted(cells.items(), key=lambda pair: pair[1]):
        rows.setdefault(layer, []).append(item(evidence, run, cell, *ends))
    return list(rows.items())


def item(evidence: Evidence, run: Run, cell: Cell, low: float, top: float) -> Item:
    """The mean over seeds, linked to them; or why there is none."""
    summary = run.summary(cell)
    if summary is None:
        return absent(evidence.missing(run, cell), f"../{run.page}#seeds")
    shown = Item(show(summary.mean, places_of([summary.mean])), summary.mean, href=f"../{run.page}#{cell.id}")
    return tinted(shown, (summary.mean - low) / (top - low)) if top > low else shown


def rate(suite: str, run: Run) -> str:
    """The share of sinks among all heads of the run's model, as a mean over seeds; empty where it was not measured."""
    rates = (cell for cell in run.values if (cell.suite, cell.metric) == (suite, RATE))
    cell = next((cell for cell in rates if not PART.fullmatch(cell.task)), None)
    summary = run.summary(cell) if cell else None
    return show(summary.mean, places_of([summary.mean])) if summary else ""


def places_of(values: Sequence[float]) -> int:
    """Decimals that leave a number below 1,000 with `WIDE` characters."""
    whole = len(str(int(max(map(abs, values), default=0.0))))
    return max(0, min(decimals(values), WIDE - 1 - whole))
