"""Judge every claim of every paper by the rule of `harness.verdict`: results/verdicts.json.

Reads the papers, the configuration, measurements.csv, runs.json and, where they exist, items.parquet (scores of items
that all seeds share) and noise/<task>.json (what another order of the data alone changes, see harness.noise).
The result depends on what these hold, not on the order in which they hold it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from harness import claims, measured
from harness.errors import UserError, leave
from harness.files import read_json, write_json
from harness.outcomes import Bench
from harness.plan import Plan, add_options
from harness.runs import RunSettings, run_ids
from harness.settle import judge_paper
from harness.spec import Paper
from harness.studies import OWN, told
from harness.verdict import Verdict


def judge(papers: Mapping[str, Paper], runs: Mapping[str, RunSettings], bench: Bench) -> list[dict[str, Any]]:
    """The record of every claim, in the order of papers and claim ids."""
    records = []
    for slug, paper in sorted(papers.items()):
        ids = run_ids(paper, bench.profile)

        def made(name: str, ids: Mapping[str, str] = ids) -> tuple[str, dict[str, Any]]:
            return runs[ids[name]].impl, runs[ids[name]].args

        found = {
            claim.id: [bench.outcome(test, ids, made) for _, test in claims.tests(claim)] for claim in paper.claims
        }
        records += judge_paper(slug, paper, found)
    return records


def read_noise(paths: Iterable[Path]) -> dict[str, list[float | None]]:
    """By place, such as `loss/test/nats@128`, what each repetition changed; None where it did not measure that.

    A file that is not there adds nothing. Raises UserError for anything but lists of finite numbers and nulls.
    """
    found: dict[str, list[float | None]] = {}
    for path in paths:
        if not path.is_file():
            continue
        try:
            cells = read_json(path)["cells"]
            found |= {place: [each if each is None else number(each) for each in cells[place]] for place in cells}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} holds no differences ({error}); make it again with harness.noise") from None
    return found


def number(value: Any) -> float:
    """A finite number as it is. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.judge", description="Judge every claim of every paper.")
    add_options(parser)
    results = Path("results")
    parser.add_argument("--measurements", type=Path, default=results / "measurements.csv", help="or the .parquet")
    parser.add_argument("--runs", type=Path, default=results / "runs.json")
    parser.add_argument("--items", type=Path, default=results / "items.parquet", help="optional")
    parser.add_argument("--noise", type=Path, nargs="*", help="optional; by default those of the profile")
    parser.add_argument("--out", type=Path, default=results / "verdicts.json")
    given = parser.parse_args(arguments)
    asked = Plan.asked(given)
    noise = map(Path, asked.repeated().values()) if given.noise is None else given.noise
    found = measured.read(given.measurements, given.runs, given.items)
    sheets = {run.id: told(run.impl, run.args) for run in asked.runs.values() if run.kind in OWN}
    bench = Bench(asked.profile, asked.config.seeds, asked.config.suites, found, read_noise(noise), sheets)
    records = judge(asked.papers, asked.runs, bench)
    write_json(given.out, records)
    counts = {verdict: sum(record["verdict"] == verdict for record in records) for verdict in get_args(Verdict)}
    print(f"{given.out}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))


if __name__ == "__main__":
    leave(main)
