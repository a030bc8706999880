"""Make a study with one seed: what it measures, and how that went.

    python -m harness.study trigger_sinks-1a2b3c4d --seed 0 --profile laptop

    results/runs/<run>/study/seed<k>/study.json    its measurements, in the form of a suite's
    results/runs/<run>/study/seed<k>/run.json      settings, status, what it took; written last
    results/state/<run>/study/seed<k>/<part>.json  the rows of a finished part, until the study is

A study that raises, or gives a number that is not finite, is `failed` with its reason and what it measured till then;
that is a result, and the command succeeds, unless `--strict`. Killed and started again, it ends in the same bytes but
for `seconds`: finished parts are not measured again, unless code, settings or machine changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import impls
from harness import dependencies, device, lock, provenance, records
from harness.arguments import device_name, seed
from harness.config import load_profile
from harness.deterministic import be_deterministic
from harness.errors import leave, of_machine
from harness.files import seal, sha256_file, write_atomic, write_json
from harness.job import Job, find
from harness.metrics import Metric
from harness.records import Evaluation
from harness.runs import canonical
from harness.studies import STUDY
from harness.suites import Cell, Row, is_number, name, shortfall
from impls.study import Log


class Notebook(Log):
    """The rows of finished parts in a folder, each part a file; those of other code or settings are not read."""

    def __init__(self, folder: Path, mark: str, title: str, say: Callable[[str], None]):
        self.folder, self.mark, self.title, self.say, self.start = folder, mark, title, say, time.perf_counter()

    def kept(self, part: str) -> list[Row] | None:
        try:
            found = json.loads((self.folder / f"{part}.json").read_text(encoding="utf-8"))
            rows = [Row(**row) for row in found["rows"]] if found["mark"] == seal(self.mark, found["rows"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if rows is not None:
            self.say(f"{self.title}: {part} was measured before")
        return rows

    def keep(self, part: str, rows: list[Row]) -> None:
        plain = [dataclasses.asdict(row) | {"items": [float(item) for item in row.items]} for row in rows]
        write_atomic(self.folder / f"{part}.json", json.dumps({"mark": seal(self.mark, plain), "rows": plain}))
        now = time.perf_counter()
        self.say(f"{self.title}: {part}, {len(rows)} measurements in {now - self.start:.1f} s")
        self.start = now


def make(job: Job, effort: float, on: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure, write the files above, and return the record."""
    start = time.perf_counter()
    be_deterministic(on)
    record = describe(job, effort, on)
    found: dict[Cell, Row] = {}
    wanted: list[Cell] = []
    metrics: dict[str, Metric] = {}
    try:
        study = impls.build_study(job.run.impl, job.run.args, effort)
        wanted, metrics = study.cells(), dict(study.METRICS)
        title = f"{job.run.id} seed {job.seed}"
        for row in study.run(
            job.seed, on, Notebook(job.state_file.parent, fingerprint(record, study.files()), title, say)
        ):
            if row.cell in found:
                raise ValueError(f"{name(row.cell)} is measured twice")
            found[row.cell] = plain(row)
        unknown = sorted({metric for *_, metric in wanted} - metrics.keys())
        reason = f"announced by cells() but not in METRICS: {', '.join(unknown)}" if unknown else None
        reason = reason or shortfall(wanted, found)
    except Exception as error:  # whatever a study raises is the reason of its failure
        if of_machine(error):
            raise
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
    rows = [found[cell] for cell in wanted if cell in found and is_number(found[cell]) and cell[2] in metrics]
    record |= {
        "status": "failed" if reason else "ok",
        "reason": reason,
        "seconds": round(time.perf_counter() - start, 2),
    }
    measured = Evaluation(
        **{key: record[key] for key in ("run", "impl", "task", "seed", "status", "reason", "commit", "seconds")},
        suite=STUDY,
        rows=[records.measurement(row, metrics[row.metric]) for row in rows],
        items={cell: scores for row in rows for cell, scores in records.packed(row).items()},
    )
    write_json(job.folder / "study.json", measured.model_dump(exclude={"raw"}))
    write_json(job.folder / "run.json", record)
    if not reason:  # else the next attempt goes on from the finished parts
        shutil.rmtree(job.state_file.parent, ignore_errors=True)
    return record


def plain(row: Row) -> Row:
    """The same in Python's own numbers, as it is read from disk."""
    stderr = None if row.stderr is None else float(row.stderr)
    return dataclasses.replace(row, value=float(row.value), n=int(row.n), stderr=stderr)


def describe(job: Job, effort: float, on: str) -> dict[str, Any]:
    """What is known of a study before it starts."""
    import torch

    return {
        "run": job.run.id,
        "impl": job.run.impl,
        "args": job.run.args,
        "task": STUDY,
        "seed": job.seed,
        "profile": job.profile,
        "effort": effort,
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(on),
        "device": on,
        "threads": torch.get_num_threads(),
    }


def fingerprint(record: dict[str, Any], read: Iterable[str]) -> str:
    """A digest of everything that decides a study's rows: settings, code, versions, instructions, files it reads."""
    whole = {key: record[key] for key in ("run", "seed", "effort", "versions", "threads")}
    whole["hardware"] = {key: value for key, value in record["hardware"].items() if key != "cores"}
    whole["device"] = record["device"].partition(":")[0]
    files = dependencies.job("harness.study", f"impls.{record['impl']}")
    whole["code"] = {file: sha256_file(dependencies.ROOT / file) for file in files}
    whole["files"] = {file: sha256_file(Path(file)) for file in read}
    return hashlib.sha256(canonical(whole).encode()).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.study", description="Make a study with one seed.")
    parser.add_argument("run", help="a run id, such as trigger_sinks-1a2b3c4d")
    parser.add_argument("--seed", type=seed, required=True)
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when the study fails")
    given = parser.parse_args()
    job = find(given.run, STUDY, given.seed, given.profile, "study")
    lock.hold(job.state_file.parent.with_suffix(".lock"), wait=True)  # of a job that outlived its killed workflow

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with device.claim(given.device) as on:
        record = make(job, load_profile(given.profile).effort, on, say)
    why = f": {record['reason']}" if record["reason"] else ""
    say(f"{job.run.id} seed {job.seed}: {record['status']} in {record['seconds']:.1f} s{why}")
    return int(given.strict and record["status"] != "ok")


if __name__ == "__main__":
    leave(main)
