"""Judge every claim of every paper by the rule of `harness.verdict`: results/verdicts.json.

Reads the papers, the configuration, measurements.csv, runs.json and, where they exist, items.parquet (scores of items
that all seeds share) and noise.json (by metric key, what another order of the data alone changes).
The result depends on what these hold, not on the order in which they hold it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
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


def read_noise(path: Path) -> dict[str, float]:
    """Noise floors by metric key; none where the file does not exist. Raises UserError for anything but numbers ≥ 0."""
    if not path.is_file():
        return {}
    try:
        floors = read_json(path)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); remove it, or write {{}} to have no noise floor") from None
    if not isinstance(floors, dict):
        raise UserError(f'{path} must map metric keys to numbers, as in {{"loss/test/bits_per_byte": 0.01}}')
    for key, floor in floors.items():
        if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor < float("inf"):
            raise UserError(f"{path}: the noise floor of {key} is {floor!r}; give a number of at least 0")
    return {key: float(floor) for key, floor in floors.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.judge", description="Judge every claim of every paper.")
    add_options(parser)
    results = Path("results")
    parser.add_argument("--measurements", type=Path, default=results / "measurements.csv", help="or the .parquet")
    parser.add_argument("--runs", type=Path, default=results / "runs.json")
    parser.add_argument("--items", type=Path, default=results / "items.parquet", help="optional")
    parser.add_argument("--noise", type=Path, default=results / "noise.json", help="optional")
    parser.add_argument("--out", type=Path, default=results / "verdicts.json")
    given = parser.parse_args(arguments)
    asked = Plan.asked(given)
    found = measured.read(given.measurements, given.runs, given.items)
    bench = Bench(asked.profile, asked.config.seeds, asked.config.suites, found, read_noise(given.noise))
    records = judge(asked.papers, asked.runs, bench)
    write_json(given.out, records)
    counts = {verdict: sum(record["verdict"] == verdict for record in records) for verdict in get_args(Verdict)}
    print(f"{given.out}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))


if __name__ == "__main__":
    leave(main)
