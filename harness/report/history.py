"""The page of builds: which were kept, and what changed from each to the next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from harness.diff import Changes, compare
from harness.report.evidence import Evidence
from harness.report.numbers import commit, decimals, show
from harness.report.page import Page, verdict_counts
from harness.report.tables import Column, Item, Row, Table

SHOWN = 200  # moved cells


def pages(evidence: Evidence) -> Iterator[Page]:
    builds = evidence.history
    steps = [compare(before, after) for before, after in pairwise(builds)]
    context: dict[str, Any] = {
        "count": len(builds),
        "changes": steps[-1] if steps else None,
        "builds": build_table(builds, steps),
        "flips": flip_table(evidence, steps[-1]) if steps else None,
        "moved": moved_table(evidence, steps[-1]) if steps else None,
        "shown": SHOWN,
    }
    yield Page("history.html", "history.html.j2", "History", context, "builds changes flipped moved diff")


def build_table(builds: list[dict[str, Any]], steps: list[Changes]) -> Table:
    """The builds, newest first, each with its verdicts and what changed against the one before."""
    rows = []
    for build, step in reversed(list(zip(builds, [None, *steps], strict=False))):
        counts = verdict_counts(build["verdicts"].values())
        said = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
        items = [Item(build["time"]), Item(commit(build["commit"])), Item(build["profile"]), Item(said or "none")]
        if step is None:
            items += [Item("none", why="the oldest build that is shown")] * 3
        else:
            items.append(Item("; ".join(step.inputs) or "nothing"))
            items.append(Item(f"{len(step.moved)} of {step.compared}", len(step.moved)))
            items.append(Item(str(len(step.flips)), len(step.flips)))
        rows.append(Row(tuple(items)))
    columns = [Column(name) for name in ("Time, UTC", "Commit", "Profile", "Verdicts", "What changed before it")]
    columns += [Column("Cells beyond noise", numeric=True), Column("Verdicts flipped", numeric=True)]
    return Table("builds", "Builds, the latest first", tuple(columns), tuple(rows))


def flip_table(evidence: Evidence, changes: Changes) -> Table:
    """Verdicts of the latest build that were others before."""
    rows = []
    for flip in changes.flips:
        slug, _, claim = flip.claim.partition("/")
        known = slug in evidence.papers
        name = Item(claim, href=f"papers/{slug}.html#claim-{claim}" if known else "")
        rows.append(Row((name, Item(slug), Item(flip.before), Item(flip.after))))
    columns = tuple(Column(name) for name in ("Claim", "Paper", "Before", "Now"))
    return Table("flips", "Verdicts that flipped in the latest build", columns, tuple(rows))


def moved_table(evidence: Evidence, changes: Changes) -> Table:
    """Cells of the latest build that moved beyond noise, the surest first."""
    rows = []
    for moved in sorted(changes.moved, key=lambda each: (each.p, each.run, each.place))[:SHOWN]:
        run, places = evidence.runs.get(moved.run), decimals((moved.before, moved.after))
        name = Item(run.label, href=run.page) if run else Item(moved.run)
        numbers = [Item(show(value, places), value) for value in (moved.before, moved.after)]
        change = Item(show(moved.after - moved.before, places, sign=True), moved.after - moved.before)
        rows.append(Row((name, Item(moved.place), *numbers, change, Item(f"{moved.p:.2g}", moved.p))))
    columns = [Column("Mechanism"), Column("Cell")]
    columns += [Column(name, numeric=True) for name in ("Before", "Now", "Change", "p, corrected")]
    return Table("moved", "Cells whose means moved by more than their seeds explain", tuple(columns), tuple(rows))
