"""The page of one suite: every cell of every run as a heat map, and the same as curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.metrics import load_suite
from harness.report import charts, heads
from harness.report.drawing import Point
from harness.report.evidence import Cell, Evidence, Run
from harness.report.page import (
    Page,
    column,
    legend,
    places_of,
    points,
    run_item,
    score,
    unit,
    words,
)
from harness.report.palette import MUTED, Style
from harness.report.tables import ARROWS, Column, Item, Row, Table, tinted
from harness.report.ties import SHARED_LETTERS, Ties

MANY = 12  # charts of one page
LINES = 16  # runs in one chart; beyond that one run stands for each mechanism
CELLS = 9_000  # of one heat map; beyond that it holds the best runs only
SHARE = "share"  # the unit of what lies between 0 and 1


def pages(evidence: Evidence) -> Iterator[Page]:
    ties, runs = Ties(evidence), list(evidence.models.values())
    for name in evidence.config.suites:
        cells = [cell for cell in evidence.cells if cell.suite == name]
        metrics = list(dict.fromkeys(cell.metric for cell in cells))
        asked = [run for run in runs if not evidence.skipped(run, evidence.tasks[name])]
        context = {
            "name": name,
            "task": evidence.tasks[name],
            "text": (load_suite(name).__doc__ or "").strip(),
            "metrics": [
                (words(key), evidence.metrics[name, key]) for key in metrics if (name, key) in evidence.metrics
            ],
            "tables": [heat_map(ties, name, metric, asked) for metric in metrics],
            "left_out": len(runs) - len(asked),
            "floors": [words(metric) for metric in metrics if (name, metric) in evidence.floors],
            "heads": heads.panels(evidence, name, spokesmen(runs)),
            "charts": (drawn := pictures(evidence, name, runs)),
            "legend": legend(evidence, spokesmen(runs), drawn),
            "some": len(spokesmen(runs)) < len(runs),
            "train_length": evidence.train_length(name),
            "seeds": evidence.seeds,
        }
        text = " ".join(dict.fromkeys(f"{cell.task} {words(cell.metric)}" for cell in cells))
        yield Page(f"suites/{name}.html", "suite.html.j2", f"Suite {name}", context, text, "suite")


def heat_map(ties: Ties, suite: str, metric: str, runs: Sequence[Run]) -> Table:
    """Runs against task and length; the tint goes from the worst mean of the table to its best."""
    evidence = ties.evidence
    cells = [cell for cell in evidence.cells if (cell.suite, cell.metric) == (suite, metric)]
    floor = (suite, metric) in evidence.floors
    if floor:
        runs = [max(runs, key=lambda run: sum(len(run.values.get(cell, {})) for cell in cells))]
    everyone, runs = len(runs), best(ties, cells[0], runs, CELLS // len(cells))
    better = evidence.metric(cells[0]).better
    sign = -1 if better == "lower" else 1
    means = [summary.mean for run in runs for cell in cells if (summary := run.summary(cell))]
    low, high = (min(means), max(means)) if means else (0.0, 0.0)
    places = {cell: places_of(evidence, cell, runs) for cell in cells}
    rows = []
    for run in runs:
        items = [Item("every run") if floor else run_item(run, "../")]
        for cell in cells:
            item = score(ties, run, cell, places[cell], "../")
            item = replace(item, href="") if floor else item
            if item.value is not None and high > low:
                place = (item.value - low) / (high - low)
                item = tinted(item, place if sign > 0 else 1 - place)
            items.append(item)
        rows.append(Row(tuple(items)))
    n = {value.n for run in runs for cell in cells for value in run.values.get(cell, {}).values() if value.n}
    items = f"; n = {min(n):,}" + (f" to {max(n):,}" if len(n) > 1 else "") + " a seed" if n else ""
    caption = f"{words(metric)}: mean over seeds ± half of its 95 % interval{items}. {SHARED_LETTERS}"
    if len(runs) < everyone:
        caption += f". The best {len(runs):,} of {everyone:,} runs by the first column; measurements.csv has all"
    columns = (Column("Mechanism"), *(column(evidence, cell, shown=heads.place(cell) is None) for cell in cells))
    return Table(f"heat-{metric}", caption, columns, tuple(rows), style="dense")


def best(ties: Ties, cell: Cell, runs: Sequence[Run], most: int) -> Sequence[Run]:
    """All runs in their order where they are few enough, else the best ones of a cell in its order."""
    if len(runs) <= most:
        return runs
    place = {ranked.run: k for k, ranked in enumerate(ties.ranking(cell))}
    return sorted(runs, key=lambda run: place.get(run.id, len(place)))[:most]


def spokesmen(runs: Sequence[Run]) -> Sequence[Run]:
    """All runs where they fit in one chart, else for each mechanism the run that most papers ask for."""
    if len(runs) <= LINES:
        return runs
    chosen: dict[str, Run] = {}
    for run in runs:
        if run.impl not in chosen or len(run.uses) > len(chosen[run.impl].uses):
            chosen[run.impl] = run
    return list(chosen.values())


def pictures(evidence: Evidence, suite: str, runs: Sequence[Run], *, brief: bool = False) -> list[charts.Chart]:
    """A chart for each family of tasks that differ by a number, and one for each task measured at several lengths.

    In brief: at most four, and none by position.
    """
    runs = spokesmen(runs)
    cells = [
        cell
        for cell in evidence.cells
        if cell.suite == suite
        and not (brief and cell.task == "position")
        and (suite, cell.metric) not in evidence.floors
    ]
    found = [by_number(evidence, runs, family, group) for family, group in families(cells).items()]
    found += [by_length(evidence, runs, group) for group in long(cells).values()]
    drawn = [chart for chart in found if chart is not None]
    return drawn[: 4 if brief else MANY]


def families(cells: Sequence[Cell]) -> dict[str, dict[Cell, float]]:
    """Cells of tasks such as mqar-4, mqar-8, … with their numbers, by family and metric; one length each."""
    found: dict[str, dict[Cell, float]] = {}
    for cell in cells:
        name, _, tail = cell.task.rpartition("-")
        if name and tail.isdigit() and len([c for c in cells if (c.task, c.metric) == (cell.task, cell.metric)]) == 1:
            found.setdefault(f"{name} {cell.metric}", {})[cell] = float(tail)
    return {key: group for key, group in found.items() if len(group) > 1}


def long(cells: Sequence[Cell]) -> dict[str, dict[Cell, float]]:
    """Cells of one task and metric at several lengths, with their lengths."""
    found: dict[str, dict[Cell, float]] = {}
    for cell in cells:
        if cell.length is not None:
            found.setdefault(f"{cell.task} {cell.metric}", {})[cell] = float(cell.length)
    return {key: group for key, group in found.items() if len(group) > 1}


def by_number(evidence: Evidence, runs: Sequence[Run], family: str, cells: dict[Cell, float]) -> charts.Chart | None:
    name, _, metric = family.rpartition(" ")
    x = "pairs in the context" if name == "mqar" else f"number in {name}"
    return _profile(evidence, runs, cells, f"{name}: {words(metric)} by {x}", x)


def by_length(evidence: Evidence, runs: Sequence[Run], cells: dict[Cell, float]) -> charts.Chart | None:
    cell = next(iter(cells))
    by = "position" if cell.task == "position" else "length"
    name = words(cell.metric)
    title = f"{name[0].upper()}{name[1:]} by {by}" if cell.task == by else f"{cell.task}: {name} by {by}"
    return _profile(evidence, runs, cells, title, f"{by}, tokens")


def beneath(evidence: Evidence, cells: dict[Cell, float]) -> list[Point]:
    """The floors of a score, which no run decides, at the same tasks and lengths."""
    cell = next(iter(cells))
    if evidence.metric(cell).better == "none":
        return []
    found: dict[tuple[str, int, float], float] = {}
    for metric in (metric for suite, metric in sorted(evidence.floors) if suite == cell.suite):
        for at, x in cells.items():
            for run in evidence.models.values():
                for seed, value in run.values.get(replace(at, metric=metric), {}).items():
                    found[words(metric), seed, x] = value.value
    return [(name, seed, x, y) for (name, seed, x), y in sorted(found.items())]


def _profile(
    evidence: Evidence, runs: Sequence[Run], cells: dict[Cell, float], title: str, x: str
) -> charts.Chart | None:
    shown = points(runs, cells)
    if not shown:
        return None
    cell = next(iter(cells))
    floors = beneath(evidence, cells)
    shown += floors
    metric = evidence.metric(cell)
    y = " ".join(part for part in (unit(metric.unit) or words(cell.metric), ARROWS.get(metric.better, "")) if part)
    tokens = x.endswith("tokens")
    return charts.profile(
        f"{cell.suite}-{cell.task}-{cell.metric}".replace("_", "-") + ("" if tokens else "-family"),
        title,
        shown,
        {**evidence.styles, **{point[0]: Style(0, MUTED, "circle", (1, 3)) for point in floors}},
        x=x,
        y=y,
        domain=(0, 1.02) if metric.unit == SHARE else None,
        chance=metric.chance,
        trained=evidence.train_length(cell.suite) if tokens else None,
    )
