"""Gather what every run of the plan left on disk into tables.

    results/measurements.{csv,parquet,json}   one measurement a row, the same rows in each, sorted
    results/runs.json                         one training a record, with its suites and, for what is missing, why
    results/items.parquet                     scores behind the measurements, see harness.items
    results/SHA256SUMS                        checksums of these, by which their readers see damage; written last

Only finite numbers of the runs, seeds, suites and cells that config and papers ask for get into the tables. What was
not measured is no row: never 0, -1 or NaN. A file that is damaged, or that says it is of another run or seed than its
place does, gives no rows and its reason stands in runs.json. Each row carries the commit that measured it; a table of
several commits is said to be mixed, in the output and at each run that was trained by one and measured by another.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from harness import costs, items, records, suites
from harness.errors import leave
from harness.files import read_json, write_atomic, write_sums
from harness.metrics import load_suite
from harness.plan import Plan, add_options
from harness.records import Evaluation
from harness.runs import RunSettings, unasked
from harness.studies import OWN, STUDY, told

COLUMNS = {
    "run": str,
    "impl": str,
    "seed": int,
    "suite": str,
    "task": str,
    "length": int,
    "metric": str,
    "value": float,
    "n": int,
    "stderr": float,
    "unit": str,
    "commit": str,
}
TABLES = ("measurements.csv", "measurements.parquet", "measurements.json", "runs.json", "items.parquet")
CURVE_POINTS = 100  # of each learning curve in runs.json, to five digits; curve.jsonl beside the weights has them all
Table = list[dict[str, Any]]


def collect(plan: Plan, runs: Path = records.RUNS) -> tuple[Table, Table]:
    """(measurements, trainings) of everything the plan asks for; a training that is not there is a record too."""
    rows, trainings = [], []
    for run in plan.runs.values():
        for task in plan.tasks_of(run.id):
            for seed in plan.seeds(run.id):
                folder = records.folder(run.id, task, seed, runs)
                identity = {"run": run.id, "impl": run.impl, "task": task, "seed": seed}
                training = {"args": run.args, "recipe": run.recipe, "profile": plan.profile.name, **identity}
                if plan.asks(run.id, task):
                    training |= read_training(folder / "run.json", identity)
                    training["curve"] = curve(folder / "curve.jsonl")
                else:  # whatever lies there is of another profile
                    training |= {"status": "skipped", "reason": unasked(task), "curve": []}
                training["suites"] = {}
                for suite, wanted in cells(plan, run, task).items():
                    if plan.asks(run.id, task):
                        found, training["suites"][suite] = read_suite(folder, suite, identity, wanted)
                        rows += found
                    else:
                        training["suites"][suite] = unmeasured("blocked", unasked(task), wanted)
                training["mixed"] = mixed(training)
                trainings.append(training)
    return sorted(rows, key=_order), sorted(trainings, key=lambda training: _order(training, ("run", "task", "seed")))


def cells(plan: Plan, run: RunSettings, task: str) -> dict[str, list[suites.Cell]]:
    """By suite, what is measured of a run's model of a task; a study or method measures something itself."""
    found = {suite: load_suite(suite).cells(plan.profile) for suite, trained in plan.tasks.items() if trained == task}
    if run.kind in OWN and plan.asks(run.id, task):
        found[run.kind] = [cell for cell in told(run.impl, run.args).cells if run.kind == STUDY or cell[0] == task]
    return found


def read_training(path: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The content of run.json; or a status `missing` or `failed` with the reason."""
    try:
        return records.read_training(path, **identity)
    except ValueError as error:
        return {"status": "failed" if path.is_file() else "missing", "reason": str(error)}


def read_suite(
    folder: Path, suite: str, identity: dict[str, Any], wanted: list[suites.Cell]
) -> tuple[Table, dict[str, Any]]:
    """(rows of the table, state of the suite) of one evaluation; no rows where the file is not to be trusted."""
    path = folder / f"{suite}.json"
    try:
        found = records.read_evaluation(path, suite=suite, **identity)
        trust(path, found, wanted)
    except ValueError as error:
        return [], unmeasured("failed" if path.is_file() else "missing", str(error), wanted)
    measured = {row.cell for row in found.rows}
    state = {key: getattr(found, key) for key in ("status", "reason", "seconds", "commit", "gaps")}
    return table(found), state | {"missing": [suites.name(cell) for cell in wanted if cell not in measured]}


def unmeasured(status: str, reason: str, wanted: list[suites.Cell]) -> dict[str, Any]:
    """The state of a suite without a record."""
    missing = [suites.name(cell) for cell in wanted]
    return {"status": status, "reason": reason, "seconds": None, "commit": None, "gaps": {}, "missing": missing}


def trust(path: Path, found: Evaluation, wanted: list[suites.Cell]) -> None:
    """Raises ValueError for a cell that stands twice or that the profile does not ask for, and for a damaged score."""
    cells = [row.cell for row in found.rows]
    for cell in cells:
        if cells.count(cell) > 1:
            raise ValueError(f"{path} holds {suites.name(cell)} twice; {records.MEND}")
        if cell not in wanted:
            raise ValueError(f"{path} holds {suites.name(cell)}, which the profile does not ask for; {records.MEND}")
    for name, scores in found.items.items():
        try:
            records.unpacked(scores)
        except ValueError as error:
            raise ValueError(f"{path} is damaged (items of {name}: {error}); {records.MEND}") from None


def table(found: Evaluation) -> Table:
    """Rows of the measurements table, with every column."""
    shared = {"run": found.run, "impl": found.impl, "seed": found.seed, "suite": found.suite, "commit": found.commit}
    return [{column: (shared | row.model_dump())[column] for column in COLUMNS} for row in found.rows]


def curve(path: Path) -> list[list[float]]:
    """[[step, loss], …] of a learning curve, at most `CURVE_POINTS`, the first and the last among them."""
    try:
        points = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return []
    losses = [(p["step"], p["loss"]) for p in points if p["loss"] is not None and isfinite(p["loss"])]
    return thin([[step, float(f"{loss:.5g}")] for step, loss in losses], CURVE_POINTS)


def thin(points: list[Any], most: int) -> list[Any]:
    """Evenly spaced points, at most `most` >= 2, with both ends."""
    if len(points) <= most:
        return points
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def mixed(training: dict[str, Any]) -> str | None:
    """One sentence when a run was not trained and measured by one commit; None when it was."""
    commits = {"training": training.get("commit")} | {
        name: state["commit"] for name, state in training["suites"].items()
    }
    made = {name: commit for name, commit in commits.items() if commit}
    if len(set(made.values())) < 2:
        return None
    return "made by different versions: " + ", ".join(f"{name} by {commit[:12]}" for name, commit in made.items())


def to_csv(rows: Table) -> str:
    """Comma-separated, with a header; an empty field is a missing standard error or a measurement without a length."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(["" if row[column] is None else row[column] for column in COLUMNS] for row in rows)
    return buffer.getvalue()


def to_json(records: Table) -> str:
    """An array with one record a line. Raises ValueError for NaN and infinity."""
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def to_parquet(rows: Table) -> bytes:
    """The same, typed; a missing field is null."""
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(column, types[kind]) for column, kind in COLUMNS.items()])
    buffer = BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer, compression="zstd")
    return buffer.getvalue()


def write(rows: Table, trainings: Table, results: Path) -> None:
    """The measurements and the trainings, each file atomically."""
    write_atomic(results / "measurements.csv", to_csv(rows))
    write_atomic(results / "measurements.parquet", to_parquet(rows))
    write_atomic(results / "measurements.json", to_json(rows))
    write_atomic(results / "runs.json", to_json(trainings))


def write_items(rows: Table, results: Path) -> None:
    """items.parquet, atomically."""
    write_atomic(results / "items.parquet", items.to_parquet(items.gather(rows, results / "runs")))


def report(rows: Table, trainings: Table) -> Iterator[str]:
    """What was gathered and what is missing, a line each."""
    studied = sum(training["task"] == STUDY for training in trainings)
    more = f" and {studied} studies" if studied else ""
    yield f"{len(rows):,} measurements of {len(trainings) - studied} trained models{more}"
    for training in trainings:
        place = f"{training['run']} {training['task']} seed {training['seed']}"
        if training["status"] != "ok":
            yield f"{place}: training {training['status']}: {training['reason']}"
        for suite, state in training["suites"].items():
            if training["status"] == "ok" and state["status"] != "ok":
                yield f"{place}: {suite} {state['status']}: {state['reason']}"
    commits = sorted({row["commit"] for row in rows})
    if len(commits) > 1:
        yield f"mixed: these measurements were made by {len(commits)} versions of the code: {', '.join(commits)}"


def _order(row: dict[str, Any], columns: tuple[str, ...] = ("run", "seed", "suite", "task", "length", "metric")) -> Any:
    return tuple((row[column] is not None, row[column]) for column in columns)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.aggregate", description="Gather all results into tables.")
    add_options(parser)
    rows, trainings = collect(Plan.asked(parser.parse_args()))
    costs.merged(trainings, read_json(costs.FILE) if costs.FILE.is_file() else {})
    write(rows, trainings, Path("results"))
    write_items(rows, Path("results"))
    write_sums(Path("results"), *TABLES)
    print(*report(rows, trainings), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    leave(main)
