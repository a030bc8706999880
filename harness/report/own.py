"""What studies and methods measure themselves, on the pages of papers and runs: tables, and plots against `at`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.claims import tests
from harness.metrics import parse_key
from harness.report import charts
from harness.report.evidence import DONE, Cell, Evidence, Run, trouble
from harness.report.export import log_file, log_path
from harness.report.numbers import commit, decimals, duration
from harness.report.page import points, run_item, seconds, state, time_item, unit, words
from harness.report.tables import ARROWS, Column, Item, Row, Table, absent, measured
from harness.studies import STUDY

MOST = 12  # plots of one paper
SHARE = "share"  # the unit of what lies between 0 and 1


def tables(evidence: Evidence, slug: str) -> list[Table]:
    """The studies of a paper, then for each study or method all that its runs measured."""
    named = {name: evidence.runs[id] for name, id in evidence.names[slug].items()}
    groups: dict[str, dict[str, Run]] = {}
    for called, run in named.items():
        if run.own:
            groups.setdefault(run.impl, {})[called] = run
    studies = {called: run for called, run in named.items() if run.kind == STUDY}
    made = [_studies(evidence, studies)] if studies else []
    return made + [_values(evidence, impl, runs) for impl, runs in groups.items()]


def _studies(evidence: Evidence, studies: Mapping[str, Run]) -> Table:
    rows = []
    for called, run in studies.items():
        args = ", ".join(f"{key}={value}" for key, value in run.args.items()) or "the defaults"
        status = state(run, evidence.seeds, [STUDY])
        items = (Item(called), run_item(run, "../"), Item(args), Item(status), time_item(seconds(run)))
        rows.append(Row(items))
    columns = [Column(label) for label in ("Name here", "Study", "Arguments", "Status")]
    columns.append(Column("Time of a seed, s", numeric=True))
    return Table(
        "studies", f"Studies of this paper under the profile {evidence.profile.name}", tuple(columns), tuple(rows)
    )


def _values(evidence: Evidence, impl: str, runs: Mapping[str, Run]) -> Table:
    """Everything that the runs of one module measured, a row each, a column a run."""
    rows = []
    for cell in dict.fromkeys(cell for run in runs.values() for cell in run.own):
        first = next(run for run in runs.values() if cell in run.own)
        metric = evidence.metric(cell, first)
        found = [summary for run in runs.values() if (summary := run.summary(cell))]
        places = decimals([summary.mean for summary in found]) if found else 0
        items = [Item(where(first, cell)), Item(label(evidence, cell, first), more=metric.summary)]
        for run in runs.values():
            summary = run.summary(cell)
            if summary is not None:
                items.append(measured(summary, places, seeds=len(evidence.seeds), href=f"../{run.page}#{cell.id}"))
            elif cell in run.own:
                items.append(absent(evidence.missing(run, cell), f"../{run.page}#seeds"))
            else:
                items.append(Item("not asked", why="this run does not measure it"))
        rows.append(Row(tuple(items)))
    columns = [Column("Where"), Column("Measured"), *(Column(called, numeric=True) for called in runs)]
    caption = f"What {impl} measures: mean over seeds ± half of its 95 % interval"
    return Table(f"own-{impl}".replace("_", "-"), caption, tuple(columns), tuple(rows), style="dense")


def where(run: Run, cell: Cell) -> str:
    """`taylor, order 4`: the task and what `at` counts there."""
    if cell.length is None:
        return cell.task
    return f"{cell.task}, {run.sheet.axes.get(cell.task, 'at')} {cell.length}"


def label(evidence: Evidence, cell: Cell, run: Run) -> str:
    """A metric with its unit and better direction."""
    metric = evidence.metric(cell, run)
    named = f" ({plain})" if (plain := unit(metric.unit)) else ""
    return f"{words(cell.metric)}{named} {ARROWS.get(metric.better, '')}".rstrip()


def pictures(evidence: Evidence, slug: str) -> list[charts.Chart]:
    """A plot for each metric that is measured at several places, those that claims name first."""
    runs = [evidence.runs[id] for id in dict.fromkeys(evidence.names[slug].values())]
    groups: dict[tuple[str, str], dict[Cell, float]] = {}
    for cell in dict.fromkeys(cell for run in runs if run.kind == STUDY for cell in run.own):
        if cell.length is not None:
            groups.setdefault((cell.task, cell.metric), {})[cell] = float(cell.length)
    asked = list(_asked(evidence, slug))
    order = sorted(groups, key=lambda key: asked.index(key) if key in asked else len(asked))
    drawn = (_picture(evidence, runs, groups[key]) for key in order if len(groups[key]) > 1)
    return [chart for chart in drawn if chart is not None][:MOST]


def _asked(evidence: Evidence, slug: str) -> Iterable[tuple[str, str]]:
    for claim in evidence.papers[slug].claims:
        for _, test in tests(claim):
            if (text := getattr(test, "metric", None)) and (key := parse_key(text)).suite == STUDY:
                yield key.task, key.metric


def _picture(evidence: Evidence, runs: Sequence[Run], cells: dict[Cell, float]) -> charts.Chart | None:
    shown = points(runs, cells)
    if not shown:
        return None
    cell = next(iter(cells))
    run = next(run for run in runs if cell in run.own)
    metric, x = evidence.metric(cell, run), run.sheet.axes.get(cell.task, "place")
    return charts.profile(
        f"study-{cell.task}-{cell.metric}".replace("_", "-"),
        f"{cell.task}: {words(cell.metric)}",
        shown,
        evidence.styles,
        x=x,
        y=label(evidence, cell, run),
        domain=(0, 1.02) if metric.unit == SHARE and all(0 <= y <= 1 for _, _, _, y in shown) else None,
        chance=metric.chance,
    )


def seed_table(evidence: Evidence, run: Run) -> Table:
    """How each seed of a study went."""
    rows = []
    for seed in evidence.seeds:
        record, anchor = run.records.get((STUDY, seed)), f"seed-{STUDY}-{seed}"
        if record is None or record["status"] == "missing":
            gap = Item("not run", why="no record of this study")
            rows.append(Row((Item(str(seed), seed), *[gap] * 5), id=anchor))
            continue
        status = record["status"] if record["status"] == DONE else trouble(record)
        count = sum(seed in values for values in run.values.values())
        log = log_file(evidence, run, STUDY, seed).is_file()
        items = (
            Item(str(seed), seed),
            Item(status),
            Item(str(count), count),
            Item(duration(record["seconds"]), record["seconds"]),
            Item(commit(str(record.get("commit") or ""))),
            Item("log", href=f"../{log_path(run, STUDY, seed)}") if log else Item("none", why="no log was kept"),
        )
        rows.append(Row(items, id=anchor))
    columns = [Column("Seed", numeric=True), Column("Status"), Column("Measurements", numeric=True)]
    columns += [Column("Time, s", numeric=True), Column("Commit"), Column("Log")]
    return Table("seeds", "Each seed of the study", tuple(columns), tuple(rows))
