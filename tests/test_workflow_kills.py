"""The workflow, killed for real: the same command goes on and ends in the same weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.workflow_project import CONFIG, SOFTMAX, TINY, Project, paper


class Model(NamedTuple):
    """One model that trains for some seconds and saves often; `weights` are those it has when nobody interrupts."""

    project: Project
    target: str
    weights: str

    def start(self) -> tuple[subprocess.Popen[str], int]:
        """Snakemake from scratch, once training has saved a state; the trainer's process id."""
        shutil.rmtree(self.project.folder / "results")
        running = self.project.start(self.target)
        state = self.project.folder / "results/state"
        until(lambda: list(state.rglob("state.pt")), "a saved state")
        (lock,) = state.rglob("lock")
        return running, int(lock.read_text())

    def again(self) -> str:
        """The output of the same command; it must do its work."""
        done = self.project.snakemake(self.target)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def record(self) -> dict:
        return json.loads((self.project.folder / self.target).with_name("run.json").read_text())

    def digest(self) -> str:
        return hashlib.sha256((self.project.folder / self.target).read_bytes()).hexdigest()

    def log(self) -> str:
        return "".join(file.read_text() for file in (self.project.folder / "results/log/train").glob("*"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    profile = json.loads(json.dumps(TINY))
    profile["tasks"]["recall"] |= {"steps": 300, "save_every": 20}
    project = Project(tmp_path_factory.mktemp("model"), CONFIG | {"suites": ["recall"]}, profile)
    project.write("papers/first.yaml", paper("2401.00001", softmax=SOFTMAX))
    (run,) = re.findall(r"train (softmax-\S+) on", project.snakemake("--dry-run").stdout)
    model = Model(project, f"results/runs/{run}/recall/seed0/model.safetensors", "")
    model.again()
    assert model.record()["status"] == "ok", model.record()["reason"]
    return model._replace(weights=model.digest())


def until(found: Callable[[], object], what: str) -> None:
    """Wait for a condition, two minutes at most."""
    end = time.monotonic() + 120
    while not found():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def test_a_killed_trainer_goes_on_and_ends_in_the_same_weights(model: Model):
    running, trainer = model.start()
    os.kill(trainer, signal.SIGKILL)
    output, _ = running.communicate(timeout=240)
    assert running.returncode == 0, output
    assert "resumed at step" in model.log()
    assert model.digest() == model.weights


def test_after_a_killed_snakemake_the_same_command_just_works(model: Model):
    running, trainer = model.start()
    running.kill()
    running.wait()
    os.kill(trainer, signal.SIGKILL)
    model.again()
    assert "resumed at step" in model.log()
    assert model.digest() == model.weights
    assert "Nothing to be done" in model.again()


def test_a_trainer_that_outlives_its_snakemake_is_waited_for(model: Model):
    running, trainer = model.start()
    os.kill(trainer, signal.SIGSTOP)  # it must still be there when the next one comes
    running.kill()
    running.wait()
    following = model.project.start(model.target)
    until(lambda: f"waiting for process {trainer}" in model.log(), "the next trainer to wait")
    os.kill(trainer, signal.SIGCONT)
    output, _ = following.communicate(timeout=240)
    assert following.returncode == 0, output
    assert model.digest() == model.weights


def test_two_snakemakes_do_not_share_a_folder(model: Model):
    running, trainer = model.start()
    os.kill(trainer, signal.SIGSTOP)
    second = model.project.snakemake(model.target)
    os.kill(trainer, signal.SIGCONT)
    output, _ = running.communicate(timeout=240)
    assert second.returncode == 1
    assert f"process {running.pid}" in second.stdout
    assert "Traceback" not in second.stdout
    assert running.returncode == 0, output
    assert model.digest() == model.weights
