"""The page of costs: quality against each of them, and from which length softmax is the slower one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import impls
from harness.report import charts
from harness.report.evidence import Cell, Evidence, Run
from harness.report.numbers import compact, count, show
from harness.report.page import Page, cell_name, cell_of, legend, run_item
from harness.report.suite import spokesmen
from harness.report.tables import ARROWS, Column, Item, Row, Table
from harness.timing import growth
from impls import kernels

SUITE = "efficiency"  # whose measurements are times
QUALITY = "loss/test/bits_per_byte"
COUNTED = {  # kept with every training (harness.costs), so that they are known where nothing is timed
    "flops_training": "FLOPs to train on a token",
    "state_bytes": "decoding state at the training length, bytes",
}
PHASES = {"train": "training step", "prefill": "reading", "decode": "writing"}
GROWS = {"flat": "flat", "linear": "linear", "faster": "faster than linear", "slower": "slower than linear"}


class Cost(NamedTuple):
    """One cost by run."""

    id: str
    name: str
    by_run: Mapping[str, float]  # by run id; lower is better


def pages(evidence: Evidence) -> Iterator[Page]:
    quality = cell_of(evidence, QUALITY) if "loss" in evidence.tasks else None
    found = list(costs(evidence)) if quality else []
    if quality is None or not found:
        return
    shown = spokesmen([run for run in evidence.models.values() if run.summary(quality)])
    context = {
        "charts": [chart(evidence, shown, quality, cost) for cost in found],
        "legend": legend(evidence, shown),
        "fronts": [(cost.name, [evidence.runs[id] for id in front(evidence, quality, cost)]) for cost in found],
        "quality": cell_name(evidence, quality),
        "table_": crossings(evidence) if SUITE in evidence.tasks else None,
        "some": len(shown) < len(evidence.models),
        "bare": bare(evidence),
    }
    yield Page("efficiency.html", "efficiency.html.j2", "Efficiency", context, "time memory state pareto crossover")


def has_costs(evidence: Evidence) -> bool:
    """Whether there is such a page."""
    return "loss" in evidence.tasks and cell_of(evidence, QUALITY) is not None and any(costs(evidence))


def bare(evidence: Evidence) -> list[str]:
    """Mechanisms that have no kernel: on a GPU their time is that of plain PyTorch."""
    known = set(impls.names())
    return sorted({run.impl for run in evidence.models.values() if run.impl in known and not kernels.has(run.impl)})


def costs(evidence: Evidence) -> Iterator[Cost]:
    """The training step beside softmax's at the greatest length timed, then what was counted, where any is known."""
    timed = [cell for cell in of_suite(evidence, "train", "ratio") if any(run.summary(cell) for run in runs(evidence))]
    if timed:
        cell = timed[-1]
        name = f"training step over softmax's at {count(cell.length)} tokens"
        yield Cost("train", name, {r.id: s.mean for r in runs(evidence) if (s := r.summary(cell))})
    for key, name in COUNTED.items():
        known = {run.id: value for run in runs(evidence) if (value := counted(evidence, run, key)) is not None}
        if known:
            yield Cost(key, name, known)


def runs(evidence: Evidence) -> Sequence[Run]:
    return list(evidence.models.values())


def of_suite(evidence: Evidence, task: str, metric: str) -> list[Cell]:
    """The suite's cells of a task and metric, by length."""
    return [cell for cell in evidence.cells if (cell.suite, cell.task, cell.metric) == (SUITE, task, metric)]


def counted(evidence: Evidence, run: Run, key: str) -> float | None:
    """A counted cost of the model that the quality is measured on; the same for every seed."""
    task = evidence.tasks["loss"]
    found = [record[key] for (of, _), record in run.records.items() if of == task and record.get(key) is not None]
    return max(found) if found else None


def chart(evidence: Evidence, shown: Sequence[Run], quality: Cell, cost: Cost) -> charts.Chart:
    points: list[charts.Point] = [
        (run.label, seed, cost.by_run[run.id], value.value)
        for run in shown
        if run.id in cost.by_run
        for seed, value in sorted(run.values.get(quality, {}).items())
    ]
    y = f"{cell_name(evidence, quality)} {ARROWS['lower']}"
    id = f"pareto-{cost.id}".replace("_", "-")
    return charts.scatter(id, f"Quality against {cost.name}", points, evidence.styles, x=f"{cost.name} ↓", y=y)


def front(evidence: Evidence, quality: Cell, cost: Cost) -> list[str]:
    """Runs than which no other is both better and cheaper, by their means, the cheapest first."""
    known = {id: (value, s.mean) for id, value in cost.by_run.items() if (s := evidence.runs[id].summary(quality))}
    return sorted(
        (id for id, own in known.items() if not any(beats(other, own) for other in known.values())),
        key=lambda id: known[id],
    )


def beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
    """Nowhere worse and somewhere better, lower being better."""
    return other != own and other[0] <= own[0] and other[1] <= own[1]


def crossings(evidence: Evidence) -> Table:
    """Each run's ratios at the greatest length, where they cross 1, and how decoding grows."""
    columns = [Column("Mechanism")]
    last = {name: of_suite(evidence, name, "ratio")[-1] for name in PHASES}
    for name, cell in last.items():
        above = f"{PHASES[name]} over softmax's"
        columns.append(Column(f"@ {count(cell.length)}", better="lower", numeric=True, group=above))
        columns.append(Column("quicker from", unit="tokens", better="lower", numeric=True, group=PHASES[name]))
    columns.append(Column("one more token", group="grows with length"))
    rows = []
    for run in evidence.models.values():
        items = [run_item(run, "")]
        for name, cell in last.items():
            items += [ratio(evidence, run, cell), crossing(evidence, run, name)]
        rows.append(Row((*items, grown(evidence, run))))
    caption = (
        "Time over softmax's in the same process: the median of the rounds and their range. Softmax is the slower one "
        "from the length given on, and between the ends of the range by the least and the greatest ratios of the rounds"
    )
    return Table("crossings", caption, tuple(columns), tuple(rows), style="dense")


def mean(run: Run, cell: Cell | None) -> float | None:
    summary = run.summary(cell) if cell else None
    return summary.mean if summary else None


def gap(evidence: Evidence, run: Run, cell: Cell) -> Item:
    """Why there is no number, of the seed that was timed where one was."""
    whys = [why for why in evidence.missing(run, cell).values() if not why.startswith("timed with seed")]
    why = whys[0] if whys else "not timed"
    return Item(why if why.startswith(("none up to", "this is")) else "not measured", why=why, href=run.page)


def ratio(evidence: Evidence, run: Run, cell: Cell) -> Item:
    value = mean(run, cell)
    if value is None:
        return gap(evidence, run, cell)
    ends = [mean(run, Cell(SUITE, cell.task, cell.length, f"ratio_{end}")) for end in ("low", "high")]
    pm = "" if None in ends else "–".join(show(end, 2) for end in ends)
    return Item(show(value, 2), value, pm=pm, href=f"{run.page}#{cell.id}")


def crossing(evidence: Evidence, run: Run, phase: str) -> Item:
    cell, low, high = (Cell(SUITE, phase, None, f"crossover{end}") for end in ("", "_low", "_high"))
    value = mean(run, cell)
    if value is None:
        return gap(evidence, run, cell)
    ends = [mean(run, end) for end in (low, high)]
    pm = "–".join("?" if end is None else compact(end) for end in ends)
    return Item(count(value), value, pm=pm, href=f"{run.page}#{cell.id}")


def grown(evidence: Evidence, run: Run) -> Item:
    """How the time of one more token grows, in a word, from all lengths timed."""
    known = {cell.length: z for cell in of_suite(evidence, "decode", "milliseconds") if (z := mean(run, cell))}
    lengths: Any = list(known)
    if len(lengths) < 3:
        return Item("not measured", why="fewer than three lengths were timed")
    factor = known[lengths[-1]] / known[lengths[0]]
    return Item(GROWS[growth(lengths, list(known.values()))], note=f"{show(factor, 2)}×")
