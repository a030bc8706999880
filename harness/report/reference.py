"""Pages that are not about one paper or suite: compare two runs, methods, provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from harness import checks
from harness.claims import tests
from harness.metrics import load_suite
from harness.report.evidence import DONE, Cell, Evidence
from harness.report.numbers import compact, digits, duration
from harness.report.page import Page, cell_name, heading, run_item, t_table, words
from harness.report.tables import Column, Item, Row, Table


def pages(evidence: Evidence) -> Iterator[Page]:
    yield compare(evidence)
    yield methods(evidence)
    yield provenance(evidence)


def compare(evidence: Evidence) -> Page:
    runs = list(evidence.models.values())
    pairs = []
    for slug, paper in evidence.papers.items():
        for test in (test for claim in paper.claims for _, test in tests(claim)):
            roles = [evidence.names[slug].get(getattr(test, role, None) or "") for role in ("run", "baseline")]
            if all(role in evidence.models for role in roles) and tuple(roles) not in pairs:
                pairs.append(tuple(roles))
    context = {
        "runs": runs,
        "pairs": [(evidence.runs[a], evidence.runs[b]) for a, b in pairs],
        "data": {
            "t": t_table(),
            "first": list(pairs[0]) if pairs else [run.id for run in runs[:2]],
            "runs": [[run.id, run.label, len(run.values)] for run in runs],
            "cells": [
                [cell.id, cell_name(evidence, cell), evidence.metric(cell).better, heading(evidence, cell)[1]]
                for cell in compared(evidence)
            ],
        },
    }
    return Page("compare.html", "compare.html.j2", "Compare two runs", context, "difference interval pair")


def compared(evidence: Evidence) -> list[Cell]:
    """What the compare page tells of every run."""
    return [cell for cell in evidence.cells if (cell.suite, cell.metric) not in evidence.floors]


def run_data(evidence: Evidence) -> Iterator[tuple[str, list[list[float | None]], Mapping[str, str]]]:
    """(run id, by place in `compared` each seed's `digits`, {cell id: packed scores}): what the compare page loads."""
    cells = compared(evidence)
    for run in evidence.runs.values():
        found = (run.values.get(cell, {}) for cell in cells)
        values = [[digits(by[s].value) if s in by else None for s in evidence.seeds] if by else [] for by in found]
        yield run.id, values, evidence.items.get(run.id, {})


def methods(evidence: Evidence) -> Page:
    suites = [
        (
            name,
            (load_suite(name).__doc__ or "").strip(),
            [(words(key), metric) for (suite, key), metric in evidence.metrics.items() if suite == name],
        )
        for name in evidence.config.suites
    ]
    asked = sorted(
        {
            test.check
            for p in evidence.papers.values()
            for c in p.claims
            for _, test in tests(c)
            if test.kind == "property"
        }
    )
    context = {
        "evidence": evidence,
        "suites": suites,
        "tuned": [name for name, settings in evidence.profile.tasks.items() if settings.tune],
        "checks": [(words(name), checks.summary(name)) for name in asked if name in checks.names()],
        "tasks": [(name, _flat(settings.model_dump())) for name, settings in evidence.profile.tasks.items()],
    }
    text = "how verdicts are decided interval margin ties budget missing bits per byte"
    return Page("methods.html", "methods.html.j2", "Methods", context, text)


def _flat(settings: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            found += _flat(value, f"{above}{key}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((f"{above}{key}", text))
    return found


def provenance(evidence: Evidence) -> Page:
    trained = [run for run in evidence.runs.values() if run.kind == "mechanism"]
    records = [record for run in trained for record in run.records.values()]
    context = {
        "evidence": evidence,
        "manifest": evidence.manifest,
        "commits": _counted(record.get("commit") for record in records),
        "versions": _counted(
            f"{name} {version}" for record in records for name, version in (record.get("versions") or {}).items()
        ),
        "hardware": _counted(
            f"{name}: {value}"
            for record in records
            for name, value in (record.get("hardware") or {}).items()
            if value is not None
        ),
        "devices": _counted(record.get("device") for record in records),
        "time": duration(sum(record["seconds"] for record in records if record.get("seconds"))),
        "tokens": compact(sum(record["tokens"] for record in records if record.get("tokens"))),
        "trainings": _counted(record["status"] for record in records),
        "table_": times(evidence),
    }
    return Page(
        "provenance.html", "provenance.html.j2", "Provenance", context, "commit versions hardware hashes licences"
    )


def _counted(values: Any) -> list[tuple[str, int]]:
    """Each distinct text with how often it occurs, the commonest first."""
    return sorted(Counter(str(value) for value in values if value).items(), key=lambda pair: (-pair[1], pair[0]))


def times(evidence: Evidence) -> Table:
    """Wall time of every run by training task, and of its evaluations, summed over seeds."""
    tasks = list(dict.fromkeys(evidence.tasks.values()))
    rows = []
    for run in evidence.models.values():
        items = [run_item(run, "")]
        for task in tasks:
            spent = [r["seconds"] for (t, _), r in run.records.items() if t == task and r.get("seconds") is not None]
            ended = sum(r["status"] == DONE for (t, _), r in run.records.items() if t == task)
            note = "" if ended == len(evidence.seeds) else f"{ended}/{len(evidence.seeds)} seeds"
            items.append(_spent(spent, note))
        for suite in evidence.config.suites:
            parts = [r.get("suites", {}).get(suite, {}).get("seconds") for r in run.records.values()]
            items.append(_spent([part for part in parts if part is not None], ""))
        rows.append(Row(tuple(items)))
    columns = [Column("Mechanism")]
    columns += [Column(f"train {task}", unit="s", numeric=True) for task in tasks]
    columns += [Column(f"evaluate {suite}", unit="s", numeric=True) for suite in evidence.config.suites]
    return Table("times", "Wall time, summed over seeds", tuple(columns), tuple(rows))


def _spent(seconds: list[float], note: str) -> Item:
    return Item(duration(sum(seconds)), sum(seconds), note=note) if seconds else Item("not run", why="no time recorded")
