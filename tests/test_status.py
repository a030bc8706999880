"""How far a build is, told from its files alone: records, logs that living jobs hold locked, and benchmarks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import failures, log, references, status
from harness.plan import Plan
from harness.steps import Step, seconds, steps
from tests.workflow_project import CONFIG, ROOT, SOFTMAX, TINY, Project, paper

TUNED = json.loads(json.dumps(TINY)) | {"noise": 1}
TUNED["tasks"]["recall"]["tune"] = {"rates": [1e-3, 1e-2], "steps": 2}
JOB = """
from harness.errors import leave
def main():
    print("said", flush=True)
    input()
    raise ValueError("two\\nlines")
leave(main)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two runs, one of them with a grid of rates; nothing is made yet."""
    made = Project(tmp_path_factory.mktemp("project"), CONFIG | {"seeds": [0, 1], "strict": True}, TUNED)

    made.write("papers/one.yaml", paper("2401.00001", softmax=SOFTMAX, linear={"impl": "linear_attention"}))
    return made


@pytest.fixture
def plan(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Its plan, in an empty folder."""
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(references, "_cells", references._cells.__wrapped__)  # its cache is of other profiles
    found = Plan.load()
    monkeypatch.chdir(tmp_path)
    return found


def record(step: Step, outcome: str = "ok", reason: str | None = None) -> None:
    """What a job leaves when it ends."""
    for file in map(Path, step.files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"status": outcome, "reason": reason} if step.records else []))


def say(step: Step, text: str) -> None:
    step.log.parent.mkdir(parents=True, exist_ok=True)
    step.log.write_text(text)


@contextmanager
def at_work(step: Step, text: str = "") -> Iterator[None]:
    """A job that holds its log."""
    say(step, text)
    with step.log.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def build() -> Iterator[None]:
    """A build that holds its lock."""
    with status.LOCK.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def benchmark(rule: str, name: str, took: float) -> None:
    file = Path("results/benchmark", rule, f"{name}.tsv")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"s\th:m:s\tmax_rss\n{took}\t0:00:01\t9\n")


def test_the_jobs_are_those_of_the_workflow(project: Project, plan: Plan):
    found = list(steps(plan))
    listed = [row.split("\t") for row in project.snakemake("--summary").stdout.splitlines()]
    made_by = {row[0]: row[2] for row in listed if row[0].startswith("results/")}
    assert {file: step.rule for step in found for file in step.files}.items() <= made_by.items()
    announced = project.snakemake("--dry-run").stdout
    logs = re.findall(r"^Job \d+: .*\((results/log/.*)\)$", announced, re.MULTILINE)
    named = [str(step.log) for step in found if step.rule != "strict"]  # its message names no log
    assert sorted(logs) == sorted(named), announced


def test_each_job_is_done_running_failed_or_waiting(plan: Plan):
    watcher = status.Watcher(plan)
    first, second, third, *_ = (step for step in watcher.steps if step.rule == "train")
    assert {state.kind for state in watcher.look()} == {"waiting"}
    record(first)
    record(second, "failed", "out of memory")
    with at_work(third, f"2026-12-01T00:00:00Z {third.name} process 1\n2026-12-01T00:00:01Z {third.name} step 4\n"):
        states = {state.step: state for state in watcher.look()}
        assert [states[step].kind for step in (first, second, third)] == ["done", "failed", "running"]
        assert states[second].said == "failed: out of memory"
        assert states[third].said == "step 4"
        assert status.line(list(states.values())).startswith(f"1 of {len(states)} jobs done, 1 running, 1 failed, ")
    with at_work(third):
        pass
    assert watcher._state(third).kind == "running", "it has just been started, and its program is being read"
    os.utime(third.log, (0, 0))
    assert watcher._state(third).kind == "failed"
    say(third, f"2026-12-01T00:00:00Z {third.name} step 4\n")
    third_now = next(state for state in watcher.look() if state.step == third)
    assert (third_now.kind, third_now.said) == ("failed", f"it ended without a result, with “step 4” ({third.log})")


def test_a_job_that_an_earlier_build_ended_without_a_result_waits_for_its_turn_in_this_one(plan: Plan):
    watcher = status.Watcher(plan)
    step = watcher.steps[-1]
    say(step, "no")
    os.utime(step.log, (1000, 1000))
    assert watcher._state(step).kind == "failed"
    status.LOCK.parent.mkdir()
    with build():
        assert watcher._state(step).kind == "waiting"
        say(step, "no")
        os.utime(status.LOCK, (1000, 1000))
        assert watcher._state(step).kind == "failed"


def test_a_build_is_at_work_while_it_holds_its_lock_whatever_its_number_is_on_this_machine(plan: Plan):
    status.LOCK.parent.mkdir()
    status.LOCK.write_text(str(os.getpid()))  # of a process that lives, here; it holds nothing
    assert status.since() == 0
    with build():
        status.LOCK.write_text("0")
        assert status.since() == status.LOCK.stat().st_mtime > 0


def test_where_jobs_cannot_hold_their_logs_one_of_this_build_is_running_and_never_failed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(log, "OUTPUTS", tmp_path / "no such folder")
    watcher = status.Watcher(plan)
    step = watcher.steps[-1]
    status.LOCK.parent.mkdir()
    with build():
        os.utime(status.LOCK, (1000, 1000))
        say(step, "step 4\n")
        assert watcher._state(step) == (step, "running", "step 4")
        os.utime(step.log, (900, 900))
        assert watcher._state(step).kind == "waiting"
    assert watcher._state(step).kind == "failed"


def test_a_log_that_goes_between_two_looks_is_one_that_is_not_there(plan: Plan, monkeypatch: pytest.MonkeyPatch):
    watcher = status.Watcher(plan)
    step = watcher.steps[-1]
    say(step, "no")
    starts = log.starts
    monkeypatch.setattr(log, "starts", lambda path: [path.unlink(), starts(path)])
    assert watcher._state(step).kind == "waiting"


def test_no_build_fails_for_want_of_its_line(plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys):
    def refuse(watcher: status.Watcher) -> list[status.State]:
        raise OSError(errno.EIO, "Input/output error", "results/log/a.log")

    monkeypatch.setattr(status.Watcher, "look", refuse)
    told = "how far the build is cannot be told: [Errno 5] Input/output error: 'results/log/a.log'"
    assert status.said(plan) == told
    rounds = iter([1, 2])
    monkeypatch.setattr(time, "sleep", lambda period: next(rounds))
    with pytest.raises(StopIteration):
        status._tell(status.Watcher(plan))
    assert capsys.readouterr().err == ""


def test_a_job_that_makes_its_records_again_is_running_and_a_record_is_read_again_once_it_changes(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
):
    watcher = status.Watcher(plan)
    step = next(step for step in watcher.steps if step.rule == "evaluate")
    record(step, "failed", "no")
    assert watcher._state(step).said == "failed: no"
    with at_work(step):
        assert watcher._state(step).kind == "running"
    read: list[object] = []
    find = failures.find
    monkeypatch.setattr(failures, "find", lambda records: read.extend(records) or find(records))
    assert watcher._state(step).kind == "failed"
    assert not read
    time.sleep(0.01)
    record(step)
    assert watcher._state(step).kind == "done"
    assert sorted(map(str, read)) == sorted(step.files)


def test_the_time_left_is_that_of_the_jobs_ahead_by_their_kind_shared_by_those_at_work(plan: Plan):
    watcher = status.Watcher(plan)
    for step in watcher.steps:
        if step.rule != "train":
            record(step)
    (said,) = status.left(watcher.look())
    assert said == "time left unknown until a job has ended"
    benchmark("train", "a", 100.0)
    benchmark("train", "b", 300.0)
    benchmark("evaluate", "a", 9000.0)
    assert seconds("train") == 200
    trainings = [step for step in watcher.steps if step.rule == "train"]
    (said,) = status.left(watcher.look())
    assert said == f"about {status.spoken(200 * len(trainings))} left"
    with at_work(trainings[0], f"{log.now()} a b\n"), at_work(trainings[1], "2020-01-01T00:00:00Z a b\n"):
        (said,) = status.left(watcher.look())
    minutes = (200 * (len(trainings) - 1)) / 2 / 60
    assert int(said.split()[1]) == pytest.approx(minutes, abs=1)
    Path(trainings[0].files[0]).unlink(missing_ok=True)
    Path(next(step for step in watcher.steps if step.rule == "noise").files[0]).unlink()
    (said,) = status.left(watcher.look())
    assert said.startswith("at least ")


@pytest.mark.parametrize(
    ("duration", "said"), [(5.4, "5 s"), (120, "2 min"), (7199, "2 h 0 min"), (12e3, "3 h 20 min")]
)
def test_durations_are_spoken(duration: float, said: str):
    assert status.spoken(duration) == said


def test_once_all_is_done_the_line_says_so_and_watching_ends(plan: Plan, capsys):
    watcher = status.Watcher(plan)
    for step in watcher.steps:
        record(step)
    count = len(watcher.steps)
    assert status.text(watcher.look()) == f"{count} of {count} jobs done"
    status.watch(watcher)
    assert f"{count} of {count} jobs done" in capsys.readouterr().out


def test_a_build_tells_the_line_when_it_changes(plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys):
    class Ended(Exception):
        pass

    watcher = status.Watcher(plan)
    rounds = iter([lambda: None, lambda: None, lambda: record(watcher.steps[0])])

    def wait(period: float) -> None:
        assert period == status.PERIOD
        try:
            next(rounds)()
        except StopIteration:
            raise Ended from None

    monkeypatch.setattr(time, "sleep", wait)
    with pytest.raises(Ended):
        status._tell(watcher)
    assert [said.split(",")[0] for said in capsys.readouterr().err.splitlines()] == [
        f"{done} of {len(watcher.steps)} jobs done" for done in (0, 1)
    ]


def test_from_another_shell_it_says_what_failed_and_that_no_build_is_at_work(
    plan: Plan, project: Project, monkeypatch: pytest.MonkeyPatch
):
    step = next(step for step in steps(plan) if step.rule == "train")
    monkeypatch.chdir(project.folder)
    record(step, "diverged", "the loss is nan at step 3")
    said = project.run([sys.executable, "-m", "harness.status"])
    assert said.returncode == 0, said.stdout
    first, failed, last = said.stdout.splitlines()
    assert first.startswith("0 of ")
    assert failed == f"failed: train {step.name}: diverged: the loss is nan at step 3"
    assert last == "no build is at work here"


def test_a_log_has_time_and_run_in_each_line_and_is_held_until_the_job_is_killed(tmp_path: Path):
    path = tmp_path / "results/log/train/softmax-1a2b.lm.seed0.log"
    path.parent.mkdir(parents=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start() -> subprocess.Popen[str]:
        with path.open("w") as file:
            command = [sys.executable, "-c", JOB]
            job = subprocess.Popen(
                command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=file, stderr=file, text=True
            )
        while "said" not in path.read_text():
            assert job.poll() is None, path.read_text()
            time.sleep(0.01)
        return job

    job = start()
    assert log.held(path)
    job.communicate("\n")
    assert not log.held(path)
    lines = path.read_text().splitlines()
    assert f"process {job.pid} on " in lines[0]
    assert len(lines) > 5
    assert all(re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ softmax-1a2b\.lm\.seed0 ", line) for line in lines), lines
    assert log.last(path) == "lines"
    job = start()
    job.kill()
    job.communicate()
    assert not log.held(path)
    assert log.began(path) is not None


def test_where_nothing_is_logged_nothing_is_stamped(tmp_path: Path):
    with (tmp_path / "elsewhere.log").open("w") as file:
        code = JOB.replace("input()", "return")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=file).returncode == 0
    assert (tmp_path / "elsewhere.log").read_text() == "said\n"
