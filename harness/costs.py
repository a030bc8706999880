"""What the trained models cost: results/costs.json, by run and training task, counted on the models themselves.

    python -m harness.costs

The shapes are those that the first seed recorded. Equal shapes are counted once; a training that left no shape, or
whose mechanism raises while it is counted, has no costs. See `harness.cost` for what is counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import records
from harness.errors import leave
from harness.files import write_json
from harness.plan import Plan, add_options

Costs = dict[str, dict[str, dict[str, Any]]]  # by run and task, the fields of `cost.Cost`
FILE = Path("results/costs.json")
SHOWN = ("flops_training", "flops_per_token", "flops_decoding", "state_bytes")


def measure(plan: Plan, runs: Path = records.RUNS) -> Costs:
    """The costs of every model of the plan that was built."""
    known: dict[str, dict[str, Any]] = {}
    found: Costs = {}
    for run in plan.runs:
        for task in sorted(set(plan.tasks.values())):
            record = _record(records.folder(run, task, plan.config.seeds[0], runs) / "run.json")
            if not record.get("model"):
                continue
            length = record["settings"]["length"]
            key = json.dumps([record["model"], length], sort_keys=True)
            if key not in known:
                known[key] = _counted(record["model"], length)
            if known[key]:
                found.setdefault(run, {})[task] = known[key]
    return found


def _counted(model: dict[str, Any], length: int) -> dict[str, Any]:
    """The fields of a model's `cost.Cost`; none where it cannot be run."""
    from harness import cost
    from harness.model import Shape

    try:
        return dataclasses.asdict(cost.measure(Shape(**model), length))
    except Exception:  # whatever a mechanism raises leaves its own model without costs, and no other
        traceback.print_exc()
        return {}


def merged(trainings: list[dict[str, Any]], costs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Add to each training what its model costs, where that is known."""
    for training in trainings:
        known = costs.get(training["run"], {}).get(training["task"], {})
        training |= {name: known[name] for name in SHOWN if name in known}


def _record(path: Path) -> dict[str, Any]:
    try:
        return records.read_training(path)
    except ValueError:
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.costs", description="Count what the models cost.")
    add_options(parser)
    found = measure(Plan.asked(parser.parse_args()))
    write_json(FILE, found)
    print(f"{FILE}: {sum(map(len, found.values()))} models of {len(found)} runs", file=sys.stderr)


if __name__ == "__main__":
    leave(main)
