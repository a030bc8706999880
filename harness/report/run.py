"""The page of one run: what it is, every seed, every measurement, and the commands that make them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterator
from typing import Any

from harness.report import charts, export, own, raw, tuning
from harness.report.evidence import DONE, Cell, Evidence, Run, docstring, reading, trouble
from harness.report.numbers import commit, count, decimals, duration, show
from harness.report.page import Page, at, heading, words
from harness.report.paper import curves
from harness.report.tables import ARROWS, Column, Item, Row, Table
from harness.studies import METHOD, OWN, STUDY

MANY = 24  # runs beyond which their papers alone show their curves, so that the site stays small


def pages(evidence: Evidence) -> Iterator[Page]:
    answered = raw.anchors(evidence)
    for run in evidence.runs.values():
        context = {
            "evidence": evidence,
            "run": run,
            "style": evidence.styles[run.label],
            "equations": docstring(run.impl),
            "reading": reading(run.impl),
            "args": [(key, str(value)) for key, value in run.args.items()],
            "recipe": [(f"{task}: {key}", str(v)) for task, given in run.recipe.items() for key, v in given.items()],
            "settings": settings(run),
            "seeds": own.seed_table(evidence, run) if run.kind == STUDY else seed_table(evidence, run),
            "measurements": measurements(evidence, run, answered.get(run.id, ())),
            "charts": pictures(evidence, run),
            "rates": tuning.table(evidence, [run]),
            "rate_charts": tuning.pictures(evidence, [run]) if len(evidence.runs) <= MANY else [],
            "commands": commands(evidence, run),
            "answers": list(evidence.written.get(run.id, {})),
            "untold": [] if run.kind == STUDY else [s for s in evidence.config.suites if not told(evidence, run, s)],
            "floors": [f"{words(metric)} ({suite})" for suite, metric in sorted(evidence.floors)],
            "commits": sorted({commit(record["commit"]) for record in run.records.values() if record.get("commit")}),
        }
        text = " ".join([run.id, run.impl, *(slug for slug, _ in run.uses)])
        yield Page(run.page, "run.html.j2", run.label, context, text, "run")


def settings(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """(training task, its settings in full) as the first seed recorded them."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (task, _), record in sorted(run.records.items()):
        if task not in found and record.get("settings"):
            found[task] = [(key, _text(value)) for key, value in record["settings"].items()]
    return list(found.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def seed_table(evidence: Evidence, run: Run) -> Table:
    """How the training of each task and seed went."""
    columns = [Column("Task"), Column("Seed", numeric=True), Column("Status")]
    columns += [
        Column(label, numeric=True) for label in ("Steps", "Tokens", "Last loss, nats", "Parameters", "Time, s")
    ]
    columns += [Column("Commit"), Column("Log")]
    rows = []
    for task in dict.fromkeys(evidence.tasks.values()):
        if evidence.skipped(run, task):
            continue
        for seed in evidence.seeds:
            record = run.records.get((task, seed))
            head = (Item(task), Item(str(seed), seed))
            if record is None or record["status"] == "missing":
                gap = Item("not run", why="no record of this training")
                rows.append(Row((*head, *[gap] * (len(columns) - 2)), id=f"seed-{task}-{seed}"))
                continue
            why = "" if record["status"] == DONE else trouble(record)
            status = Item(why or record["status"])
            done, steps = record.get("step"), record.get("steps")
            items = (
                Item(count(done) if done == steps else f"{count(done)} of {count(steps)}", done),
                _or_reason(record.get("tokens"), count, why),
                _or_reason(record.get("final_loss"), show, why),
                _or_reason(record.get("parameters"), count, why),
                _or_reason(record.get("seconds"), duration, why),
                Item(commit(str(record.get("commit") or ""))),
                log(evidence, run, task, seed),
            )
            rows.append(Row((*head, status, *items), id=f"seed-{task}-{seed}"))
    return Table("seeds", "Training of each task and seed", tuple(columns), tuple(rows))


def log(evidence: Evidence, run: Run, task: str, seed: int) -> Item:
    """A link to the log of one training."""
    if not export.log_file(evidence, run, task, seed).is_file():
        return Item("none", why="no log was kept")
    return Item("log", href=f"../{export.log_path(run, task, seed)}")


def _or_reason(value: Any, write: Any, why: str) -> Item:
    return Item(write(value), float(value)) if value is not None else Item("missing", why=why or "not recorded")


def measurements(evidence: Evidence, run: Run, answers: Container[str] = ()) -> list[Table]:
    """One table a suite: every cell with its mean, interval, each seed's own value, and where `answers` are shown."""
    tables = []
    suites = {
        suite: [cell for cell in evidence.cells if cell.suite == suite and (suite, cell.metric) not in evidence.floors]
        for suite in evidence.config.suites
    }
    suites = {} if run.kind == STUDY else {name: cells for name, cells in suites.items() if told(evidence, run, name)}
    for suite, cells in {**suites, run.kind: run.own}.items() if run.own else suites.items():
        rows = [_measurement(evidence, run, cell, answers) for cell in cells]
        columns = [Column("Task"), Column("Metric"), Column("Mean ± half interval", numeric=True)]
        columns += [Column(f"Seed {seed}", numeric=True) for seed in evidence.seeds]
        columns.append(Column("n a seed", numeric=True))
        title = "What it measures itself" if suite in OWN else f"Suite {suite}"
        caption = f"{title}: mean over seeds ± half of its 95 % interval, and every seed"
        if suite in evidence.written.get(run.id, {}):
            columns.append(Column("Answers"))
            where = f"results/runs/{run.id}/{evidence.tasks[suite]}/seed*/{suite}.raw.json"
            caption += f"; the answers of rows without a link are only in {where}"
        tables.append(Table(f"suite-{suite}", caption, tuple(columns), tuple(rows), style="reasons"))
    return tables


def told(evidence: Evidence, run: Run, suite: str) -> bool:
    """Whether a suite has a table on the run's page: not where the profile does not train the run for it."""
    return not evidence.skipped(run, evidence.tasks[suite])


def _measurement(evidence: Evidence, run: Run, cell: Cell, answers: Container[str]) -> Row:
    metric, values, summary = evidence.metric(cell, run), run.values.get(cell, {}), run.summary(cell)
    gaps = evidence.missing(run, cell)
    places = decimals(value.value for value in values.values())
    name, told = heading(evidence, cell, run)
    label = f"{name} ({told})" if told else name
    items = [
        Item(own.where(run, cell))
        if cell.suite in OWN
        else Item(" ".join(part for part in (cell.task, at(evidence, cell)) if part)),
        Item(f"{label} {ARROWS.get(metric.better, '')}".rstrip()),
    ]
    whys = list(dict.fromkeys(gaps.values()))
    if summary is None:  # a reason that all seeds share is told once, in full
        items.append(Item(whys[0] if len(whys) == 1 else "missing", why="; ".join(whys)))
    else:
        pm = "" if summary.half is None else f"±{show(summary.half, places)}"
        items.append(Item(show(summary.mean, places), summary.mean, pm=pm))
    for seed in evidence.seeds:
        if seed in values:
            value = values[seed]
            items.append(Item(show(value.value, places), value.value))
        elif seed in gaps and (values or len(whys) > 1):
            items.append(Item(gaps[seed].partition(":")[0], why=gaps[seed]))
        else:
            items.append(Item(""))
    n = sorted({value.n for value in values.values() if value.n is not None})
    items.append(Item(count(n[0]) if len(n) == 1 else f"{count(n[0])}–{count(n[-1])}", n[0]) if n else Item(""))
    if cell.suite in evidence.written.get(run.id, {}):
        place = raw.anchor(cell.suite, cell.task, cell.length)
        link = Item("read some", href=f"../raw/{cell.suite}.html#{place}")
        items.append(link if place in answers else Item(""))
    return Row(tuple(items), id=cell.id)


def pictures(evidence: Evidence, run: Run) -> list[charts.Chart]:
    """The learning curve of each training task; where runs are many, their papers' pages show them."""
    if len(evidence.runs) > MANY:
        return []
    return [chart for task in dict.fromkeys(evidence.tasks.values()) if (chart := curves(evidence, [run], task))]


def commands(evidence: Evidence, run: Run) -> list[str]:
    """What makes the run again, step by step; the seed is one of the configured ones."""
    profile, seed = evidence.profile.name, evidence.seeds[0]
    report = ["python -m harness.aggregate", "python -m harness.judge", "python -m harness.site"]
    if run.kind == STUDY:
        return [f"python -m harness.study {run.id} --seed {seed} --profile {profile}", *report]
    hub = f" --hub {shlex.quote(evidence.config.hub)}" if evidence.config.hub else ""
    lines = []
    for suite, task in evidence.tasks.items():
        if run.kind == METHOD and evidence.skipped(run, task):
            continue
        lines += [made for made in makings(evidence, run, task, seed, hub) if made not in lines]
        measure = f"python -m harness.evaluate {run.id} --suite {suite} --seed {seed} --profile {profile}{hub}"
        lines.append(f"{measure} --anew")
    return [*lines, *report]


def makings(evidence: Evidence, run: Run, task: str, seed: int, hub: str) -> list[str]:
    """The commands that leave a model, in order: what a method changes, the pilots of its rate, itself."""
    profile, base, lines = evidence.profile.name, evidence.runs.get(run.base or ""), []
    if base:
        lines += makings(evidence, base, task, seed, hub)
    if any(at == task and record.get("tune") for (at, _), record in run.records.items()):
        seed_of_pilots = next(each["seed"] for _, at, each in tuning.grids(evidence, [run]) if at == task)
        lines.append(f"python -m harness.tune {run.id} --task {task} --seed {seed_of_pilots} --profile {profile}")
    return [*lines, making(run, task, seed, profile, hub)]


def making(run: Run, task: str, seed: int, profile: str, hub: str) -> str:
    """The command that leaves the model: by training, by a method, or from the Hub."""
    if run.hf:
        whence = f"--impl {run.impl} --hf {shlex.quote(run.hf)}{hub}"
        return f"python -m harness.pretrained {run.id} --task {task} --seed {seed} {whence}"
    step = "apply" if run.kind == METHOD else "train"
    return f"python -m harness.{step} {run.id} --task {task} --seed {seed} --profile {profile}"
