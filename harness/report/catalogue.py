"""Every paper of the literature, whether it is judged here or not, and why not.

`papers/literature.csv` holds those without a spec too. Its tiers: 1 a layer of a language model, 2 a method on a
trained one, 3 a theory or a diagnosis that a small experiment can check, 4 another modality on data small enough to
come along, 5 out of reach, for the reason given. Titles and years are those of arXiv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.errors import UserError
from harness.report.evidence import Evidence
from harness.report.tables import Column, Item, Row, Table

FILE = Path("papers/literature.csv")
STATES = ("judged", "specified", "planned", "out of reach")
OUT_OF_REACH = 5  # the tier
ARXIV = re.compile(r'^arxiv: "?([0-9]{4}\.[0-9]{5})\b', re.MULTILINE)


class Entry(NamedTuple):
    """A paper of the list; one that has a spec and is not on it has no tier."""

    arxiv: str
    year: int
    tier: int | None
    field: str
    title: str
    reason: str


def entries(file: Path = FILE) -> list[Entry]:
    """The list as it stands. Raises UserError with the line of what cannot be read."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    found: list[Entry] = []
    for line, row in enumerate(rows, start=2):
        try:
            entry = Entry(row["arxiv"], int(row["year"]), int(row["tier"]), row["field"], row["title"], row["reason"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{file}:{line}: a paper is arxiv, year, tier, field, title, reason") from None
        if not 1 <= (entry.tier or 0) <= OUT_OF_REACH or not all(entry):
            raise UserError(f"{file}:{line}: a paper has a tier from 1 to {OUT_OF_REACH} and no empty cell")
        if any(entry.arxiv == other.arxiv for other in found):
            raise UserError(f"{file}:{line}: arXiv {entry.arxiv} stands in the list before")
        found.append(entry)
    return found


def everything(evidence: Evidence) -> list[Entry]:
    """The list, and after it the papers of this build that it lacks."""
    listed = entries()
    known = {entry.arxiv for entry in listed}
    others = [
        Entry(paper.arxiv, paper.year, None, "", paper.title, "has a spec here")
        for paper in evidence.papers.values()
        if paper.arxiv not in known
    ]
    return [*listed, *others]


def specified(folder: Path = FILE.parent) -> set[str]:
    """arXiv ids of all specs there are, those that this build leaves out as well."""
    return {match[1] for file in folder.glob("*.yaml") if (match := ARXIV.search(file.read_text(encoding="utf-8")))}


def states(evidence: Evidence) -> dict[str, str]:
    """By arXiv id, how far a paper of the list has come here."""
    judged = {
        evidence.papers[slug].arxiv
        for slug, verdicts in evidence.verdicts.items()
        if any(verdict["verdict"] in ("reproduced", "contradicted", "inconclusive") for verdict in verdicts)
    }
    with_spec = specified() | {paper.arxiv for paper in evidence.papers.values()}

    def state(entry: Entry) -> str:
        if entry.arxiv in judged:
            return "judged"
        if entry.arxiv in with_spec:
            return "specified"
        return "out of reach" if entry.tier == OUT_OF_REACH else "planned"

    return {entry.arxiv: state(entry) for entry in everything(evidence)}


def table(evidence: Evidence) -> Table:
    """A row a paper: those that are judged first, then by tier and year."""
    state = states(evidence)
    slugs = {paper.arxiv: slug for slug, paper in evidence.papers.items()}
    ordered = sorted(everything(evidence), key=lambda e: (STATES.index(state[e.arxiv]), e.tier or 0, e.year, e.arxiv))
    rows = [
        Row(
            (
                Item(entry.title, href=f"papers/{slug}.html" if (slug := slugs.get(entry.arxiv)) else ""),
                Item(entry.arxiv, href=f"https://arxiv.org/abs/{entry.arxiv}"),
                Item(str(entry.year), entry.year),
                Item(entry.field or "not listed"),
                Item("not listed" if entry.tier is None else f"tier {entry.tier}", entry.tier),
                Item(state[entry.arxiv]),
                Item(entry.reason),
            ),
            id=f"arxiv-{entry.arxiv}",
        )
        for entry in ordered
    ]
    columns = [Column("Title"), Column("arXiv"), Column("Year", numeric=True), Column("Field"), Column("Tier")]
    columns += [Column("Here"), Column("Why this tier")]
    return Table("known", "Papers on attention that are known here", tuple(columns), tuple(rows), style="sentences")


def found(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """(anchor, text) of the papers that have no page of their own, for the search of the site."""
    own = {paper.arxiv for paper in evidence.papers.values()}
    for entry in entries():
        if entry.arxiv not in own:
            yield f"arxiv-{entry.arxiv}", f"{entry.title} ({entry.arxiv})"
