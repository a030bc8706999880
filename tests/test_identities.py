"""The scans against loops, and identities that follow from the equations; float64 unless a test says otherwise."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from impls import delta_net, gated_delta_net, gla, linear_attention, ops, retnet, sigmoid, softmax, softpick
from impls.convs import short_conv

B, H, K, V = 2, 3, 5, 4
UNDECAYED = ["sum", "delta"]
GATED = ["scalar decay", "channel decay", "gated delta", "channel-gated delta"]
RULES = UNDECAYED + GATED
DECAYED = [(rule, "mild") for rule in UNDECAYED] + list(product(GATED, ["mild", "long", "fast", "reset", "far"]))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(rule: str, T: int, decay: str = "mild") -> dict[str, Tensor]:
    """What the scan of a rule takes, from random numbers; keys have unit length."""
    found = {"q": randn(B, H, T, K, seed=1), "k": ops.unit(randn(B, H, T, K, seed=2)), "v": randn(B, H, T, V, seed=3)}
    if "delta" in rule:
        found["write"] = rand(B, H, T, 1, seed=4) * found["k"]
    if "decay" in rule or "gated" in rule:
        shape = (B, H, T, K) if "channel" in rule else (B, H, T)
        chance, mild = rand(*shape, seed=5), -rand(*shape, seed=6)
        reset = torch.where(chance < 0.2, -1e4, mild / 100)
        far = torch.where(chance < 0.2, -1e30, mild / 100)
        found["log_decay"] = {"mild": mild, "long": mild / 1e4, "fast": 25 * mild, "reset": reset, "far": far}[decay]
    return found


def scan(rule: str, found: dict[str, Tensor], state: Tensor | None = None, chunk: int = 32) -> tuple[Tensor, Tensor]:
    given = {f"{name}_BHT{'V' if name == 'v' else 'K'}": z for name, z in found.items() if name != "log_decay"}
    run = ops.delta_scan if "delta" in rule else ops.decay_scan
    return run(**given, log_decay=found.get("log_decay"), state_BHKV=state, chunk=chunk)


def loop(rule: str, found: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence, a step at a time."""
    S_BHKV, y_BHTV = state, []
    for t in range(found["q"].shape[2]):
        now = {name: z[:, :, t : t + 1] for name, z in found.items()}
        if "log_decay" in now:
            g = now["log_decay"]
            S_BHKV = g.exp().mT * S_BHKV if g.dim() == 4 else g.exp()[..., None] * S_BHKV
        if "delta" in rule:
            S_BHKV = S_BHKV + now["write"].mT @ (now["v"] - now["k"] @ S_BHKV)
        else:
            S_BHKV = S_BHKV + now["k"].mT @ now["v"]
        y_BHTV.append(now["q"] @ S_BHKV)
    return torch.cat(y_BHTV, dim=2), S_BHKV


@pytest.mark.parametrize(("rule", "decay"), DECAYED)
@pytest.mark.parametrize(("T", "chunk"), [(1, 32), (2, 1), (7, 4), (33, 32), (64, 16), (65, 64), (130, 32)])
def test_scan_equals_its_loop(rule, decay, T, chunk):
    """Outputs, final state and the gradients of both with respect to everything, the first state included."""
    found = {name: z.requires_grad_() for name, z in inputs(rule, T, decay).items()}
    state = randn(B, H, K, V, seed=7).requires_grad_()
    grads = []
    results = scan(rule, found, state, chunk), loop(rule, found, state)
    for y, S in results:
        total = (y * randn(*y.shape, seed=8)).sum() + (S * randn(*S.shape, seed=9)).sum()
        grads.append(torch.autograd.grad(total, [*found.values(), state]))
    assert_close(results[0], results[1], rtol=1e-9, atol=1e-11)
    assert_close(grads[0], grads[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_state_carries_over_from_call_to_call(rule):
    found = inputs(rule, 77)
    y, S = scan(rule, found)
    state, parts = None, []
    for start, end in ((0, 1), (1, 40), (40, 77)):
        part, state = scan(rule, {name: z[:, :, start:end] for name, z in found.items()}, state)
        parts.append(part)
    assert_close(torch.cat(parts, dim=2), y)
    assert_close(state, S)


@pytest.mark.parametrize("decay", ["mild", "long", "reset"])
@pytest.mark.parametrize("rule", RULES)
def test_float32_stays_near_float64_over_2000_steps(rule, decay):
    found = inputs(rule, 2000, decay)
    y, S = scan(rule, found)
    y32, S32 = scan(rule, {name: z.float() for name, z in found.items()})
    assert (y32 - y).norm() < 1e-5 * y.norm()
    assert (S32 - S).norm() < 1e-5 * S.norm()


def test_state_is_float32_whatever_comes_in():
    found = {name: z.bfloat16() for name, z in inputs("gated delta", 40).items()}
    y, S = scan("gated delta", found)
    assert y.dtype == torch.bfloat16
    assert S.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        y, S = scan("gated delta", {name: z.float() for name, z in found.items()})
    assert y.dtype == S.dtype == torch.float32


@pytest.mark.parametrize("chunk", [0, -1, 3, 48])
def test_chunks_are_powers_of_two(chunk):
    with pytest.raises(ValueError, match="not a power of two"):
        scan("sum", inputs("sum", 5), chunk=chunk)


QKV = randn(B, H, 70, K, seed=1), ops.unit(randn(B, H, 70, K, seed=2)), randn(B, H, 70, V, seed=3)
BETA, DECAY = rand(B, H, 70, seed=4), -rand(B, H, 70, seed=5)


def test_gate_of_one_is_no_gate():
    ungated = delta_net.attend(*QKV, BETA, 1.0)
    assert_close(gated_delta_net.attend(*QKV, BETA, torch.zeros_like(DECAY), 1.0), ungated)
    summed = (QKV[0] @ QKV[1].mT).tril() @ QKV[2]
    assert_close(gla.attend(*QKV, torch.zeros_like(QKV[0]), 1.0), summed)


def test_one_decay_for_all_channels_is_scalar_decay():
    scalar, _ = ops.decay_scan(*QKV, DECAY)
    assert_close(gla.attend(*QKV, DECAY[..., None].expand_as(QKV[0]), 1.0), scalar)


def test_retention_is_gla_with_constant_gates():
    log_gamma = torch.log1p(-(2.0 ** (-5 - torch.arange(H, dtype=torch.float64))))
    g = log_gamma[None, :, None, None].expand_as(QKV[0])
    assert_close(retnet.attend(*QKV, 0.3), gla.attend(*QKV, g, 0.3))


def test_beta_zero_writes_nothing_and_beta_one_overwrites():
    q, k, v = QKV
    assert (delta_net.attend(q, k, v, torch.zeros_like(BETA), 1.0) == 0).all()
    key = k[:, :, :1].expand_as(k) / k[:, :, :1].norm(dim=-1, keepdim=True)
    assert_close(delta_net.attend(key, key, v, torch.ones_like(BETA), 1.0), v)


def test_a_reset_forgets():
    """After a log-decay of -1e4 the past is gone and the future unharmed."""
    q, k, v = QKV
    g = torch.where(torch.arange(70) == 41, -1e4, DECAY)
    q2, k2, v2, beta, decay = (z[:, :, 41:] for z in (q, k, v, BETA, DECAY))
    fresh = gated_delta_net.attend(q2, k2, v2, beta, decay, 1.0)
    assert_close(gated_delta_net.attend(q, k, v, BETA, g, 1.0)[:, :, 41:], fresh)


def test_unit_keys_keep_the_state_bounded():
    k = ops.unit(randn(1, 1, 3000, 8, seed=1)).float()
    _, S = ops.delta_scan(k, k, randn(1, 1, 3000, 5, seed=2).float(), k)
    assert S.abs().max() < 50


def test_linear_attention_averages():
    A = linear_attention.weights(QKV[0], QKV[1], 1.0, 0.0)
    assert (A >= 0).all()
    assert_close(A.sum(dim=-1), torch.ones_like(A[..., 0]))
    assert_close(A @ QKV[2], linear_attention.attend(*QKV, 1.0, 0.0, True))
    assert_close(
        linear_attention.attend(5 * torch.ones_like(QKV[0]), *QKV[1:], 1.0, 0.0, True)[:, :, 0], QKV[2][:, :, 0]
    )


def test_feature_map_keeps_small_features():
    """elu(x) + 1 in float32 is 0 below -17; exp(x) is not."""
    x = torch.tensor([-30.0, -1.0, 0.0, 2.0], requires_grad=True)
    y = linear_attention.phi(x)
    assert_close(y, torch.tensor([math.exp(-30), math.exp(-1), 1.0, 3.0]), rtol=1e-6, atol=0)
    assert_close(torch.autograd.grad(y.sum(), x)[0], torch.tensor([math.exp(-30), math.exp(-1), 1.0, 1.0]))


def test_sigmoid_of_no_query_weighs_all_keys_alike():
    y = sigmoid.attend(torch.zeros_like(QKV[0]), *QKV[1:], 1.0, -math.log(8))
    assert_close(y, QKV[2].cumsum(dim=2) / 9)


def test_softpick_rows():
    """Weights in [0, 1] that sum to at most 1; exactly 0 where no score is positive; 1 for one positive score."""
    A = softpick.weights(4 * QKV[0], QKV[1], 1.0, 1e-8)
    assert (A >= 0).all()
    assert (A.sum(dim=-1) <= 1 + 1e-12).all()
    first = (QKV[0] * QKV[1]).sum(dim=-1)[..., 0]
    assert_close(A[..., 0, 0], (first > 0).double(), rtol=1e-6, atol=1e-6)
    assert (softpick.weights(-QKV[1], QKV[1], 1.0, 1e-8)[..., 0, :] == 0).all()


def test_fused_softmax_is_its_weights_times_the_values():
    for T in (1, 30, 70):
        q = QKV[0][:, :, -T:]
        assert_close(softmax.attend(q, *QKV[1:], 0.4), softmax.weights(q, QKV[1], 0.4) @ QKV[2])


def test_convolution_state_is_what_came_before():
    x, weight = randn(2, 20, 6), randn(6, 4, seed=1)
    y, past = short_conv(x, weight, x.new_zeros(2, 3, 6))
    start, kept = short_conv(x[:, :2], weight, x.new_zeros(2, 3, 6))
    end, last = short_conv(x[:, 2:], weight, kept)
    assert_close(torch.cat([start, end], dim=1), y)
    assert_close(past, x[:, -3:])
    assert_close(last, past)
