"""The grids of learning rates, whole: every rate that was tried, what its pilot cost, and which was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.report import charts
from harness.report.evidence import Evidence, Run
from harness.report.numbers import decimals, show
from harness.report.page import run_item
from harness.report.tables import Column, Item, Row, Table

Grids = list[tuple[Run, str, Mapping[str, Any]]]  # run, training task, the record of `harness.tune`


def grids(evidence: Evidence, runs: Sequence[Run]) -> Grids:
    """The grid of every run and task that has one, as its trainings recorded it."""
    found: Grids = []
    for run in runs:
        for task in dict.fromkeys(evidence.tasks.values()):
            records = [record for (at, _), record in sorted(run.records.items()) if at == task and record.get("tune")]
            if records:
                found.append((run, task, records[0]["tune"]))
    return found


def table(evidence: Evidence, runs: Sequence[Run]) -> Table | None:
    """A row a rate; None where no grid was tried."""
    found = grids(evidence, runs)
    if not found:
        return None
    places = decimals(each["loss"] for _, _, grid in found for each in grid["rates"])
    rows = []
    for run, task, grid in found:
        for each in grid["rates"]:
            lost = Item("out", why=str(each["reason"]))
            loss = lost if each["loss"] is None else Item(show(each["loss"], places), each["loss"])
            rate = Item(f"{each['lr']:g}", each["lr"])
            rows.append(Row((run_item(run, "../"), Item(task), rate, loss, choice(grid, each["lr"]))))
        if not grid["rates"]:
            gap = Item("failed", why=str(grid["reason"]))
            rows.append(Row((run_item(run, "../"), Item(task), gap, gap, Item("none"))))
    columns = [Column("Mechanism"), Column("Task"), Column("Learning rate", numeric=True)]
    columns += [Column("Held-out loss", unit="nats", better="lower", numeric=True), Column("Choice")]
    steps = ", ".join(f"{n} steps on {task}" for task, n in {task: grid["steps"] for _, task, grid in found}.items())
    caption = f"Every learning rate that was tried, by a pilot of {steps} with a seed of its own"
    return Table("rates", caption, tuple(columns), tuple(rows))


def choice(grid: Mapping[str, Any], rate: float) -> Item:
    """Whether a rate was chosen; flagged where it is an end of the grid, beyond which a better one may lie."""
    if rate != grid["choice"]:
        return Item("")
    return Item("chosen", note=f"the {grid['edge']} of the grid" if grid["edge"] else "")


def pictures(evidence: Evidence, runs: Sequence[Run]) -> list[charts.Chart]:
    """Held-out loss against learning rate, a chart a task."""
    drawn = []
    found = grids(evidence, runs)
    for task in dict.fromkeys(task for _, task, _ in found):
        points: list[charts.Point] = [
            (run.label, grid["seed"], each["lr"], each["loss"])
            for run, at, grid in found
            for each in grid["rates"]
            if at == task and each["loss"] is not None
        ]
        if points:
            drawn.append(charts.rates(f"rates-{task}", f"Pilots by learning rate, {task}", points, evidence.styles))
    return drawn
