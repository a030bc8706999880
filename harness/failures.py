"""Cells of the plan that have no result: runs that failed or diverged, suites that failed.

    python -m harness.failures             list them with their reasons; exit code 1 when there is one
    python -m harness.failures --remove    remove the records of failed ones, so that the workflow tries them again

A diverged run is not tried again: the same settings diverge at the same step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from harness.errors import UserError, leave
from harness.files import read_json
from harness.plan import Plan, add_options


class Failure(NamedTuple):
    """A record without a result."""

    record: Path
    status: str
    reason: str

    def __str__(self) -> str:
        return f"{self.record}: {self.status}: {self.reason}"


def find(records: Iterable[str | Path]) -> Iterator[Failure]:
    """The failed and diverged ones of these records; those not made yet are none, nor are suites that a run blocks."""
    for record in map(Path, records):
        status, reason = _outcome(record)
        if status in ("failed", "diverged"):
            yield Failure(record, status, reason)


def _outcome(record: Path) -> tuple[str, str]:
    """(status, reason) of a record; a damaged one is a failed one."""
    try:
        content = read_json(record)
        return str(content["status"]), str(content["reason"])
    except FileNotFoundError:
        return "missing", "not made yet"
    except (ValueError, KeyError, TypeError) as error:
        return "failed", f"the record is damaged ({type(error).__name__})"


def remove(records: Iterable[str | Path]) -> list[Path]:
    """Remove the failed ones of these records and return them."""
    failed = [failure.record for failure in find(records) if failure.status == "failed"]
    for record in failed:
        record.unlink()
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m harness.failures", description="List the runs and suites that failed, or forget them."
    )
    add_options(parser)
    parser.add_argument("--remove", action="store_true", help="remove the records of the failed ones")
    given = parser.parse_args()
    plan = Plan.asked(given)
    records = plan.records() + plan.grids() + list(plan.repeated().values()) + plan.proofs()
    if given.remove:
        print("\n".join(f"removed {record}" for record in remove(records)) or "no failed record")
    elif failures := list(find(records)):
        raise UserError("\n".join(map(str, failures)))
    else:
        print("no failed run, no failed suite, no failed proof")


if __name__ == "__main__":
    leave(main)
