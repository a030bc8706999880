"""What changed between two builds: their inputs, the cells that moved beyond noise, the verdicts that flipped.

    python -m harness.diff previous latest      or two files of results/history; exit 1 when a verdict flipped

Runs are matched by mechanism, arguments and recipe, cells by their key. A cell moved when the difference of its means
is told apart from 0 by the spread over seeds: Student's t of two samples with pooled variance, two-sided, 5 % after
Holm's correction over all cells whose numbers changed. With one seed on either side nothing can be said of noise, and
the cell is counted apart. Metrics that a clock measures are not compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from scipy.special import stdtr

from harness import history
from harness.errors import UserError, leave
from harness.runs import canonical
from harness.stats import ALPHA
from harness.studies import timed
from harness.verdict import holm

NAMED = {"latest": -1, "previous": -2}
Record = Mapping[str, Any]


class Moved(NamedTuple):
    """A cell whose means differ by more than its seeds explain."""

    run: str
    place: str
    before: float
    after: float
    p: float  # after correction


class Flip(NamedTuple):
    """A verdict that is another one now."""

    claim: str
    before: str
    after: str


@dataclass(frozen=True)
class Changes:
    """From one build to the next. `inputs` are sentences; numbers of cells count those that both builds measured."""

    inputs: list[str]
    moved: list[Moved]
    flips: list[Flip]
    compared: int
    changed: int  # of those, with any number that differs
    unknown: int  # changed, with too few seeds to speak of noise

    @property
    def nothing(self) -> bool:
        return not (self.inputs or self.changed or self.flips)


def compare(before: Record, after: Record) -> Changes:
    """All that changed from one record to another."""
    compared, changed = 0, []
    for run, old, new in _pairs(before, after):
        for place in sorted(place for place in old.keys() & new.keys() if not timed(after["runs"][run], place)):
            compared += 1
            if old[place] != new[place]:
                changed.append((run, place, list(old[place].values()), list(new[place].values())))
    told = [(cell, p) for cell in changed if (p := p_value(cell[2], cell[3])) is not None]
    levels = holm([p for _, p in told])
    moved = [
        Moved(run, place, fmean(old), fmean(new), level.adjusted)
        for ((run, place, old, new), _), level in zip(told, levels, strict=True)
        if level.adjusted <= ALPHA
    ]
    return Changes(
        inputs=list(_inputs(before, after)),
        moved=moved,
        flips=[
            Flip(claim, old["verdict"], after["verdicts"][claim]["verdict"])
            for claim, old in sorted(before["verdicts"].items())
            if claim in after["verdicts"] and after["verdicts"][claim]["verdict"] != old["verdict"]
        ],
        compared=compared,
        changed=len(changed),
        unknown=len(changed) - len(told),
    )


def p_value(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Two-sided p of equal means under a pooled variance; None where a side has a single value."""
    n, m = len(before), len(after)
    if min(n, m) < 2:
        return None
    squares = sum((value - fmean(values)) ** 2 for values in (before, after) for value in values)
    error = sqrt(squares / (n + m - 2) * (1 / n + 1 / m))
    distance = abs(fmean(after) - fmean(before))
    if error == 0:
        return 1.0 if distance == 0 else 0.0
    return 2 * float(stdtr(n + m - 2, -distance / error))


def _pairs(before: Record, after: Record) -> Iterator[tuple[str, Record, Record]]:
    """(run id now, cells before, cells now) of every run that both builds have."""
    ids = {canonical(run): id for id, run in before["runs"].items()}
    for id, run in sorted(after["runs"].items()):
        old = ids.get(canonical(run))
        if old is not None:
            yield id, before["values"].get(old, {}), after["values"].get(id, {})


def _inputs(before: Record, after: Record) -> Iterator[str]:
    for key in ("profile", "seeds", "suites"):
        if before[key] != after[key]:
            yield f"{key}: {_text(before[key])} → {_text(after[key])}"
    for key, noun in (("settings", "settings of"), ("specs", "spec"), ("mechanisms", "mechanism"), ("code", "code of")):
        yield from _digests(noun, before[key], after[key])
    for key, noun in (("versions", "package"), ("hardware", "hardware")):
        for name in sorted(before[key].keys() | after[key].keys()):
            old, new = (_text(side[key].get(name, ["none"])) for side in (before, after))
            if old != new:
                yield f"{noun} {name}: {old} → {new}"
    old, new = ({canonical(run): id for id, run in side["runs"].items()} for side in (before, after))
    for word, ids in (("new", [new[key] for key in new.keys() - old.keys()]),
                      ("gone", [old[key] for key in old.keys() - new.keys()])):  # fmt: skip
        if ids:
            yield f"runs {word}: {', '.join(sorted(ids))}"


def _digests(noun: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield f"{noun} {name}: new"
        elif name not in after:
            yield f"{noun} {name}: gone"
        elif before[name] != after[name]:
            yield f"{noun} {name}: changed"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def find(name: str, folder: Path = history.FOLDER) -> dict[str, Any]:
    """The record of that name or path. Raises UserError where there is none."""
    path = Path(name)
    if name in NAMED:
        kept = history.names(folder)
        if len(kept) < -NAMED[name]:
            raise UserError(f"{folder} keeps {len(kept)} builds, so there is no {name} one; run snakemake first")
        path = folder / kept[NAMED[name]]
    return history.read(path)


def lines(changes: Changes) -> Iterator[str]:
    """The changes as text."""
    yield from changes.inputs or ["no input changed"]
    yield (
        f"{changes.changed} of {changes.compared} cells changed, {len(changes.moved)} beyond noise"
        + (f", {changes.unknown} with too few seeds to say" if changes.unknown else "")
    )
    for moved in changes.moved:
        yield f"moved: {moved.run} {moved.place}: {moved.before:.5g} → {moved.after:.5g} (p {moved.p:.2g})"
    yield f"{len(changes.flips)} verdicts flipped"
    for flip in changes.flips:
        yield f"flipped: {flip.claim}: {flip.before} → {flip.after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.diff", description="Compare two builds; exit 1 when a verdict flipped."
    )
    parser.add_argument("before", help="a file of results/history, latest or previous")
    parser.add_argument("after", help="likewise")
    given = parser.parse_args(arguments)
    try:
        changes = compare(find(given.before), find(given.after))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(*lines(changes), sep="\n")
    return int(bool(changes.flips))


if __name__ == "__main__":
    leave(main)
