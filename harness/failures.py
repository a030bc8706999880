"""Cells that have no result: runs that failed or diverged, suites that failed.

    python -m harness.failures             list them with their reasons; exit code 1 when there is one
    python -m harness.failures --remove    remove the records of failed ones, so that the workflow tries them again

A diverged run is not tried again: the same settings diverge at the same step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.errors import UserError, leave
from harness.files import read_json

RUNS = Path("results/runs")


class Failure(NamedTuple):
    """One record without a result."""

    record: Path
    status: str
    reason: str

    def __str__(self) -> str:
        return f"{self.record}: {self.status}: {self.reason}"


def find(runs: Path = RUNS) -> Iterator[Failure]:
    """Every failed or diverged record under a folder, in the order of paths; blocked suites follow from their run."""
    for record in sorted(runs.glob("*/*/seed*/*.json")):
        content = read_json(record)
        if content["status"] in ("failed", "diverged"):
            yield Failure(record, content["status"], str(content["reason"]))


def remove(runs: Path = RUNS) -> list[Path]:
    """Remove the failed records and return them."""
    failed = [failure.record for failure in find(runs) if failure.status == "failed"]
    for record in failed:
        record.unlink()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remove", action="store_true", help="remove the records of failed runs and suites")
    if parser.parse_args().remove:
        removed = remove()
        print(*(f"removed {record}" for record in removed), sep="\n") if removed else print("no failed record")
        return 0
    failures = list(find())
    if failures:
        raise UserError("\n".join(map(str, failures)))
    print("no failed run, no failed suite")
    return 0


if __name__ == "__main__":
    leave(main)
