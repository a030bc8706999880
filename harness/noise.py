"""What another order of the data alone changes: results/noise/<task>.json, a difference for each cell and repetition.

    python -m harness.noise softmax-1a2b3c4d --task lm --seed 0 --orders 1000001 --suites loss --profile laptop

A run is trained again from the weights of the same seed, with its data drawn by another one, and measured as before.
The judge lets no verdict rest on less than such a repetition changed. Differences stand in the order of `orders`, with
null for a repetition that did not measure the cell; one that fails is a record with its reason, and sets no floor.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

from harness import lock, provenance, records, suites, tasks
from harness.arguments import device_name, seed
from harness.config import Profile, load_profile
from harness.errors import UserError, leave
from harness.files import write_json
from harness.job import RESULTS, Job, find, with_grid
from harness.train import reason, train


def repeat(
    job: Job, orders: Sequence[int], names: Sequence[str], profile: Profile, on: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """The record of all repetitions; only their models are written. Raises UserError where the run was not measured."""
    cells: dict[str, list[float | None]] = {}
    reasons = []
    for place, order in enumerate(orders):
        again = dataclasses.replace(job, order=order)
        trained = train(again, on, say)
        if trained["status"] != "ok":
            reasons.append(f"training with order {order} {trained['status']}: {trained['reason']}")
            continue
        for suite in names:
            changed, why = differences(again, suite, profile, on)
            reasons += [f"{suite} with order {order}: {why}"] if why else []
            for cell, change in changed.items():
                cells.setdefault(f"{suite}/{cell}", [None] * len(orders))[place] = change
    return {
        "run": job.run.id,
        "task": job.task,
        "seed": job.seed,
        "orders": list(orders),
        "status": "failed" if reasons else "ok",
        "reason": "; ".join(reasons) or None,
        "cells": cells,
        "commit": provenance.commit(),
    }


def differences(again: Job, suite: str, profile: Profile, on: str) -> tuple[dict[str, float], str | None]:
    """(repetition − first, by cell; why some are missing) of one suite."""
    from harness.evaluate import evaluate

    path = records.folder(again.run.id, again.task, again.seed, RESULTS / "runs") / f"{suite}.json"
    try:
        first = records.read_evaluation(path, run=again.run.id, task=again.task, seed=again.seed, suite=suite)
    except ValueError as error:
        raise UserError(str(error)) from None
    second = evaluate(again.run.id, suite, again.seed, profile, on, again.runs)
    before = {row.cell: row.value for row in first.rows}
    changed = {suites.name(row.cell): row.value - before[row.cell] for row in second.rows if row.cell in before}
    return changed, second.reason


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.noise", description="Repeat a run in another order.")
    parser.add_argument("run", help="a run id, such as softmax-1a2b3c4d")
    parser.add_argument("--task", required=True, help=f"one of {', '.join(tasks.names())}")
    parser.add_argument("--seed", type=seed, required=True, help="of the weights, as in the run that is repeated")
    parser.add_argument("--orders", type=seed, nargs="+", required=True, help="seeds of the data, a repetition each")
    parser.add_argument("--suites", nargs="+", required=True, help="that measured the run")
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument("--hub", help="a folder that stands for the Hugging Face Hub")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    given = parser.parse_args()
    profile = load_profile(given.profile)
    if given.hub:
        profile = profile.model_copy(update={"hub": given.hub})
    job = with_grid(find(given.run, given.task, given.seed, given.profile))
    lock.hold(RESULTS / "state" / f"noise-{given.task}.lock", wait=True)  # of a job that outlived its killed workflow

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    from harness.device import claim

    with claim(given.device) as device:
        record = repeat(job, given.orders, given.suites, profile, device, say)
    path = RESULTS / "noise" / f"{given.task}.json"
    write_json(path, record)
    say(f"{path}: {record['status']}, {len(record['cells'])} cells{reason(record)}")


if __name__ == "__main__":
    leave(main)
