"""Measure a causal language model of the Hub, or one in a folder, with the suites that ask in text; no paper is needed.

    python -m harness.measure EleutherAI/pythia-70m
    python -m harness.measure ../models/mine --suite zeroshot longbench ruler --hub ../hub --set zeroshot.limit=100

prints a table of scores and keeps what they rest on in results/measured/<name>/lm/seed0/: `run.json` says which weights
they are of, `<suite>.json` has every number, `<suite>.raw.json` what the model wrote. A suite whose record still holds
is not measured again. Settings are those of the profile but for what `--set` says, a key of its `suites` block each.
What cannot be measured is listed with the reason; the exit code is 1 where something failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import data, device, outlook, pretrained, records, yamlio
from harness.arguments import device_name, threads
from harness.closed import check
from harness.config import Profile, load_config, load_profile
from harness.deterministic import be_deterministic
from harness.errors import UserError, leave, suggest
from harness.evaluate import held_or_measured, write
from harness.files import write_json
from harness.metrics import load_suite, suite_names
from harness.records import Evaluation
from harness.runs import run_settings
from harness.spec import Run

FOLDER = Path("results/measured")


def measure(name: str, suites: Sequence[str], profile: Profile, on: str, out: Path = FOLDER) -> Iterator[Evaluation]:
    """The record of each suite, kept under `out`. Raises UserError where the model cannot be read."""
    given = yamlio.Document("the model", {"hf": name})
    named = check(Run, given.value, given)
    given.refuse()
    assert named is not None
    run = run_settings(named, profile)
    (task,) = {load_suite(suite).TASK for suite in suites}
    trained = pretrained.record(run.id, run.impl, task, 0, name, profile.hub)
    if trained["status"] != "ok":
        raise UserError(trained["reason"])
    write_json(records.folder(run.id, task, 0, out) / "run.json", trained)
    if any(getattr(load_suite(suite), "CORPUS", False) for suite in suites):
        corpus(profile)
    for suite in suites:
        yield write(held_or_measured(run.id, suite, 0, profile, on, out, out / "state"), out)


def corpus(profile: Profile) -> None:
    """Make the profile's corpus where it is not there yet, or is of an earlier version."""
    if not data.made(profile.data.folder):
        data.make(profile.data, profile.data.folder, lambda line: print(line, file=sys.stderr), profile.hub)


def asking_in_text() -> list[str]:
    """The suites that a model of the Hub can be measured with."""
    return [name for name in suite_names() if getattr(load_suite(name), "PRETRAINED", False)]


def changed(profile: Profile, changes: Sequence[str]) -> Profile:
    """The profile with `suite.key=value` in the place of its own settings. Raises UserError with every fault."""
    suites = dict(profile.suites)
    for change in changes:
        place, _, value = change.partition("=")
        suite, _, key = place.partition(".")
        if suite not in suites or not key or not value:
            what = f"there is no suite {suite!r}{suggest(suite, suites)}" if key and value else "write suite.key=value"
            raise UserError(f"--set {change}: {what}")
        given = yamlio.parse(f"{key}: {value}\n".encode(), f"--set {place}")
        settings = check(type(suites[suite]), suites[suite].model_dump() | given.value, given)
        given.refuse()
        suites[suite] = settings
    return profile.model_copy(update={"suites": suites})


def table(found: Sequence[Evaluation]) -> Iterator[str]:
    """Every number with its standard error and n; then what is missing, a line a reason."""
    rows = [("suite", "task", "length", "metric", "value", "±", "n", "unit")]
    for record in found:
        for row in record.rows:
            length, error = str(row.length or ""), "" if row.stderr is None else f"{row.stderr:.3g}"
            rows.append((record.suite, row.task, length, row.metric, f"{row.value:.4g}", error, str(row.n), row.unit))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for record in found:
        why: dict[str, list[str]] = defaultdict(list)
        for cell, reason in sorted(record.gaps.items()):
            why[reason].append(cell.partition("/")[0])
        for reason, tasks in why.items():
            yield f"{record.suite} leaves out {', '.join(dict.fromkeys(tasks))}: {reason}"
        if record.reason:
            yield f"{record.suite} {record.status}: {record.reason}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.measure", description="Measure a model of the Hub.")
    parser.add_argument("model", help="an id of the Hub, or a folder")
    parser.add_argument("--suite", nargs="+", default=["zeroshot", "longbench"], help="(default: zeroshot longbench)")
    parser.add_argument("--set", nargs="+", default=[], metavar="SUITE.KEY=VALUE", help="as zeroshot.limit=100")
    parser.add_argument("--profile", help="a file of config/profiles (default: that of config/config.yaml)")
    parser.add_argument("--hub", help="a folder that stands for the Hugging Face Hub (default: likewise)")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:1 (default: %(default)s)"
    )
    parser.add_argument("--threads", type=threads, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    for suite in given.suite:
        if suite not in asking_in_text():
            known = ", ".join(asking_in_text())
            raise UserError(
                f"--suite {suite}: a model of the Hub is measured with the suites that ask in text: {known}"
            )
    config = load_config()
    config = config.model_copy(update={"suites": tuple(given.suite), "hub": given.hub or config.hub})
    profile = load_profile(given.profile or config.profile).model_copy(update={"hub": config.hub})
    profile = changed(profile, given.set)
    outlook.refuse(config, profile)
    with device.claim(given.device, given.threads) as on:
        be_deterministic(on)
        found = list(measure(given.model, given.suite, profile, on, given.out))
    print(*table(found), sep="\n")
    return int(any(record.status != "ok" for record in found))


if __name__ == "__main__":
    leave(main)
