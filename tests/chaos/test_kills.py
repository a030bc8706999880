"""kill -9 at random moments: the same command goes on and ends in the bytes of an undisturbed build."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import psutil
import pytest

from tests.chaos.bench import Bench, still, until

pytestmark = pytest.mark.chaos

VICTIMS = ("job", "snakemake", "all")


class Stage(NamedTuple):
    """A part of the build: the modules that make it, and what to remove so that they are needed again."""

    modules: tuple[str, ...]
    removed: tuple[str, ...]
    last: str  # the rule after which there is nothing more to kill
    kills: int
    site: bool = False  # whether no clock that the site shows runs again

    def within(self, bench: Bench) -> float:
        """Seconds that its jobs take undisturbed."""
        tables = [path for path in bench.gold.glob("benchmark/**/*.tsv") if {*path.parts, path.stem} & {*self.modules}]
        return max(float(path.read_text().split("\n")[1].split("\t")[0]) for path in tables)


TRAINED = ("runs/*/*/*/model.safetensors", "runs/*/*/*/curve.jsonl", "runs/*/*/*/run.json")
STAGES = {
    "training": Stage(("train",), TRAINED, "train", 12),
    "evaluation": Stage(
        ("evaluate",), ("runs/*/*/*/loss.json", "runs/*/*/*/recall.json", "state/*/*/*/*.json"), "evaluate", 10
    ),
    "aggregation": Stage(
        ("aggregate", "judge", "history"),
        ("measurements.*", "runs.json", "items.parquet", "SHA256SUMS", "verdicts.json", "history/index.json"),
        "history",
        10,
        site=True,
    ),
    "site": Stage(("site",), ("site",), "site", 10, site=True),
}


@pytest.mark.parametrize("name", STAGES)
def test_kills_at_random_moments_change_no_byte(bench: Bench, name: str):
    stage, draw = STAGES[name], random.Random(name)
    modules = [f"harness.{module}" for module in stage.modules]
    span, kills, running = stage.within(bench), 0, None
    bench.restore(*stage.removed)
    while kills < stage.kills:
        if running is None or running.poll() is not None:
            if running is not None and running.returncode == 0:  # it got through in spite of the kills
                bench.compare(site=stage.site)
                bench.restore(*stage.removed)
            running = bench.start("--until", stage.last)
        job = next_job(bench, running, modules)
        if job is not None:
            time.sleep(draw.uniform(0, span))
            kills += kill(VICTIMS[kills % len(VICTIMS)], running, job)
    assert running is not None
    bench.kill(running)
    bench.finish(site=stage.site)
    assert "Nothing to be done" in bench.build()[1]
    assert len(list((bench.results / "history").glob("2*.json"))) == 1  # nothing new was found out
    bench.counts[f"kills survived in {name}"] += kills


def next_job(bench: Bench, running: subprocess.Popen[str], modules: list[str]) -> psutil.Process | None:
    """The next job of these modules; None where the build ended without one."""
    found = until(lambda: bench.jobs(*modules) or running.poll() is not None, f"a job of {modules}")
    return None if found is True else found[0]


def kill(victim: str, running: subprocess.Popen[str], job: psutil.Process) -> bool:
    """Kill a job, Snakemake, or everything; whether the job was there to be killed."""
    try:
        if job.status() == psutil.STATUS_ZOMBIE or running.poll() is not None:
            return False
        if victim == "job":
            job.kill()
        elif victim == "snakemake":
            running.kill()
        else:
            os.killpg(running.pid, signal.SIGKILL)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    if victim != "job":
        running.wait(timeout=60)
    return True


@pytest.mark.parametrize("name", STAGES)
def test_no_orphan_goes_on_writing(bench: Bench, name: str):
    """Snakemake alone is killed; its job ends by itself, before anything else is started."""
    stage = STAGES[name]
    bench.restore(*stage.removed)
    running = bench.start("--cores", "1")
    modules = [f"harness.{module}" for module in stage.modules]
    (job, *_) = until(lambda: bench.jobs(*modules), f"a job of {name}")
    time.sleep(0.5)  # Python has started
    running.kill()
    running.wait(timeout=60)
    until(lambda: not bench.jobs(*modules), f"the end of process {job.pid}", 10)
    before = still(bench.results)
    time.sleep(1)
    assert still(bench.results) == before
    bench.counts["parents killed whose jobs ended with them"] += 1


def test_the_processes_of_a_killed_prover_end(bench: Bench):
    command = [sys.executable, "-m", "harness.prove", "softmax", "gla", "--jobs", "2"]
    running = bench.project.popen(command)
    parent = psutil.Process(running.pid)
    workers = until(lambda: len(found := parent.children()) >= 2 and found, "two workers")
    running.kill()
    running.wait(timeout=60)
    until(lambda: not any(worker.is_running() for worker in workers), "the end of the workers", 10)
    bench.counts["parents killed whose jobs ended with them"] += 1
