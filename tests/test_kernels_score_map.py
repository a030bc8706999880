"""The kernels of `score_map` without a GPU: interpreted beside their torch forms, and compiled for two kinds of GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import impls
from impls import base, kernels
from impls.base import ScoreMixer
from impls.kernels import score_map

pytest.importorskip("triton", reason="no Triton on this machine")
ROOT = Path(__file__).parents[1]
FORMS = (
    *("softmax", "plus one", "sink logit", "sink key", "sink key, value", "selective", "selective, token", "affine"),
    *("sigmoid", "relu", "relu, index", "softpick", "cog", "self-adjust v1", "self-adjust v2", "LSSA", "LSSAR"),
)
Found = dict[str, dict[str, tuple[float, float]]]  # {case: {tensor: (error, the torch form's own)}}
SPILLS = 128  # bytes of a thread's stack: 32 registers of its 255


def script(*command: str, **environment: str) -> str:
    """What a script of this folder prints, in a process of its own."""
    known = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    told = known | {"OMP_NUM_THREADS": "1"} | environment
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=told, text=True, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout


@pytest.fixture(scope="module")
def interpreted() -> Found:
    return dict(json.loads(line) for line in script("tests.kernels_score_map", TRITON_INTERPRET="1").splitlines())


def good(case: str, tensor: str, error: float, own: float) -> bool:
    """As near as its precision lets sums be, or, where rounding is magnified, as four times the torch form's error.

    A row's log-sum of 60 is kept to 60 x 2^-24, and with it all weights of the row; the gradient of a temperature
    multiplies that error by the scores, 60 again.
    """
    if "to 60" in case and tensor in ("pos_beta", "tau_token"):
        return error <= 4 * 60 * 60 * 2**-24
    return error <= max(1e-2 if "bfloat16" in case else 1e-5, 4 * own)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_is_its_torch_form_forward_and_backward(form: str, interpreted: Found):
    own = {case: errors for case, errors in interpreted.items() if case.startswith(f"{form}: ")}
    assert len(own) >= 12
    wrong = {case: errors for case, errors in own.items() if not all(good(case, n, *e) for n, e in errors.items())}
    assert not wrong


@pytest.mark.slow
def test_every_form_is_listed(interpreted: Found):
    assert {case.split(": ")[0] for case in interpreted} == set(FORMS)


@pytest.mark.slow
def test_a_row_that_sees_no_key_is_zero(interpreted: Found):
    assert interpreted["softmax: rows without a key"] == {"y": [0.0, 0.0]}


@pytest.mark.slow
@pytest.mark.parametrize("target", [80, 90])
def test_kernels_compile_for_gpus_that_are_not_here(target: int):
    found = json.loads(script("tests.kernels_compiled", str(target)))
    assert len(found) >= 24
    spilled = {name: code for name, code in found.items() if code["STACK"] > SPILLS}
    assert not spilled
    shared = {80: 163, 90: 227}[target] * 1024  # CUDA C++ Programming Guide, compute capabilities: per block
    assert not {name: code for name, code in found.items() if code["shared"] > shared}
    for name, code in found.items():
        print(f"{name}: {code['REG']} registers, {code['STACK']} bytes spilled, {code['shared']} bytes shared")


def test_a_mechanism_without_a_kernel_says_so():
    with_one = {name for name in impls.names() if kernels.has(name)}
    assert with_one >= {name for name, thing in vars(score_map).items() if callable(thing) and name in impls.names()}
    assert not kernels.has("entmax")


def test_a_kernel_takes_over_where_it_can_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    def plain(q, k, v, scale):
        return q * scale

    def kernel(q, k, v, scale):
        return q * -scale

    x = torch.ones(1, 1, 2, 4)
    assert torch.equal(kernels.dispatched(kernel)(plain)(x, x, x, 2.0), x * 2)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    attend = kernels.dispatched(kernel)(plain)
    assert torch.equal(attend(x, x, x, scale=2.0), x * 2)
    monkeypatch.setattr(kernels, "usable", lambda *tensors: True)
    assert torch.equal(attend(x, x, x, scale=2.0), x * -2)
    assert getattr(attend, "reference") is plain  # noqa: B009


@pytest.mark.parametrize("name", [name for name in impls.names() if kernels.has(name)])
def test_a_mixer_gives_its_kernel_what_its_weights_take(name: str, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    mixer = impls.build(name, 32, {"heads": 2}).eval()
    if not isinstance(mixer, ScoreMixer):
        pytest.skip("it keeps a state, not scores")
    for weight in mixer.parameters():
        torch.nn.init.normal_(weight)
    x_BTD = torch.randn(2, 9, 32)
    with torch.no_grad():
        want = mixer(x_BTD), mixer.step(x_BTD[:, 0], mixer.prefill(x_BTD)[1])[0]
        monkeypatch.setattr(base.kernels, "usable", lambda *tensors: True)
        monkeypatch.setattr(type(mixer), "attention", None)
        got = mixer(x_BTD), mixer.step(x_BTD[:, 0], mixer.prefill(x_BTD)[1])[0]
    torch.testing.assert_close(got, want)


def test_the_processor_never_uses_a_kernel():
    assert not kernels.usable(torch.ones(1, 1, 2, 4))


def test_nothing_imports_triton_before_it_is_needed():
    code = "import sys, impls; [impls.config(n, {}) for n in ('softmax', 'sigmoid')]; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
