"""A GPU for each job, seen by it alone, and no more threads than cores: with pretended GPUs and real jobs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch

from harness import device
from harness.errors import UserError
from tests.workflow_project import CONFIG, ROOT, SOFTMAX, Project, paper

CORES = 2
SPY = """
import atexit, json, os, sys, time
job, start = " ".join(sys.orig_argv[1:3]), time.time()
if job.startswith("-m harness."):
    def tell():
        torch = sys.modules.get("torch")
        pools = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
        told = {"job": job, "start": start, "end": time.time(), "pools": pools}
        told["threads"] = torch.get_num_threads() if torch else 1
        with open(os.path.join(os.environ["TOLD"], f"{os.getpid()}.json"), "w") as file:
            json.dump(told, file)
    atexit.register(tell)
"""


class Gpus:
    """`torch.cuda` of a machine with so many GPUs, which reads CUDA_VISIBLE_DEVICES when it starts, as CUDA does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, works: bool = True, started: bool = False):
        self.count, self.works = count, works
        self.seen = self.now() if started else None
        self.chosen: int | None = None
        for name, fake in {
            "device_count": lambda: self.now() if self.seen is None else self.seen,
            "is_available": self.available,
            "init": lambda: None,
            "set_device": lambda index: setattr(self, "chosen", index),
        }.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def now(self) -> int:
        return len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) if os.environ["CUDA_VISIBLE_DEVICES"] else self.count

    def available(self) -> bool:
        self.seen = self.now() if self.seen is None else self.seen
        return self.works


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setattr(device, "slots", lambda: folder)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.parametrize(("visible", "second"), [("", "1"), ("5,7", "7"), ("GPU-a,MIG-GPU-b/1/0", "MIG-GPU-b/1/0")])
def test_a_job_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch, locks: Path, visible: str, second: str):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with device.slot([0]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)  # as it is in the next job
        gpus = Gpus(monkeypatch, 2)
        with device.claim("auto") as name:
            assert os.environ["CUDA_VISIBLE_DEVICES"] == second
            assert (name, gpus.seen, gpus.chosen) == ("cuda:0", 1, 0)
    assert len(list(locks.iterdir())) == 2


def test_where_cuda_was_started_before_the_gpu_is_chosen_by_its_index(monkeypatch: pytest.MonkeyPatch):
    gpus = Gpus(monkeypatch, 2, started=True)
    with device.claim("cuda:1") as name:
        assert (name, gpus.chosen) == ("cuda:1", 1)


def test_a_gpu_whose_driver_does_not_start_is_passed_over_by_auto_and_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    Gpus(monkeypatch, 1, works=False)
    with device.claim("auto") as name:
        assert name == "cpu"
    with pytest.raises(UserError, match="device 'cuda': CUDA does not start on this machine"), device.claim("cuda"):
        pass


def test_jobs_that_slurm_confines_do_not_wait_for_each_others_gpus(monkeypatch: pytest.MonkeyPatch, locks: Path):
    for number in ("2", "3"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        monkeypatch.setenv("SLURM_JOB_GPUS", number)
        with device.slot([0]):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert sorted(path.name for path in locks.iterdir()) == ["gpu-2.lock", "gpu-3.lock"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(
        tmp_path_factory.mktemp("project"), {**CONFIG, "device": "auto", "seeds": [0, 1], "suites": ["recall"]}
    )
    made.write("papers/one.yaml", paper("2401.00001", softmax=SOFTMAX))
    return made


@pytest.mark.parametrize(("gpus", "device_asked"), [("0", "cpu"), ("3", "auto")])
def test_a_job_without_a_gpu_is_told_to_use_the_cpu(project: Project, gpus: str, device_asked: str):
    said = project.snakemake("-np", "--resources", f"gpu={gpus}", "--set-resources", "train:gpu=1", "--until", "train")
    assert re.findall(r"harness\.train .* --device (\w+)", said.stdout) == [device_asked] * 2, said.stdout


def test_every_rule_with_a_device_asks_what_it_was_given():
    rules = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    asked, told = rules.count("--device {params.device}"), rules.count("PLAN.device(resources)")
    assert asked == told > 0


def test_all_jobs_together_have_no_more_threads_than_cores(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "sitecustomize.py").write_text(SPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TOLD", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    done = project.snakemake("--config", "device=cpu", "--until", "train")
    assert done.returncode == 0, done.stdout
    told = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert [job["job"] for job in told] == ["-m harness.train"] * 2, "one for each seed"
    for job in told:
        assert set(job["pools"].values()) == {"1"}, job
        together = [other for other in told if other["start"] <= job["start"] < other["end"]]
        assert sum(other["threads"] for other in together) <= CORES, together
