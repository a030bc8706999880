"""A job ends with the workflow that started it; a command that is started by hand goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from harness import parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")

JOB = """
import signal, sys, time
from harness.parent import end_with_workflow
end_with_workflow()
print("at work", flush=True)
time.sleep(30)
"""
WORKFLOW = """
import os, subprocess, sys, time
environment = os.environ | ({"ATTEST_WORKFLOW": str(os.getpid())} if sys.argv[1] == "workflow" else {})
job = subprocess.Popen([sys.executable, "-c", sys.argv[2]], env=environment, stdout=subprocess.PIPE)
job.stdout.readline()
print(job.pid, flush=True)
time.sleep(30)
"""


@pytest.fixture(params=["workflow", "hand"])
def orphan(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Who started a job, and its id, after that one was killed."""
    command = [sys.executable, "-c", WORKFLOW, request.param, JOB]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        job = int(starter.stdout.readline())
        starter.kill()
    yield request.param, job
    if parent.alive(job):
        os.kill(job, signal.SIGKILL)


def running(pid: int) -> bool:
    """Whether it runs; one that ended may still be listed, for its new parent to ask after."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_outlives_no_workflow(orphan: tuple[str, int]):
    starter, job = orphan
    end = time.monotonic() + (10 if starter == "workflow" else 0.3)
    while running(job) and time.monotonic() < end:
        time.sleep(0.02)
    assert running(job) == (starter == "hand")


def test_a_job_whose_workflow_has_ended_does_not_start(monkeypatch: pytest.MonkeyPatch):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    environment = os.environ | {"ATTEST_WORKFLOW": str(ended.pid)}
    done = subprocess.run([sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"the workflow that started this, process {ended.pid}, has ended\n"
