"""The benchmark of kernels where there is no GPU: what it says, and its arithmetic with a clock made of counters."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import gpu, gpu_cases

ROOT = Path(__file__).parents[1]


def times(q, k, v):
    return q * k * v


def off(q, k, v):
    return q * k * v + 0.125


def inputs() -> dict[str, torch.Tensor]:
    return {name: torch.rand(1, 1, 4, 16, dtype=torch.bfloat16) for name in "qkv"}


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda as far as it is used, on the CPU; each event comes a millisecond after the one before."""

    class Event:
        ticks = itertools.count()

        def __init__(self, enable_timing: bool):
            self.at = 0

        def record(self):
            self.at = next(self.ticks)

        def elapsed_time(self, end: Event) -> float:
            return float(end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(gpu, "machine", lambda: {"gpu": "none"})


@pytest.mark.usefixtures("no_gpu")
def test_errors_speed_and_what_is_left_out(monkeypatch: pytest.MonkeyPatch):
    shape: dict[str, int] = dict.fromkeys("BHTSKV", 1)
    monkeypatch.setattr(gpu, "checks", lambda: iter([gpu_cases.Check("wrong", inputs, off, times)]))
    race = gpu_cases.Race("wrong", shape, inputs, {"kernel": off, "equations": times}, flops=2e9)
    monkeypatch.setattr(gpu, "races", lambda: iter([race]))
    found = gpu.measure([], 100.0, 3)
    errors = {(row["dtype"], row["tensor"]): (row["error"], row["reference_error"]) for row in found["errors"]}
    assert errors["float32", "y"][0] > 0.1 > 1e-3 > errors["float32", "y"][1]
    assert errors["float32", "q"][0] < 1e-5
    assert {row["what"] for row in found["speed"]} == {"forward", "forward and backward"}
    assert [(row["form"], row["ms"], row["over_ours"]) for row in found["speed"]] == [
        ("kernel", 1.0, 1.0),
        ("equations", 1.0, 1.0),
    ] * 2
    assert found["speed"][0]["tflops"] == 2
    page = io.StringIO()
    for view in gpu.tables(found):
        Console(width=140, file=page).print(view)
    assert "equations" in page.getvalue()
    assert len(gpu.measure([], -1.0, 3)["left_out"]) == 3
    assert not gpu.measure(["another"], 100.0, 3)["speed"]


def test_every_case_names_a_kernel_and_says_what_it_costs():
    races, checks = list(gpu_cases.races()), list(gpu_cases.checks())
    assert {case.kernel_name for case in races} <= {case.kernel_name for case in checks}
    assert all(set(case.shape) == {"B", "H", "T", "S", "K", "V"} and case.flops > 0 for case in races)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which would be measured")
def test_without_a_gpu_it_says_so_in_one_sentence():
    command = [sys.executable, "-m", "benchmarks.gpu"]
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "nvidia-smi" in ended.stderr
