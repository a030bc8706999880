"""What a machine can do to a build: a full disk, a folder it may not write, few files, a clock, a scheduler's signal.

Nothing is lost: where the fault is over, the same command ends in the bytes of an undisturbed build.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.bench import Bench, until
from tests.chaos.test_kills import STAGES, TRAINED

pytestmark = pytest.mark.chaos

GRACE = 10  # seconds that a scheduler leaves a job after SIGTERM; most leave 30
BIT = 1 << 10


def mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@contextmanager
def disk(folder: Path, size: int) -> Iterator[None]:
    """A small file system of its own at a folder, with what was there. Skips the test where none can be mounted."""
    kept = folder.with_name(f"{folder.name}.kept")
    folder.rename(kept)
    folder.mkdir()
    try:
        if not mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
            pytest.skip("this user may not mount a file system")
        try:
            subprocess.run(["cp", "-a", f"{kept}/.", str(folder)], check=True)
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
    finally:
        folder.rmdir()
        kept.rename(folder)


def used(folder: Path) -> int:
    """Bytes of a folder's files in whole pages."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file())


def named(said: str, *reasons: str) -> None:
    """The output names the fault, and no command of ours ended with a traceback."""
    assert any(reason in said for reason in reasons), said
    assert "Traceback" not in said, said


@pytest.mark.parametrize("name", STAGES)
def test_a_full_disk_stops_the_build_and_harms_nothing(bench: Bench, name: str):
    stage = STAGES[name]
    bench.restore(*stage.removed)
    room = used(bench.results)
    with disk(bench.results, room + 40 * BIT):
        filler = bench.results / "filler"
        code, said = bench.build()
        assert code == 1, said
        named(said, "No space left on device", "no space left on the disk")
        assert mount("-o", f"remount,size={room + 64 * BIT * BIT}", str(bench.results))
        filler.unlink(missing_ok=True)
        bench.finish(site=stage.site)
    bench.counts["builds that a full disk stopped, and that went on"] += 1


def test_a_disk_too_full_for_snakemakes_own_notes_starts_nothing_that_depends_on_them(bench: Bench):
    bench.restore(*STAGES["training"].removed)
    with disk(bench.memory, used(bench.memory) + 8 * BIT):
        (bench.memory / "filler").write_bytes(b"x" * 4 * BIT)
        code, said = bench.build()
        if code == 0:
            pytest.skip("Snakemake's notes found room all the same")
        assert "No space left on device" in said
        assert mount("-o", f"remount,size={64 * BIT * BIT}", str(bench.memory))
        bench.finish()
    bench.counts["builds that a full disk stopped, and that went on"] += 1


def test_a_limit_on_the_size_of_files_is_named(bench: Bench, results: Path):
    """Where no file system can be mounted, this stands for a full disk."""
    run = next(results.glob("runs/*")).name
    command = [sys.executable, "-m", "harness.train", run, "--task", "lm", "--seed", "0", "--profile", "tiny"]
    for kept in results.glob("runs/*/lm/seed0/run.json"):
        kept.unlink()
    said = subprocess.run(
        [*command, "--device", "cpu"],
        cwd=bench.project.folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8 * BIT, 8 * BIT)),
        check=False,
    )
    assert said.returncode == 1
    named(said.stdout, "File too large; raise the limit on the size of files")
    assert not list(results.rglob("state.pt"))
    assert not list(results.rglob(".*"))
    bench.finish()


def test_results_that_may_not_be_written_are_named(bench: Bench):
    bench.restore(*STAGES["training"].removed)
    room = used(bench.results)
    with disk(bench.results, room + 64 * BIT * BIT):
        assert mount("-o", "remount,ro", str(bench.results))
        code, said = bench.build()
        assert code != 0
        named(said, "Read-only file system", "Write-protected output files")
        run = next(bench.results.glob("runs/*")).name
        command = ["harness.train", run, "--task", "lm", "--seed", "0", "--profile", "tiny", "--device", "cpu"]
        by_hand = bench.project.run([sys.executable, "-m", *command])
        assert by_hand.returncode == 1
        named(by_hand.stdout, "Read-only file system; make it writable")
        assert mount("-o", "remount,rw", str(bench.results))
        bench.finish()
    bench.counts["builds that a read-only folder stopped, and that went on"] += 1


def test_300_open_files_are_enough(bench: Bench):
    bench.restore("runs", "state", "data", "proofs", "proofs.json", "costs.json", "site", "history/index.json")
    running = bench.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)))
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    bench.compare(site=False)


def test_a_clock_that_was_put_back(bench: Bench):
    """What was made before is of tomorrow and what is made now is older; the build ends and stays done all the same."""
    bench.restore(*STAGES["evaluation"].removed)
    tomorrow = time.time() + 86_400
    for path in bench.results.rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    bench.finish()
    bench.finish()
    assert "Nothing to be done" in bench.build()[1]


def test_two_builds_started_at_once(bench: Bench):
    """One does the work; the other says who is at it, or comes too late to have any."""
    bench.restore(*STAGES["training"].removed)
    both = [bench.start(), bench.start()]
    said = [running.communicate(timeout=600)[0] for running in both]
    codes = sorted(running.returncode for running in both)
    assert codes in ([0, 0], [0, 1]), said
    if codes == [0, 1]:
        refused = said[[running.returncode for running in both].index(1)]
        named(refused, "is at work here; wait for it or stop it")
    bench.compare(site=False)


def test_a_schedulers_signal_leaves_time_to_save(bench: Bench):
    """SIGTERM at random moments of training: gone within the grace time, with the steps it had done."""
    draw, steps = random.Random("scheduler"), [0]
    bench.restore(*TRAINED)
    while len(steps) < 7 and (step := stopped(bench, draw.uniform(0, 0.3))):
        assert step > steps[-1]
        steps.append(step)
    assert len(steps) > 3
    bench.finish()
    bench.counts["signals of a scheduler after which no step was lost"] += len(steps) - 1


def stopped(bench: Bench, after: float) -> int:
    """The step that training had done when SIGTERM came, some time after it saved a state; 0 where it was done."""
    run = next(bench.gold.glob("runs/*")).name
    state = bench.results / f"state/{run}/lm/seed0/state.pt"
    before = time_of(state)
    command = ["harness.train", run, "--task", "lm", "--seed", "0", "--profile", "tiny", "--device", "cpu"]
    running = bench.project.popen([sys.executable, "-m", *command])
    until(lambda: running.poll() is not None or time_of(state) != before, "a saved state")
    time.sleep(after)
    running.send_signal(signal.SIGTERM)
    said, _ = running.communicate(timeout=GRACE)
    if running.returncode == 0:
        return 0
    assert running.returncode == 128 + signal.SIGTERM, said
    return int(said.rsplit("stopped by SIGTERM after step ", 1)[1].split(";")[0])


def time_of(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


def test_a_schedulers_signal_to_the_whole_build(bench: Bench):
    bench.restore(*TRAINED)
    running = bench.start()
    until(lambda: list(bench.results.glob("state/*/*/*/state.pt")), "a saved state")
    os.killpg(running.pid, signal.SIGTERM)
    said, _ = running.communicate(timeout=30)
    assert running.returncode != 0, said
    until(lambda: not bench.jobs("harness.train"), "the end of the jobs", GRACE)
    bench.finish()
    bench.counts["signals of a scheduler after which no step was lost"] += 1
