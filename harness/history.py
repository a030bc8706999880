"""Keep a small record of each build: results/history/<time>-<commit>.json, and index.json, their names in order.

A record holds the measurements and verdicts, and what they came from: digests of specs, mechanisms and code, versions,
hardware. A build that found out nothing new keeps no second record. `python -m harness.diff` compares two of them.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness import dependencies, provenance
from harness.errors import UserError, leave
from harness.files import read_json, read_made, sha256_file, write_json
from harness.measured import Place
from harness.plan import Plan, add_options
from harness.runs import RunSettings, canonical
from harness.studies import timed

FOLDER = Path("results/history")
NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z0-9-]+\.json")
CLOCK = "%Y-%m-%d %H:%M:%S"  # UTC
PASSING = ("time", "commit")  # what may differ between two builds that found out the same
INPUTS = ("profile", "seeds", "suites", "settings", "specs", "mechanisms", "code", "versions", "hardware")
PARTS = {*PASSING, *INPUTS, "runs", "values", "verdicts"}
CODE = {  # digests by which a changed number is traced to the code that made it
    "training": ("harness.train",),
    "evaluation": ("harness.evaluate",),
    "judging": ("harness.judge",),
}


def snapshot(plan: Plan, results: Path, now: datetime) -> dict[str, Any]:
    """What is kept of a build. Raises UserError when its tables are not there."""
    rows, trainings, verdicts = (
        read_made(results / f"{name}.json", f"python -m harness.{step}")
        for name, step in (("measurements", "aggregate"), ("runs", "aggregate"), ("verdicts", "judge"))
    )
    values: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        place = str(Place(row["suite"], row["task"], row["metric"], row["length"]))
        values.setdefault(row["run"], {}).setdefault(place, {})[str(row["seed"])] = row["value"]
    impls = sorted({run.impl for run in plan.runs.values() if not run.hf})
    return {
        "time": now.astimezone(UTC).strftime(CLOCK),
        "commit": provenance.commit(),
        "profile": plan.profile.name,
        "seeds": list(plan.config.seeds),
        "suites": list(plan.config.suites),
        "settings": {name: _digest(part) for name, part in _settings(plan).items()},
        "specs": {slug: _digest(paper.model_dump(mode="json")) for slug, paper in plan.papers.items()},
        "mechanisms": {impl: _files(dependencies.job(f"impls.{impl}")) for impl in impls},  # studies and methods, too
        "code": {name: _files(dependencies.job(*modules)) for name, modules in CODE.items()}
        | {f"suite {suite}": _files(dependencies.job(f"harness.suites.{suite}")) for suite in plan.config.suites},
        "versions": _distinct(training.get("versions") for training in trainings),
        "hardware": _distinct(training.get("hardware") for training in trainings),
        "runs": {run.id: _named(run, plan) for run in plan.runs.values()},
        "values": values,
        "verdicts": {
            f"{verdict['paper']}/{verdict['claim']}": {key: verdict.get(key) for key in ("verdict", "difference")}
            for verdict in verdicts
        },
    }


def keep(record: Mapping[str, Any], folder: Path = FOLDER) -> Path | None:
    """Write a record and the index; None where the latest record says the same, which is then left alone.

    Where the clock was put back, a record is of one second after the latest, so that records stay in order.
    """
    kept = names(folder)
    made = None
    latest = read(folder / kept[-1]) if kept else None
    if latest is None or _lasting(latest) != _lasting(record):
        if latest is not None and record["time"] <= latest["time"]:
            after = datetime.strptime(latest["time"], CLOCK) + timedelta(seconds=1)
            record = {**record, "time": after.strftime(CLOCK)}
        stamp = re.sub(r"[-: ]", "", str(record["time"]))
        commit = re.sub(r"[^a-z0-9-]", "", str(record["commit"]))
        made = folder / f"{stamp[:8]}T{stamp[8:]}Z-{commit[:12]}{'-dirty' * commit.endswith('-dirty')}.json"
        write_json(made, record)
    write_json(folder / "index.json", names(folder))
    return made


def names(folder: Path = FOLDER) -> list[str]:
    """The files of the records, oldest first."""
    return sorted(path.name for path in folder.glob("*.json") if NAME.fullmatch(path.name))


def latest(count: int, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The last records, oldest first."""
    return [read(folder / name) for name in names(folder)[-count:]]


def read(path: Path) -> dict[str, Any]:
    """One record. Raises UserError where the file holds none."""
    try:
        record = read_json(path)
        whole = isinstance(record, dict) and record.keys() >= PARTS
    except (OSError, ValueError):
        record, whole = {}, False
    if not whole:
        raise UserError(f"{path} is no record of a build; give a file of {FOLDER}, or remove it from there")
    return record


def _named(run: RunSettings, plan: Plan) -> dict[str, Any]:
    """What a run is, in any build; a method with what it changes."""
    base = {"base": _named(plan.runs[run.base], plan)} if run.base else {}
    hub = {"hf": run.hf} if run.hf else {}
    return {"impl": run.impl, "args": run.args, "recipe": run.recipe} | hub | base


def _settings(plan: Plan) -> dict[str, Any]:
    profile = plan.profile
    parts = {"data": profile.data, **{f"task {name}": task for name, task in profile.tasks.items()}}
    parts |= {f"suite {name}": profile.suites[name] for name in plan.config.suites if name in profile.suites}
    return {name: part.model_dump(mode="json") for name, part in parts.items()} | {"effort": profile.effort}


def _lasting(record: Mapping[str, Any]) -> dict[str, Any]:
    """What two builds that found out the same agree in: no clock measured it. Differences follow from values."""
    values = {
        run: {place: z for place, z in cells.items() if not timed(record["runs"][run], place)}
        for run, cells in record["values"].items()
    }
    verdicts = {claim: found["verdict"] for claim, found in record["verdicts"].items()}
    return {key: value for key, value in record.items() if key not in PASSING} | {
        "values": values,
        "verdicts": verdicts,
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def _files(paths: Iterable[str]) -> str:
    return _digest({path: sha256_file(dependencies.ROOT / path) for path in paths})


def _distinct(found: Iterable[Mapping[str, Any] | None]) -> dict[str, list[str]]:
    """By name, every value that any training recorded, as text."""
    values: dict[str, set[str]] = {}
    for each in found:
        for name, value in (each or {}).items():
            if value is not None:
                values.setdefault(name, set()).add(str(value))
    return {name: sorted(values[name]) for name in sorted(values)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.history", description="Keep a record of this build.")
    add_options(parser)
    plan = Plan.asked(parser.parse_args())
    made = keep(snapshot(plan, Path("results"), datetime.now(UTC)))
    print(made or "nothing new since the latest record", file=sys.stderr)


if __name__ == "__main__":
    leave(main)
