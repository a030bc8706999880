"""The front page, the list of claims and the list of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harness.claims import tests
from harness.metrics import parse_key
from harness.report import budget, charts
from harness.report.evidence import Cell, Evidence, Run
from harness.report.page import (
    Page,
    cell_name,
    cell_of,
    column,
    largest,
    legend,
    places_of,
    run_item,
    score,
    seconds,
    state,
    time_item,
    verdict_counts,
    words,
)
from harness.report.suite import spokesmen
from harness.report.tables import Column, Item, Row, Table
from harness.report.ties import SHARED_LETTERS, Ties
from harness.studies import OWN, STUDY

SHOWN = 6  # measured columns of the leaderboard that are open at first
FEW = 100  # rows of a table that the front page still shows
LARGE = 2_500  # cells beyond which the leaderboard keeps its headline columns only


def pages(evidence: Evidence) -> Iterator[Page]:
    runs = spokesmen(list(evidence.models.values()))
    every = [verdict for verdicts in evidence.verdicts.values() for verdict in verdicts]
    context = {
        "evidence": evidence,
        "counts": verdict_counts(every),
        "claims": len(every),
        "mechanisms": len({run.impl for run in evidence.runs.values() if run.kind == "mechanism"}),
        "papers": papers(evidence),
        "leaderboard": leaderboard(evidence),
        "charts": (drawn := pictures(evidence, runs)),
        "legend": legend(evidence, runs, drawn),
        "missing": missing(evidence),
        "skipped": sum(
            evidence.skipped(run, task) for run in evidence.models.values() for task in set(evidence.tasks.values())
        ),
        "open": unanswered(evidence),
        "few": FEW,
        "views": list(budget.VIEWS),
    }
    yield Page("index.html", "index.html.j2", "Overview", context, "overview leaderboard papers missing downloads")
    claims = {"table_": claim_table(evidence), "counts": context["counts"]}
    yield Page("claims.html", "claims.html.j2", "Claims", claims, "all claims verdicts")
    runs = {"table_": run_table(evidence)}
    yield Page("runs/index.html", "runs.html.j2", "Runs", runs, "all runs mechanisms parameters status")


def papers(evidence: Evidence) -> Table:
    """One row a paper: its mechanisms, and its claims by verdict."""
    columns = [Column("Paper"), Column("Year", numeric=True), Column("Mechanisms")]
    columns += [Column(name, numeric=True) for name in verdict_counts([])]
    rows = []
    for slug, paper in evidence.papers.items():
        impls = list(dict.fromkeys(run.impl for run in paper.runs.values()))
        items = [
            Item(paper.title, href=f"papers/{slug}.html"),
            Item(str(paper.year), paper.year),
            Item(", ".join(impls)),
        ]
        items += [Item(str(n), n) for n in verdict_counts(evidence.verdicts[slug]).values()]
        rows.append(Row(tuple(items)))
    return Table("papers", "Claims of each paper by verdict", tuple(columns), tuple(rows))


def headline(evidence: Evidence) -> list[Cell]:
    """Cells in the order of how many claims rest on them, then the rest in the suites' order."""
    uses: dict[Cell, int] = {}
    for paper in evidence.papers.values():
        for test in (test for claim in paper.claims for _, test in tests(claim)):
            text = getattr(test, "metric", None)
            cell = cell_of(evidence, text) if text and test.kind != "trend" else None
            if cell and cell.suite not in OWN:  # what one paper's study measures is in no column
                uses[cell] = uses.get(cell, 0) + 1
    place = {cell: k for k, cell in enumerate(evidence.cells)}
    used = sorted(uses, key=lambda cell: (-uses[cell], place[cell]))
    return [*used, *(cell for cell in evidence.cells if cell not in uses)]


def leaderboard(evidence: Evidence) -> Table:
    """All runs against all cells, with tie letters; the reader chooses the columns."""
    ties, runs = Ties(evidence), list(evidence.models.values())
    cells = [cell for cell in headline(evidence) if (cell.suite, cell.metric) not in evidence.floors]
    if len(runs) * len(cells) > LARGE:
        cells = cells[: max(SHOWN, LARGE // len(runs))]  # the front page stays small
    shown = set(cells[:SHOWN])
    cells = [cell for cell in evidence.cells if cell in set(cells)]
    columns = [
        Column("Mechanism"),
        *(column(evidence, cell, shown=cell in shown) for cell in cells),
        Column("shares with softmax"),
        Column("parameters", numeric=True),
        Column("FLOPs a token", better="lower", numeric=True, shown=False),
        Column("decoding state", unit="bytes", better="lower", numeric=True, shown=False),
        Column("training time", unit="s", better="lower", numeric=True, shown=False),
    ]
    first = next(cell for cell in headline(evidence) if cell in shown)
    order = {ranked.run: k for k, ranked in enumerate(ties.ranking(first))}
    runs.sort(key=lambda run: order.get(run.id, len(order)))
    places = {cell: places_of(evidence, cell, runs) for cell in cells}
    rows = []
    for run in runs:
        measured = [score(ties, run, cell, places[cell], "") for cell in cells]
        costs = [largest(run, key) for key in ("parameters", "flops_per_token", "state_bytes")]
        budgets = budget.shared(evidence, run)
        rows.append(Row((run_item(run, ""), *measured, budgets, *costs, time_item(seconds(run)))))
    caption = (
        f"Mean over {len(evidence.seeds)} seeds ± half of its 95 % interval, in the order of "
        f"{cell_name(evidence, first)}. {SHARED_LETTERS}"
    )
    return Table("leaderboard", caption, tuple(columns), tuple(rows), style="dense")


def pictures(evidence: Evidence, runs: Sequence[Run]) -> list[charts.Chart]:
    """Language modelling against recall at its hardest, where both were measured."""
    loss = cell_of(evidence, "loss/test/bits_per_byte") if "loss" in evidence.tasks else None
    pairs = {cell: n for cell in evidence.cells if (n := number(cell.task, "mqar")) and cell.suite == "recall"}
    if loss is None or not pairs:
        return []
    hard = max(pairs, key=lambda cell: pairs[cell])
    found: list[charts.Point] = []
    for run in runs:
        a, b = run.values.get(hard, {}), run.values.get(loss, {})
        found += [(run.label, seed, a[seed].value, b[seed].value) for seed in sorted(a.keys() & b.keys())]
    if not found:
        return []
    x, y = f"recall of {pairs[hard]} pairs, accuracy ↑", "held-out text, bits per byte ↓"
    return [
        charts.scatter("trade", "Recall against language modelling", found, evidence.styles, x=x, y=y, domain=(0, 1.02))
    ]


def number(task: str, family: str) -> int | None:
    """32 for `mqar-32`; None for a task of another family."""
    name, _, tail = task.rpartition("-")
    return int(tail) if name == family and tail.isdigit() else None


def missing(evidence: Evidence) -> Table:
    """One row a run, suite and reason: which seeds lack a measurement, how many cells, and why."""
    found: dict[tuple[str, str, str], dict[int, int]] = {}
    for run in evidence.runs.values():
        planned = [] if run.kind == STUDY else evidence.cells
        for cell in [cell for cell in planned if not evidence.skipped(run, evidence.tasks[cell.suite])] + run.own:
            for seed, why in evidence.missing(run, cell).items():
                seeds = found.setdefault((run.id, cell.suite, why), {})
                seeds[seed] = seeds.get(seed, 0) + 1
    rows = []
    for (id, suite, why), seeds in found.items():
        run = evidence.runs[id]
        where = run.page if suite in OWN else f"suites/{suite}.html"
        items = (run_item(run, ""), Item(suite, href=where), Item(", ".join(map(str, sorted(seeds)))))
        total = sum(seeds.values())
        rows.append(Row((*items, Item(str(total), total), Item(why, href=f"{run.page}#seeds"))))
    columns = (Column("Mechanism"), Column("Suite"), Column("Seeds"), Column("Cells", numeric=True), Column("Why"))
    return Table("missing", "Measurements that should be there and are not", columns, tuple(rows))


def unanswered(evidence: Evidence) -> Table:
    """Claims with no test behind their verdict, and the reason."""
    rows = []
    for slug, verdicts in evidence.verdicts.items():
        for verdict, claim in zip(verdicts, evidence.papers[slug].claims, strict=True):
            if verdict["verdict"] in ("untested", "blocked"):
                paper = Item(evidence.papers[slug].title, href=f"papers/{slug}.html")
                href = f"papers/{slug}.html#claim-{claim.id}"
                rows.append(
                    Row((paper, Item(claim.quote, href=href), Item(verdict["verdict"]), Item(verdict["reason"])))
                )
    columns = (Column("Paper"), Column("Claim"), Column("Verdict"), Column("Why"))
    caption = "Claims that were not tested, or whose test could not run"
    return Table("open", caption, columns, tuple(rows), style="sentences")


def claim_table(evidence: Evidence) -> Table:
    """Every claim of every paper with its verdict."""
    columns = tuple(Column(name) for name in ("Claim", "Paper", "Test", "Verdict", "Because"))
    rows = []
    for slug, verdicts in evidence.verdicts.items():
        for verdict, claim in zip(verdicts, evidence.papers[slug].claims, strict=True):
            items = (
                Item(claim.quote, href=f"papers/{slug}.html#claim-{claim.id}"),
                Item(slug, href=f"papers/{slug}.html"),
                Item(test_words(evidence, slug, claim)),
                Item(verdict["verdict"]),
                Item(verdict["reason"]),
            )
            rows.append(Row(items))
    return Table("claims", "Every claim and its verdict", columns, tuple(rows), style="sentences")


def test_words(evidence: Evidence, slug: str, claim: Any) -> str:
    """What was asked, in words: `gla lower than softmax by more than 0.1 on loss/test bits per byte`."""
    if claim.kind in ("all_of", "any_of"):
        return f"{claim.kind.replace('_', ' ')}: {'; '.join(test_words(evidence, slug, part) for part in claim.parts)}"
    if claim.kind == "untested":
        return "no test"
    if claim.kind == "property":
        return f"{claim.run}: {words(claim.check)}"
    cell = cell_of(evidence, claim.metric) if claim.kind != "trend" else None
    metric = cell_name(evidence, cell) if cell else claim.metric
    if claim.kind == "value":
        return f"{claim.run}: {metric} = {claim.value:g} ± {claim.tolerance:g}"
    against = f" minus {claim.baseline}" if getattr(claim, "baseline", None) else ""
    if claim.kind == "trend":
        axes = evidence.runs[evidence.names[slug][claim.run]].sheet.axes
        over = axes.get(parse_key(claim.metric).task, claim.over)
        return f"{claim.run}{against}: {metric} {claim.expect} with {over}, by {claim.margin:g} per doubling"
    bound = {
        "higher": "higher than",
        "lower": "lower than",
        "not_lower": "not lower than",
        "not_higher": "not higher than",
    }
    if claim.expect == "within":
        return f"{claim.run} within ±{claim.margin:g} of {claim.baseline} on {metric}"
    return f"{claim.run} {bound.get(claim.expect, claim.expect)} {claim.baseline} by {claim.margin:g} on {metric}"


def run_table(evidence: Evidence) -> Table:
    """Every run: what it is, who asks for it, and how training went."""
    rows = []
    for run in evidence.runs.values():
        uses = ", ".join(slug for slug in dict.fromkeys(slug for slug, _ in run.uses))
        tasks = [STUDY] if run.kind == STUDY else dict.fromkeys(evidence.tasks.values())
        status = state(run, evidence.seeds, tasks)
        args = ", ".join(f"{key}={value}" for key, value in run.args.items()) or "the defaults"
        items = (run_item(run, "../"), Item(run.id, href=f"{run.id}.html"), Item(args), Item(uses), Item(status))
        rows.append(Row((*items, largest(run, "parameters"), time_item(seconds(run)))))
    names = ("Mechanism", "Run", "Arguments", "Papers", "Status")
    columns = [Column(name) for name in names]
    columns += [Column("Parameters", numeric=True), Column("Training time", unit="s", numeric=True)]
    return Table("runs", "Every run, trained once for each task and seed", tuple(columns), tuple(rows))
