"""Measure one run with some suites, one after the other: results/runs/<run>/<task>/seed<k>/<suite>.json.

    python -m harness.evaluate softmax-1a2b3c4d --suite loss recall --seed 0 --profile laptop

Each suite says which task's model it measures: the one that the training left beside `run.json`, in fp32. A training
without a model leaves the suite `blocked`, a suite that raises or meets a NaN is `failed`, each with its reason; both
are results, so the exit code is 0 unless `--strict`. Equal inputs give equal bytes but for `commit` and `seconds`.
Where an earlier record still holds (`harness.held`), it is put back and nothing is measured, unless `--anew`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from harness import device, held, model, pretrained, provenance, records, suites, tasks
from harness.arguments import device_name, seed, threads
from harness.config import Profile, load_profile
from harness.deterministic import be_deterministic
from harness.errors import UserError, leave, of_machine
from harness.files import write_json
from harness.metrics import load_suite
from harness.records import Evaluation
from harness.runs import unasked
from harness.suites import Gap, Questions, Row, Sample, is_number, shortfall


def evaluate(run: str, suite: str, seed: int, profile: Profile, on: str, runs: Path = records.RUNS) -> Evaluation:
    """The record of one cell; nothing is written. Raises UserError when the run was not trained."""
    start = time.perf_counter()
    module = load_suite(suite)
    folder = records.folder(run, module.TASK, seed, runs)
    try:
        training = records.read_training(folder / "run.json", run=run, task=module.TASK, seed=seed)
    except ValueError as error:
        raise UserError(str(error)) from None
    found = Findings()
    if training.get("hf") and not getattr(module, "PRETRAINED", False):
        status, reason = "blocked", f"not applicable: {suite} measures models trained here, not one from the Hub"
    elif training["status"] == "ok":
        found = measure(module, folder, training["settings"], profile, seed, on)
        status, reason = "failed" if found.reason else "ok", found.reason
    else:
        status, reason = "blocked", f"training {training['status']}: {training['reason']}"
    return Evaluation(
        run=run,
        impl=training["impl"],
        task=module.TASK,
        seed=seed,
        suite=suite,
        status=status,
        reason=reason,
        commit=provenance.commit(),
        seconds=round(time.perf_counter() - start, 2),
        rows=[records.measurement(row, module.METRICS[row.metric]) for row in found.rows],
        items={name: scores for row in found.rows for name, scores in records.packed(row).items()},
        gaps={suites.name(gap.cell): gap.reason for gap in found.gaps},
        questions={_asked(each): each.sha256 for each in found.questions},
        raw=[records.Raw(**{**vars(sample), "answers": list(sample.answers)}) for sample in found.samples],
    )


@dataclass(frozen=True)
class Findings:
    """What a suite found out: rows that are numbers, in its order; why some are missing, if some are."""

    rows: Sequence[Row] = ()
    reason: str | None = None
    gaps: Sequence[Gap] = ()
    samples: Sequence[Sample] = ()  # at most SAMPLES of each task and length
    questions: Sequence[Questions] = ()


def _asked(questions: Questions) -> str:
    return questions.task + ("" if questions.length is None else f"@{questions.length}")


def measure(
    module: ModuleType, folder: Path, trained_with: dict[str, Any], profile: Profile, seed: int, on: str
) -> Findings:
    """The suite's findings, whatever happens on the way."""
    wanted = module.cells(profile)
    found: dict[suites.Cell, Row] = {}
    gaps: dict[suites.Cell, Gap] = {}
    samples: dict[tuple[str, int | None], list[Sample]] = defaultdict(list)
    asked: list[Questions] = []
    reason = None
    try:
        settings, trained = subject(module, folder, trained_with, profile, on)
        with undisturbed(trained, on):
            rows = module.evaluate(trained, settings, profile, seed, on)
            for row in tqdm(rows, total=len(wanted), unit="cell", disable=None):
                if isinstance(row, Sample):
                    samples[row.task, row.length].append(row)
                elif isinstance(row, Questions):
                    asked.append(row)
                elif isinstance(row, Gap):
                    gaps[row.cell] = row
                else:
                    found[row.cell] = row
    except Exception as error:
        if of_machine(error):
            raise
        traceback.print_exc()
        reason = " ".join(str(error if isinstance(error, UserError) else f"{type(error).__name__}: {error}").split())
    numbers = [found[cell] for cell in wanted if cell in found and is_number(found[cell])]
    allowed = getattr(module, "may_lack", lambda cell: False)
    reason = reason or shortfall(wanted, found, lambda cell: cell in gaps or allowed(cell))
    kept = [sample for drawn in samples.values() for sample in drawn[: suites.SAMPLES]]
    return Findings(numbers, reason, [gap for gap in gaps.values() if gap.cell not in found], kept, asked)


def subject(module: ModuleType, folder: Path, trained_with: dict[str, Any], profile: Profile, on: str) -> Any:
    """(settings, model) of what was trained in the folder, or is from the Hub. Raises UserError when it is neither."""
    if "hf" in trained_with:
        settings = pretrained.Settings.model_validate(trained_with)
        return settings, pretrained.load(settings.hf, profile.hub, on)
    return tasks.load(module.TASK).Settings.model_validate(trained_with), model.load(folder, on)


@contextmanager
def undisturbed(trained: nn.Module, on: str = "cpu") -> Iterator[None]:
    """No gradients, no dropout; afterwards every module's mode and torch's random state are what they were."""
    modes = {module: module.training for module in trained.modules()}
    with torch.random.fork_rng(devices=[on] if on.startswith("cuda") else []), torch.no_grad():
        trained.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.evaluate", description="Measure the models of a run with some suites."
    )
    parser.add_argument("run", help="its name, a folder of results/runs")
    parser.add_argument("--suite", required=True, nargs="+", help="modules of harness/suites")
    parser.add_argument("--untrained", nargs="+", default=[], metavar="TASK", help="that no claim measures the run on")
    parser.add_argument("--seed", required=True, type=seed, help="of the training")
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument("--hub", help="a folder that stands for the Hugging Face Hub")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:1 (default: %(default)s)"
    )
    parser.add_argument("--threads", type=threads, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--anew", action="store_true", help="measure even where an earlier record still holds")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a suite is blocked or failed")
    given = parser.parse_args()
    profile = load_profile(given.profile)
    if given.hub:
        profile = profile.model_copy(update={"hub": given.hub})
    asked = [suite for suite in given.suite if load_suite(suite).TASK not in given.untrained]
    for suite in given.suite:
        if suite not in asked:
            write(blocked(given.run, suite, given.seed))
    with device.claim(given.device, given.threads) as on:
        be_deterministic(on)
        measured = [
            write(held_or_measured(given.run, suite, given.seed, profile, on, anew=given.anew)) for suite in asked
        ]
    return int(given.strict and any(record.status != "ok" for record in measured))


def held_or_measured(
    run: str,
    suite: str,
    seed: int,
    profile: Profile,
    on: str,
    runs: Path = records.RUNS,
    state: Path = held.STATE,
    anew: bool = False,
) -> Evaluation:
    """The record of one cell: the one that was kept where it still holds, else or `anew` a new one, which is kept."""
    try:
        folder = records.folder(run, load_suite(suite).TASK, seed, runs)
        training = records.read_training(folder / "run.json", run=run, seed=seed)
        basis = held.basis(suite, training, folder, profile, on) if training["status"] == "ok" else None
    except (ValueError, OSError):  # `evaluate` says what is missing
        basis = None
    kept = held.find(run, suite, seed, basis, state) if basis and not anew else None
    if kept:
        print(f"{suite}: nothing that its numbers rest on has changed", file=sys.stderr)
        return kept
    record = evaluate(run, suite, seed, profile, on, runs).model_copy(update={"basis": basis})
    held.keep(record, state)
    return record


def blocked(run: str, suite: str, seed: int) -> Evaluation:
    """The record of a suite whose task no claim measures the run on."""
    task = load_suite(suite).TASK
    return Evaluation(
        run=run,
        impl=run.rpartition("-")[0],
        task=task,
        seed=seed,
        suite=suite,
        status="blocked",
        reason=unasked(task),
        commit=provenance.commit(),
        seconds=0.0,
        rows=[],
    )


def write(record: Evaluation, runs: Path = records.RUNS) -> Evaluation:
    """Put the record in its place, and say so."""
    path = records.folder(record.run, record.task, record.seed, runs) / f"{record.suite}.json"
    write_json(path, record.model_dump(exclude={"raw"}))
    if record.raw:
        write_json(path.with_suffix(".raw.json"), record.model_dump(include={"raw"})["raw"])
    elif record.status != "ok":  # what lies there was written for an earlier record
        path.with_suffix(".raw.json").unlink(missing_ok=True)
    print(f"{path}: {record.status}, {len(record.rows)} measurements in {record.seconds:.1f} s", file=sys.stderr)
    if record.reason:
        print(record.reason, file=sys.stderr)
    return record


if __name__ == "__main__":
    leave(main)
