"""The workflow under a profile that tunes learning rates and measures the noise of the data's order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workflow_project import SOFTMAX, TINY, Project, paper

TUNE = {"rates": [1e-3, 1e-2], "steps": 2}
RECALL = {**TINY["tasks"]["recall"], "tune": TUNE}
PROFILE = {**TINY, "tasks": {"recall": RECALL}, "noise": 1}
CONFIG = {"profile": "tiny", "seeds": [0], "suites": ["recall"], "device": "cpu", "strict": False}
LINEAR = {"impl": "linear_attention", "args": {"heads": 2}}
PINNED = {**LINEAR, "recipe": {"recall": {"lr": 5e-3}}}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run with a grid, one whose recipe gives its rate, and the repetition of the reference."""
    project = Project(tmp_path_factory.mktemp("tuned"), CONFIG, PROFILE)
    given = paper("2401.00001", linear=LINEAR, pinned=PINNED, softmax=SOFTMAX)
    claim = {**given["claims"][0], "metric": "recall/mqar-4/accuracy", "expect": "higher"}
    project.write("papers/first.yaml", {**given, "claims": [claim, *given["claims"][1:]]})
    done = project.snakemake()
    assert done.returncode == 0, done.stdout
    return project


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_grids_come_before_trainings_and_are_in_their_records(tuned: Project):
    grids = {path.parts[-3]: read(path) for path in tuned.folder.glob("results/runs/*/recall/tune.json")}
    records = {path.parts[-4]: read(path) for path in tuned.folder.glob("results/runs/*/recall/seed0/run.json")}
    assert len(records) == 3
    assert {run.partition("-")[0] for run in grids} == {"softmax", "linear_attention"}
    for run, record in records.items():
        assert record["tune"] == grids.get(run)
        assert record["settings"]["lr"] == (grids[run]["choice"] if run in grids else 5e-3)
    assert all(grid["seed"] == 1_000_000 for grid in grids.values())


def test_the_noise_of_another_order_is_measured_once_and_reaches_the_verdicts(tuned: Project):
    noise = read(tuned.folder / "results/noise/recall.json")
    assert (noise["status"], noise["orders"], noise["seed"]) == ("ok", [1_000_001], 0)
    assert set(noise["cells"]) == {"recall/mqar-4/accuracy@64", "recall/needle-1/accuracy@64"}
    again = read(next(tuned.folder.glob("results/noise/order1000001/softmax-*/recall/seed0/run.json")))
    first = read(next(tuned.folder.glob("results/runs/softmax-*/recall/seed0/run.json")))
    assert again["settings"] == first["settings"]
    assert again["tune"] == first["tune"]


def test_each_build_is_kept_once_and_nothing_is_left_to_do(tuned: Project):
    assert tuned.would_run() == {}
    (kept,) = read(tuned.folder / "results/history/index.json")
    record = read(tuned.folder / "results/history" / kept)
    assert record["verdicts"]["first/more"]["verdict"] == "untested"
    (tuned.folder / "results/verdicts.json").unlink()
    assert tuned.snakemake().returncode == 0
    assert read(tuned.folder / "results/history/index.json") == [kept]
    assert tuned.would_run() == {}


def test_an_edited_claim_keeps_a_second_record_and_trains_nothing(tuned: Project):
    with tuned.edited("papers/first.yaml", lambda text: text.replace("0.05", "0.07")):
        assert tuned.would_run() == {"judge": 1, "history": 1, "site": 1}
        assert tuned.snakemake().returncode == 0
        first, second = read(tuned.folder / "results/history/index.json")
        done = tuned.run(
            [sys.executable, "-m", "harness.diff", *(f"results/history/{name}" for name in (first, second))]
        )
        assert done.returncode == 0, done.stdout
        assert "spec first: changed" in done.stdout
        assert "spec first: changed" in (tuned.folder / "results/site/history.html").read_text()


def test_a_killed_grid_leaves_nothing_and_starts_anew(tuned: Project):
    (run,) = (path.name for path in (tuned.folder / "results/runs").glob("softmax-*"))
    path = tuned.folder / f"results/runs/{run}/recall/tune.json"
    before = read(path)
    path.unlink()
    command = [sys.executable, "-m", "harness.tune", run, "--task", "recall", "--seed", "1000000", "--profile", "tiny"]
    process = subprocess.Popen(command, cwd=tuned.folder, stderr=subprocess.DEVNULL)
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not path.exists()
    assert tuned.run(command).returncode == 0
    after = read(path)
    assert [each["loss"] for each in after["rates"]] == [each["loss"] for each in before["rates"]]
