"""Apply a method to the model that a training left, and leave what a training leaves.

    python -m harness.apply sixteen_heads-1a2b3c4d --task lm --seed 0 --profile laptop

    results/runs/<run>/<task>/seed<k>/model.safetensors    weights; no tensors where it failed
    results/runs/<run>/<task>/seed<k>/method.json          what the method reports, in the form of a suite's numbers
    results/runs/<run>/<task>/seed<k>/run.json             settings, what was chosen, status; written last

It starts from the model of the base with the same task and seed, and calibrates on the batches of the training split
that would have come next. What fails for the method's own reasons, or because the base has no model, is recorded with
the reason and the command succeeds, unless `--strict`. Equal inputs give equal bytes but for `seconds`.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

import impls
from harness import cost, device, lock, model, provenance, records, tasks
from harness.arguments import device_name, seed
from harness.config import load_profile
from harness.deterministic import be_deterministic
from harness.errors import UserError, leave, of_machine
from harness.files import write_atomic, write_json
from harness.job import Job, find
from harness.records import Evaluation, Measurement
from harness.studies import METHOD
from harness.suites import Row, shortfall


@dataclass(frozen=True)
class Applied:
    """A changed model: its weights, what the record says of it, and what the method reports."""

    weights: Mapping[str, Tensor] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    rows: list[Measurement] = field(default_factory=list)


def make(job: Job, effort: float, on: str) -> dict[str, Any]:
    """Apply, write the files above, and return the record. Raises UserError where the base was not trained yet."""
    start = time.perf_counter()
    be_deterministic(on)
    try:
        place = records.folder(str(job.run.base), job.task, job.seed)
        base = records.read_training(place / "run.json", run=job.run.base, task=job.task, seed=job.seed)
    except ValueError as error:
        raise UserError(str(error)) from None
    applied, reason = Applied(), None
    try:
        applied = apply(job, base, effort, on)
    except Exception as error:  # whatever a method raises is the reason of its failure
        if of_machine(error):
            raise
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
    record = describe(job, base, effort, on) | dict(applied.record)
    record |= {"status": "failed" if reason else "ok", "reason": reason, "seconds": time.perf_counter() - start}
    record["seconds"] = round(record["seconds"], 3)
    shared = ("run", "impl", "task", "seed", "status", "reason", "commit", "seconds")
    measured = Evaluation(**{key: record[key] for key in shared}, suite=METHOD, rows=applied.rows)
    content = save(dict(applied.weights))
    record["digest"] = hashlib.sha256(content).hexdigest()
    write_atomic(job.folder / "model.safetensors", content)
    write_json(job.folder / "method.json", measured.model_dump(exclude={"raw"}))
    write_json(job.folder / "run.json", record)
    return record


def apply(job: Job, base: Mapping[str, Any], effort: float, on: str) -> Applied:
    """The changed model. Raises ValueError where the base has none, and whatever the method raises."""
    if base["status"] != "ok":
        raise ValueError(f"its base {base['run']} {base['status']}: {base['reason']}")
    method = impls.build_method(job.run.impl, job.run.args_at(job.task), effort)
    settings = tasks.load(job.task).Settings.model_validate(base["settings"])
    task = tasks.load(job.task).Task(settings, job.seed, job.run.data.folder)
    steps = range(settings.steps, settings.steps + method.scaled(method.BATCHES))
    drawn = [task.batch(step) for step in steps]
    batches = [(torch.from_numpy(x_BT).to(on), torch.from_numpy(y_BT).to(on)) for x_BT, y_BT in drawn]
    made = method.apply(model.load(records.folder(base["run"], job.task, job.seed), on), batches, job.seed)
    found = method.report(made.shape.method["choices"])
    rows = [Row(job.task, None, name, float(value), 1) for name, value in found.items()]
    lacking = shortfall([(job.task, None, name) for name in method.METRICS], {row.cell: row for row in rows})
    if lacking:
        raise ValueError(f"its report is not that of METRICS: {lacking}")
    parameters = sum(weight.numel() for weight in made.parameters())
    budget = base["reference_parameters"]
    record = {
        "model": dataclasses.asdict(made.shape),
        "parameters": parameters,
        "within_budget": abs(parameters - budget) <= cost.TOLERANCE * budget,
        "calibration_tokens": sum(inputs_BT.numel() for inputs_BT, _ in batches),
    }
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in made.state_dict().items()}
    return Applied(weights, record, [records.measurement(row, method.METRICS[row.metric]) for row in rows])


def describe(job: Job, base: Mapping[str, Any], effort: float, on: str) -> dict[str, Any]:
    """What is known before it starts; what training says of the base is taken from there."""
    taken = ("settings", "tokens", "bytes_per_token", "reference_parameters", "mlp_width")
    return {
        "run": job.run.id,
        "impl": job.run.impl,
        "args": job.run.args_at(job.task),
        "recipe": {},
        "base": job.run.base,
        "task": job.task,
        "seed": job.seed,
        "profile": job.profile,
        "effort": effort,
        "model": None,
        "parameters": None,
        "within_budget": None,
        "final_loss": None,
        "step": 0,
        "steps": 0,
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(on),
        "device": on,
        "threads": torch.get_num_threads(),
    } | {key: base.get(key) for key in taken}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.apply", description="Apply a method to a trained model.")
    parser.add_argument("run", help="a run id, such as sixteen_heads-1a2b3c4d")
    parser.add_argument("--task", required=True, help=f"one of {', '.join(tasks.names())}")
    parser.add_argument("--seed", type=seed, required=True)
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when it fails")
    given = parser.parse_args()
    job = find(given.run, given.task, given.seed, given.profile, "apply")
    lock.hold(job.state_file.with_name("lock"), wait=True)  # of a job that outlived its killed workflow
    with device.claim(given.device) as on:
        record = make(job, load_profile(given.profile).effort, on)
    why = f": {record['reason']}" if record["reason"] else ""
    print(
        f"{job.run.id} {job.task} seed {job.seed}: {record['status']} in {record['seconds']:.1f} s{why}",
        file=sys.stderr,
        flush=True,
    )
    return int(given.strict and record["status"] != "ok")


if __name__ == "__main__":
    leave(main)
