"""What lies ahead of a configuration, told before anything is trained: what is in the way, and what could settle more.

    python -m harness.plan

`refuse` stops at what nothing can be measured with. What only some tasks lack is noted in one sentence each, and is a
gap with that reason in the records; where it is mended, the suite is measured again.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness import hub
from harness.config import Config, Profile
from harness.errors import UserError
from harness.metrics import load_suite

if TYPE_CHECKING:
    from harness.plan import Plan

Reasons = Mapping[str, str]  # by task of a suite


def refuse(config: Config, profile: Profile) -> None:
    """Raises UserError for a folder or a file that is named and is not there, or a corpus that is out of reach."""
    faults = []
    if config.hub and not os.path.isdir(config.hub):
        faults.append(f"hub: {config.hub} is no folder; it is to hold folders named like the ids of the Hub")
    for suite in config.suites:
        named = getattr(load_suite(suite), "named", lambda profile: {})
        faults += [
            f"suites.{suite}.{key}: {file} is missing"
            for key, file in named(profile).items()
            if not os.path.isfile(file)  # False for what is too long for a name, too
        ]
    data = profile.data
    made = (data.folder / "manifest.json").is_file()
    if data.hub and not made and hub.offline() and hub.place(data.hub.dataset, config.hub) is None:
        faults.append(
            f"data.source is hub ({data.hub.dataset}), but {' or '.join(hub.OFFLINE)} is set; "
            "let hub name a folder that has it, or set data.source to wiki"
        )
    if faults:
        raise UserError("\n".join(faults))


def obstacles(plan: Plan) -> dict[str, dict[str, Reasons]]:
    """By suite and by whom it cannot ask them (`runs` trained here, or a model of the Hub): tasks with the reason."""
    found: dict[str, dict[str, Reasons]] = {}
    for suite in plan.config.suites:
        told = getattr(load_suite(suite), "obstacles", None)
        if told:
            by_whom = {whom: told(plan.profile, window) for whom, window in _windows(plan, suite)}
            found[suite] = {whom: reasons for whom, reasons in by_whom.items() if reasons}
    return {suite: reasons for suite, reasons in found.items() if reasons}


def _windows(plan: Plan, suite: str) -> Iterator[tuple[str, int | None]]:
    """(whom a suite asks, how many tokens it reads and writes, None where only the Hub knows)."""
    wanted = plan.profile.suite(suite).window
    if any(run.hf is None for run in plan.runs.values()):
        yield "runs", wanted or plan.profile.task(load_suite(suite).TASK).length
    for name in _models(plan):
        length = positions(name, plan.config.hub)
        yield name, min(wanted or length, length) if length else None


def _models(plan: Plan) -> list[str]:
    """The models of the Hub that are asked for."""
    return [run.hf for run in plan.runs.values() if run.hf]


def positions(name: str, where: str | None) -> int | None:
    """How many tokens a model in a local folder reads, as its config.json says."""
    folder = hub.place(name, where)
    try:
        return (
            json.loads((folder / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
            if folder
            else None
        )
    except (OSError, ValueError, KeyError):
        return None  # harness.pretrained says what is wrong with it


def notes(plan: Plan) -> list[str]:
    """One sentence for each reason why something will not be measured."""
    said = []
    for suite, by_whom in obstacles(plan).items():
        for whom, reasons in by_whom.items():
            tasks: dict[str, list[str]] = defaultdict(list)
            for task, why in reasons.items():
                tasks[why].append(task)
            of = "" if whom == "runs" else f" of {whom}"
            said += [f"{suite}{of} leaves out {', '.join(names)}: {why}" for why, names in tasks.items()]
    for name in _models(plan):
        if hub.offline() and hub.place(name, plan.config.hub) is None:
            said.append(f"{name} is no folder here, and the environment says to stay offline: its cells will say so")
    return said


def lines(plan: Plan, results: Path = Path("results")) -> Iterator[str]:
    """What is asked for, what is in the way, and where verdicts are there, the seeds that would settle more of them."""
    trained = {task: len(plan.folder(task)) for task in plan.trainings}
    models = ", ".join(f"{count} on {task}" for task, count in trained.items())
    yield f"profile {plan.profile.name}: {len(plan.papers)} papers, {len(plan.runs)} runs; models: {models}"
    missing = sum(not Path(record).is_file() for record in plan.records())
    yield f"records: {len(plan.records())}, of which {missing} are not made yet"
    yield from notes(plan)
    verdicts, runs = results / "verdicts.json", results / "runs.json"
    if verdicts.is_file() and runs.is_file():
        from harness import seeds

        yield from seeds.lines(seeds.read_needs(verdicts, runs))
