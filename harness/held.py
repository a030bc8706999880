"""Which records of evaluations still hold, so that a job with one outdated suite measures that suite alone.

A copy of each record that is `ok` is kept in results/state/<run>/<task>/seed<k>/<suite>.json, where the workflow, which
removes what a job is to make before it starts, does not reach it. Each record says what it rests on (`basis`): a digest
of the code behind its numbers, the suite's settings, the model's weights, the data, the versions of what computes, and
where a clock measures, the machine. Where that is the same today, the copy is put back; so are the suites that a killed
job had finished.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness import dependencies, hub, provenance, records
from harness.config import Profile
from harness.files import read_json, seal, sha256_file, write_json
from harness.metrics import load_suite
from harness.records import Evaluation
from harness.runs import canonical

STATE = Path("results/state")
COMPUTING = ("torch", "numpy", "lm_eval", "transformers", "datasets")


def basis(suite: str, training: dict[str, Any], folder: Path, profile: Profile, on: str) -> str:
    """A digest of all that a suite's numbers rest on; `folder` is where the trained model lies."""
    module = load_suite(suite)
    shape = training.get("model") or {}
    made_of = {training["impl"], shape.get("impl")} - {None}  # a method and what it changes
    subject = ["harness.pretrained"] if training.get("hf") else sorted(f"impls.{impl}" for impl in made_of)
    code = dependencies.job("harness.evaluate", f"harness.suites.{suite}", f"harness.tasks.{module.TASK}", *subject)
    files = hub.files(training["hf"], profile.hub) if training.get("hf") else []
    files += module.files(profile) if hasattr(module, "files") else []
    manifest = profile.data.folder / "manifest.json"
    weights = training.get("digest") or sha256_file(folder / "model.safetensors")
    whole = {
        "code": {path: sha256_file(dependencies.ROOT / path) for path in code},
        "versions": {name: _version(name) for name in COMPUTING},
        "device": [on.partition(":")[0], provenance.kernels(on)],
        "machine": provenance.hardware(on) if any(metric.timed for metric in module.METRICS.values()) else None,
        "model": [weights, shape, training["settings"], training["seed"]],
        "suite": [profile.suite(suite).model_dump(mode="json"), module.cells(profile)],
        "corpus": sha256_file(manifest) if manifest.is_file() else None,
        "files": {str(path): sha256_file(path) for path in files if path.is_file()},
        "lacking": module.obstacles(profile) if hasattr(module, "obstacles") else {},
    }
    return hashlib.sha256(canonical(whole).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def find(run: str, suite: str, seed: int, basis: str, state: Path = STATE) -> Evaluation | None:
    """The record that was kept, if it rests on this very basis."""
    task = load_suite(suite).TASK
    path = records.folder(run, task, seed, state) / f"{suite}.json"
    wanted = {"run": run, "task": task, "seed": seed, "suite": suite, "status": "ok", "basis": basis}
    try:
        kept = read_json(path)
        record = Evaluation.model_validate(kept["record"])
        whole = kept["seal"] == seal(kept["record"])
    except (OSError, ValueError, KeyError, TypeError):  # none, or a damaged one
        return None
    return record if whole and wanted.items() <= vars(record).items() else None


def keep(record: Evaluation, state: Path = STATE) -> None:
    """A copy of a record that is `ok`, with what the model wrote."""
    if record.status == "ok" and record.basis:
        path = records.folder(record.run, record.task, record.seed, state) / f"{record.suite}.json"
        kept = record.model_dump()
        write_json(path, {"record": kept, "seal": seal(kept)})
