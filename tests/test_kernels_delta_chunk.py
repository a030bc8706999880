"""The kernels of `delta_chunk` without a GPU: interpreted beside the recurrence, and compiled for two kinds of GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from benchmarks import gpu_recurrent
from impls import kernels, ops
from impls.kernels import delta_chunk
from tests.test_kernels_score_map import ROOT, SPILLS, script

pytest.importorskip("triton", reason="no Triton on this machine")
pytestmark = pytest.mark.slow

FORMS = [f"{rule}, {decay}" for rule in ("sum", "delta") for decay in ("no decay", "one a step", "one a channel")]
MECHANISMS = ("linear_attention", "retnet", "gla", "mamba2", "delta_net", "gated_delta_net")


@pytest.fixture(scope="module")
def interpreted() -> dict[str, dict[str, float]]:
    return json.loads(script("tests.kernels_delta_chunk", TRITON_INTERPRET="1"))


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_is_the_recurrence_forward_and_backward(form: str, interpreted: dict[str, dict[str, float]]):
    own = {case: errors for case, errors in interpreted.items() if case.startswith(f"{form}: ")}
    assert len(own) >= 8
    wrong = {
        case: errors
        for case, errors in own.items()
        if not all(error <= (1e-2 if "bfloat16" in case else 3e-6) for error in errors.values())
    }
    assert not wrong


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_kernel_is_what_the_mechanism_says(name: str, interpreted: dict[str, dict[str, float]]):
    assert interpreted[name]["y"] <= 3e-6


def test_every_case_is_held_against_something(interpreted: dict[str, dict[str, float]]):
    assert {case.split(": ")[0] for case in interpreted} == {*FORMS, *MECHANISMS}
    assert sum("packed" in case for case in interpreted) == len(FORMS)


@pytest.mark.parametrize("target", [80, 90])
def test_kernels_compile_for_gpus_that_are_not_here(target: int):
    found = json.loads(script("tests.kernels_delta_compiled", str(target)))
    assert len(found) == 14
    assert not {name: code for name, code in found.items() if code["STACK"] > SPILLS}
    shared = {80: 163, 90: 227}[target] * 1024  # CUDA C++ Programming Guide, compute capabilities: per block
    assert not {name: code for name, code in found.items() if code["shared"] > shared}
    for name, code in found.items():
        print(f"{name}: {code['REG']} registers, {code['STACK']} bytes spilled, {code['shared']} bytes shared")


def test_documents_must_fill_the_row():
    x = torch.ones(1, 1, 4, 2)
    with pytest.raises(ValueError, match="do not fill"):
        delta_chunk.scan(x, None, x, x, lengths=[1, 2])


def test_no_input_loses_bits_to_the_dtype_of_another(monkeypatch: pytest.MonkeyPatch):
    from impls.kernels import delta_apply

    read: list[torch.Tensor] = []

    def apply(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        read.extend(given[:4])
        return given[3], given[3]

    monkeypatch.setattr(delta_apply.DeltaChunk, "apply", apply)
    fine = torch.full((1, 1, 4, 16), 1 + 2**-20)
    y, _ = delta_chunk.scan(fine, fine, fine.bfloat16(), fine.half())
    assert {z.dtype for z in read} == {torch.float32}
    assert all((z == 1 + 2**-20).all() for z in read[:2])  # q and k; v and the writes were rounded by their givers
    assert y.dtype == torch.bfloat16
    read.clear()
    half = fine.bfloat16()
    delta_chunk.scan(half, half, half, half)
    assert {z.dtype for z in read} == {torch.bfloat16}


def test_scans_hand_over_what_a_kernel_takes(monkeypatch: pytest.MonkeyPatch):
    said: list[bool] = []

    def scan(*given: object) -> tuple[torch.Tensor, torch.Tensor]:
        said.append(given[1] is not None)
        return torch.zeros(1), torch.zeros(1)

    monkeypatch.setattr(ops, "usable", lambda *tensors: True)
    monkeypatch.setattr(delta_chunk, "scan", scan)
    x = torch.ones(1, 1, 4, 2)
    ops.decay_scan(x, x, x)
    ops.delta_scan(x, x, x, x)
    assert said == [False, True]
    ops.delta_scan(x, x, x, x, chunk=2, commit_BHN=torch.ones(1, 1, 2))
    assert said == [False, True]  # what a chunk keeps to itself stays with torch


def test_the_processor_imports_no_triton():
    code = (
        "import sys, torch; from impls import ops; x = torch.ones(1, 1, 4, 2); ops.delta_scan(x, x, x, x); "
        "sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_mechanisms_whose_state_is_scanned_have_a_kernel():
    assert all(kernels.has(name) for name in (*MECHANISMS, "hola", "vla", "sla"))
    assert not any(kernels.has(name) for name in ("mesa", "based", "two_mamba"))


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_benchmark_hands_over_what_the_equations_mean(name: str):
    inputs = {key: z.double() for key, z in gpu_recurrent.drawn(name, 1, 2, 9, 4, 4, device="cpu").items()}
    check = next(check for check in gpu_recurrent.checks() if check.kernel_name == name)
    assert torch.allclose(gpu_recurrent.torch_form(name, **inputs), check.reference(**inputs))
