"""How many seeds, and minutes of one thread, would settle each claim that is inconclusive.

    python -m harness.seeds

Planned at the difference and the spread that were observed, with 80 % power and the level that the claim had to reach
among the claims of its paper. A spread from three seeds is itself uncertain by a factor of two or so: read the numbers
as an order of magnitude. A difference close to its border is settled by no reasonable number of seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError, leave
from harness.files import read_made
from harness.metrics import parse_key
from harness.power import MAX_SEEDS, Design, seeds_to_settle
from harness.verdict import SHAPES, Rule

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Need:
    """What one inconclusive test needs; `seeds` is None when MAX_SEEDS would not do."""

    paper: str
    claim: str
    have: int
    seeds: int | None
    extra: Mapping[str, float]  # by run id: seconds of one more seed

    @property
    def minutes(self) -> float | None:
        """Of one thread, for all further seeds of this test alone."""
        return None if self.seeds is None else (self.seeds - self.have) * sum(self.extra.values()) / 60


def needs(verdicts: Iterable[Record], trainings: Sequence[Record]) -> Iterator[Need]:
    """One Need for each test that its seeds left open, in the order of papers and claims."""
    for record in verdicts:
        for name, test in _open_tests(record):
            runs = [test["run_id"], *([test["baseline_id"]] if test["baseline_id"] else [])]
            suite = parse_key(test["metric"]).suite
            yield Need(
                record["paper"],
                name,
                len(test["seeds"]),
                _seeds(test),
                {run: seconds(trainings, run, suite) for run in runs},
            )


def read_needs(verdicts: Path, runs: Path) -> list[Need]:
    """The needs of the last build, from its tables. Raises UserError where one is not there or damaged."""
    tables = read_made(verdicts, "python -m harness.judge"), read_made(runs, "python -m harness.aggregate")
    try:
        return list(needs(*tables))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UserError(f"{verdicts} and {runs} are not tables of a build; make them with snakemake") from None


def _open_tests(record: Record) -> Iterator[tuple[str, Record]]:
    if record["verdict"] != "inconclusive":
        return
    if not record["parts"]:
        yield record["claim"], record
    for place, part in enumerate(record["parts"], 1):
        if part["verdict"] == "inconclusive":
            yield f"{record['claim']} (part {place})", part


def _seeds(test: Record) -> int | None:
    """Two where one seed has no interval yet: the least that says anything."""
    if test["difference"] is None:
        return 2
    shape, sign = SHAPES[test["expect"]]
    design = Design(len(test["seeds"]), test["spread"], test["item_error"], test["level"])
    found = seeds_to_settle(Rule(shape, test["margin"]), sign * test["difference"], design, test["level_against"])
    return None if found is None else max(found, len(test["seeds"]) + 1)


def seconds(trainings: Sequence[Record], run: str, suite: str) -> float:
    """Mean seconds of training one seed of a run for a suite and of evaluating it; 0 where none was timed."""
    times = [
        training["seconds"] + (training["suites"][suite].get("seconds") or 0.0)
        for training in trainings
        if training["run"] == run and suite in training.get("suites", {}) and training.get("seconds")
    ]
    return sum(times) / len(times) if times else 0.0


def lines(wanted: Sequence[Need]) -> Iterator[str]:
    """A table, and the cost of all of it with each run's seeds counted once."""
    if not wanted:
        yield "no claim is left open for want of seeds"
        return
    rows = [("paper", "claim", "seeds now", "seeds needed", "minutes")]
    for need in wanted:
        count = f"over {MAX_SEEDS}" if need.seeds is None else str(need.seeds)
        minutes = "–" if need.minutes is None else f"{need.minutes:.1f}"
        rows.append((need.paper, need.claim, str(need.have), count, minutes))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    most: dict[str, float] = {}
    for need in wanted:
        for run, each in need.extra.items():
            most[run] = max(most.get(run, 0.0), ((need.seeds or need.have) - need.have) * each)
    yield f"all that can be settled together: {sum(most.values()) / 60:.1f} minutes of one thread"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.seeds", description="Seeds that would settle open claims.")
    parser.add_argument("--verdicts", type=Path, default=Path("results/verdicts.json"))
    parser.add_argument("--runs", type=Path, default=Path("results/runs.json"))
    given = parser.parse_args(arguments)
    print(*lines(read_needs(given.verdicts, given.runs)), sep="\n")


if __name__ == "__main__":
    leave(main)
