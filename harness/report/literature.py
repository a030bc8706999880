"""The page of the literature: every paper that is known, and the numbers that several report of one setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from harness.claims import Number
from harness.report import catalogue
from harness.report.evidence import Evidence
from harness.report.numbers import decimals, show
from harness.report.page import Page, cell_name, cell_of
from harness.report.tables import Column, Item, Row, Table


class Entry(NamedTuple):
    """A reported number with the paper and the claim that it belongs to."""

    slug: str
    claim: str
    number: Number


def pages(evidence: Evidence) -> Iterator[Page]:
    found = groups(evidence)
    shared = [group for group in found if len({entry.slug for entry in group}) > 1]
    alone = [group for group in found if group not in shared]
    caption = "Numbers that several papers report for the same model, scale, data and metric"
    counts = Counter(catalogue.states(evidence).values())
    context = {
        "known": catalogue.table(evidence),
        "states": {state: counts[state] for state in catalogue.STATES},
        "shared": table(evidence, "shared", caption, shared),
        "alone": table(evidence, "alone", "Numbers that one paper reports", alone),
        "count": len(shared),
        "others": len(alone),
    }
    found_by = "papers planned out of reach reported numbers disagreements baseline"
    parts = list(catalogue.found(evidence))
    yield Page("literature.html", "literature.html.j2", "Literature", context, found_by, parts=parts, part="paper")


def groups(evidence: Evidence) -> list[list[Entry]]:
    """Reported numbers that may stand beside each other, whatever their capitals and spaces; each paper's once."""
    found: dict[tuple[str, ...], list[Entry]] = {}
    for slug, paper in evidence.papers.items():
        for claim in paper.claims:
            for number in claim.numbers:
                group = found.setdefault(setting(number), [])
                if all((entry.slug, entry.number.value) != (slug, number.value) for entry in group):
                    group.append(Entry(slug, claim.id, number))
    return [found[key] for key in sorted(found)]


def setting(number: Number) -> tuple[str, ...]:
    """What two numbers must agree in."""
    parts = (number.metric, number.data, number.scale, number.model)
    return tuple(" ".join(part.casefold().split()) for part in parts)


def table(evidence: Evidence, id: str, caption: str, found: list[list[Entry]]) -> Table:
    """A row a paper's number, with how far the papers lie apart and what we measured of the same mechanism."""
    rows = []
    for group in found:
        values = [entry.number.value for entry in group]
        places = decimals(values)
        for entry in sorted(group, key=lambda entry: (entry.number.value, entry.slug)):
            number = entry.number
            apart = Item(show(max(values) - min(values), places), max(values) - min(values))
            rows.append(
                Row(
                    (
                        Item(number.model),
                        Item(number.metric),
                        Item(f"{number.scale}, {number.data}"),
                        Item(show(number.value, places), number.value),
                        apart if len(values) > 1 else Item("one number", why="nothing to compare it with"),
                        Item(entry.slug, href=f"papers/{entry.slug}.html#claim-{entry.claim}"),
                        Item(number.source),
                        ours(evidence, entry),
                    )
                )
            )
    columns = [Column("Model"), Column("Metric"), Column("Trained")]
    columns += [Column("Reported", numeric=True), Column("Papers apart by", numeric=True)]
    columns += [Column("Paper"), Column("Source"), Column("Ours, at our scale", numeric=True)]
    return Table(id, caption, tuple(columns), tuple(rows))


def ours(evidence: Evidence, entry: Entry) -> Item:
    """Our mean of the nearest measurement, linked to its seeds; or why there is none."""
    number = entry.number
    if number.run is None or number.measured is None:
        return Item("none", why="nothing like it is measured here")
    run = evidence.runs[evidence.names[entry.slug][number.run]]
    cell = cell_of(evidence, number.measured)
    summary = run.summary(cell) if cell else None
    if cell is None or summary is None:
        return Item("missing", why=f"{number.measured} was not measured")
    pm = "" if summary.half is None else f"±{show(summary.half, decimals([summary.mean]))}"
    text = show(summary.mean, decimals([summary.mean]))
    return Item(text, summary.mean, pm=pm, href=f"{run.page}#{cell.id}", note=cell_name(evidence, cell))
