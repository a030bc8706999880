"""Identities of the recurrent and hybrid family that follow from their equations; float64 throughout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from impls import (
    based,
    ccq,
    gated_delta_net,
    hedgehog,
    hola,
    inline,
    linear_attention,
    mala,
    mamba2,
    mamba2s,
    mesa,
    nats_l,
    ops,
    parts,
    retnet,
    sla,
    softmax,
    two_mamba,
    vla,
)

B, H, T, K, V = 2, 3, 40, 4, 5
SCALE = K**-0.5


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


QKV = randn(B, H, T, K, seed=1), randn(B, H, T, K, seed=2), randn(B, H, T, V, seed=3)
UNIT = torch.nn.functional.normalize(QKV[0], dim=-1), torch.nn.functional.normalize(QKV[1], dim=-1), QKV[2]
BETA, DECAY = rand(B, H, T, seed=4), -rand(B, H, T, seed=5)
ONE, NONE = torch.ones_like(BETA), torch.zeros_like(DECAY)


# sums and decays


def test_mamba2_with_steps_of_one_and_constant_decays_is_retention():
    g = torch.log1p(-(2.0 ** (-5 - torch.arange(H, dtype=torch.float64))))[None, :, None].expand_as(DECAY)
    assert_close(mamba2.attend(*QKV, ONE, g, 0.3), retnet.attend(*QKV, 0.3))


def test_mamba2_without_decay_is_linear_attention_without_features():
    assert_close(mamba2.attend(*QKV, ONE, NONE, 1.0), (QKV[0] @ QKV[1].mT).tril() @ QKV[2])


def test_a_step_of_zero_writes_nothing():
    dt = ONE.clone()
    dt[:, :, 7] = 0
    changed = QKV[2].clone()
    changed[:, :, 7] += 100
    assert_close(mamba2.attend(*QKV, dt, DECAY, 1.0), mamba2.attend(*QKV[:2], changed, dt, DECAY, 1.0))


def test_mamba2s_is_mamba2_with_a_norm_over_all_heads():
    y = mamba2.attend(*QKV, BETA, DECAY, SCALE)
    assert_close(mamba2s.attend(*QKV, BETA, DECAY, SCALE), y)
    normed = mamba2s.attend(*QKV, BETA, DECAY, SCALE, torch.ones(H * V, dtype=torch.float64), 0.0)
    assert_close(normed.square().mean(dim=(1, 3)), torch.ones(B, T, dtype=torch.float64))
    assert_close(normed * y.square().mean(dim=(1, 3), keepdim=True).sqrt(), y)


def test_exponential_2mamba_without_decay_is_softmax():
    assert_close(two_mamba.attend(*QKV, NONE, SCALE, "exp"), softmax.attend(*QKV, SCALE))


@pytest.mark.parametrize("decay", [DECAY, 1e-4 * DECAY, torch.where(torch.arange(T) == 21, -1e4, DECAY)])
def test_exponential_2mamba_weighs_by_exp_of_score_and_decay(decay):
    since = torch.stack([torch.stack([decay[:, :, s + 1 : t + 1].sum(-1) for s in range(T)], -1) for t in range(T)], 2)
    A = (ops.scores(*QKV[:2], SCALE) + since).exp().tril()
    assert_close(two_mamba.attend(*QKV, decay, SCALE, "exp"), A @ QKV[2] / A.sum(dim=-1, keepdim=True))


def test_squares_are_an_inner_product():
    q, k, _ = QKV
    f = parts.second_order
    assert f(q).shape[-1] == K * (K + 1) // 2
    assert_close(f(q) @ f(k).mT, (q @ k.mT).square())
    assert_close(based.features(q) @ based.features(k).mT, 1 + q @ k.mT + (q @ k.mT).square() / 2)


def test_2mamba_carries_its_state_over_chunks(monkeypatch):
    whole = two_mamba.attend(*QKV, DECAY, SCALE, "2")
    for chunk in (1, 8, 16):
        monkeypatch.setattr(two_mamba, "CHUNK", chunk)
        assert_close(two_mamba.attend(*QKV, DECAY, SCALE, "2"), whole)


def test_2mamba_of_no_scores_is_zero_with_finite_gradients():
    q = torch.zeros_like(QKV[0]).requires_grad_()
    y = two_mamba.attend(q, *QKV[1:], DECAY, SCALE, "2")
    assert (y == 0).all()
    assert torch.autograd.grad(y.sum(), q)[0].isfinite().all()


def test_based_of_no_query_averages():
    n = torch.arange(1, T + 1, dtype=torch.float64)[:, None]
    assert_close(based.attend(torch.zeros_like(QKV[0]), *QKV[1:], SCALE, 0.0), QKV[2].cumsum(dim=2) / n)


def test_based_is_softmax_to_second_order():
    """The error of the polynomial falls with the cube of the scale of scores."""
    errors = [(based.attend(*QKV, s, 0.0) - softmax.attend(*QKV, s)).abs().max() for s in (1e-2, 1e-3)]
    assert errors[1] < 2e-3 * errors[0]


# feature maps


def test_hedgehog_maps_differ_and_sum_to_two_and_one():
    W = torch.eye(K, dtype=torch.float64).expand(H, K, K)
    sums = [hedgehog.features(QKV[0], W, None, variant).sum(dim=-1) for variant in ("lolcats", "fla")]
    assert_close(sums[0], torch.full_like(sums[0], 2.0))
    assert_close(sums[1], torch.ones_like(sums[1]))


def test_hedgehog_learns_to_mimic_softmax():
    torch.manual_seed(0)
    mixer = hedgehog.Mixer(16, hedgehog.Mixer.Config(heads=2)).double()
    torch.nn.init.normal_(mixer.qkv.weight, std=0.5)
    x_BTD = randn(2, 12, 16)
    maps = [mixer.map_q_HKF, mixer.map_k_HKF]
    optimizer = torch.optim.Adam(maps, lr=0.03)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = mixer.distillation(x_BTD)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    q, k, _ = mixer.project(x_BTD, 0)
    weights = softmax.weights(q, k, mixer.head_dim**-0.5)
    entropy = -torch.xlogy(weights, weights).sum(dim=-1).mean().item()  # the least that the loss can be
    assert losses[-1] - entropy < 0.7 * (losses[0] - entropy)


def test_mala_is_linear_attention_plus_inline_less_the_mean():
    q, k, _ = QKV
    f = linear_attention.phi
    n = torch.arange(1, T + 1, dtype=torch.float64)[:, None]
    linear = linear_attention.weights(q, k, SCALE, 0.0)
    mean = (torch.ones(T, T, dtype=torch.float64) / n).tril()
    assert_close(mala.weights(q, k, SCALE, 0.0), linear + inline.weights(f(q), f(k), SCALE) - mean)


@pytest.mark.parametrize(
    "weights", [lambda q, k: mala.weights(q, k, SCALE, 0.0), lambda q, k: inline.weights(q, k, 1.0)]
)
def test_rows_sum_to_one(weights):
    A = weights(*QKV[:2])
    assert_close(A.sum(dim=-1), torch.ones(B, H, T, dtype=torch.float64))
    assert (A.triu(1) == 0).all()


def test_a_longer_query_changes_mala_and_inline_but_not_linear_attention():
    q, k = QKV[0].abs(), QKV[1]  # where f(q) = q + 1, doubling f(q) is doubling q and adding 1
    doubled = 2 * (q + 1) - 1
    assert_close(linear_attention.weights(doubled, k, SCALE, 0.0), linear_attention.weights(q, k, SCALE, 0.0))
    for weights in (lambda q: mala.weights(q, k, SCALE, 0.0), lambda q: inline.weights(q, k, SCALE)):
        assert (weights(doubled) - weights(q))[:, :, -1].abs().max() > 0.01


def test_inline_of_no_query_averages():
    n = torch.arange(1, T + 1, dtype=torch.float64)[:, None]
    assert_close(inline.attend(torch.zeros_like(QKV[0]), *QKV[1:], SCALE), QKV[2].cumsum(dim=2) / n)


# gates and queries


def test_sla_with_even_gates_is_its_backbone():
    backbone = mamba2.attend(*QKV, ONE, DECAY, SCALE)
    assert_close(sla.attend(*QKV, NONE, NONE, DECAY, SCALE, float(H)), backbone)
    assert_close(sla.attend(*QKV, NONE, NONE, DECAY, SCALE, 1.0), backbone / H**2)


def test_sla_of_one_head_or_a_shift_of_all_logits_changes_nothing():
    q, k, v, logit, g, dt = (z[:, :1] for z in (*QKV, BETA, DECAY, ONE))
    assert_close(sla.attend(q, k, v, logit, logit, g, SCALE, 1.0), mamba2.attend(q, k, v, dt, g, SCALE))
    a, b, shift = randn(B, H, T, seed=6), randn(B, H, T, seed=7), randn(B, 1, T, seed=8)
    shifted = sla.attend(*QKV, a + shift, b + shift, DECAY, SCALE, 1.0)
    assert_close(shifted, sla.attend(*QKV, a, b, DECAY, SCALE, 1.0))


@pytest.mark.parametrize("backbone", ["retnet", "gla", "gdn"])
def test_sla_starts_as_its_backbone(backbone):
    torch.manual_seed(0)
    mixer = sla.Mixer(32, sla.Mixer.Config(backbone=backbone)).double()
    x_BTD = randn(2, 20, 32)
    i = mixer.trunk.project(x_BTD, mixer.init_state(2).past_BWD, 0)
    assert_close(mixer(x_BTD), mixer.trunk.finish(parts.scan(i, None)[0], i.gate_BTV))


def test_ccq_with_eta_zero_is_its_backbone():
    zero = torch.zeros(H, dtype=torch.float64)
    assert_close(ccq.attend(*UNIT, zero, DECAY, SCALE), mamba2.attend(*UNIT, ONE, DECAY, SCALE))


def test_ccq_removes_the_direction_in_which_all_keys_are():
    key = UNIT[1][:, :, :1].expand_as(UNIT[1])
    y = ccq.attend(UNIT[0], key, UNIT[2], torch.ones(H, dtype=torch.float64), DECAY, SCALE)
    assert_close(y, torch.zeros_like(y), rtol=0, atol=1e-12)


def test_ccq_contracts_and_never_turns_around():
    q, k, _ = UNIT
    shorter = ccq.contract(q, k, torch.ones(H, dtype=torch.float64), DECAY)[0]
    assert (shorter.norm(dim=-1) <= 1 + 1e-12).all()
    assert ((shorter * q).sum(dim=-1) >= -1e-12).all()


# least squares


def test_vla_in_parallel_is_its_recurrence():
    u = randn(B, H, T, K, seed=6)
    given = (*QKV, u, 0.1, 1e-4, 0.0, 20)
    assert_close(vla.attend(*given), vla.reference(*given))


@pytest.mark.parametrize("cut", [70, 40])
def test_vla_has_the_gradients_of_its_recurrence_over_chunks_and_calls(cut):
    q, k, v, u = given = [randn(1, 2, 70, width, seed=i).requires_grad_() for i, width in enumerate((K, K, V, K))]
    state, found = vla.start(k[:, :, 0], V, 0.1), []
    for part in torch.arange(70).split(cut):
        y, state = vla.exact(q[:, :, part], k[:, :, part], v[:, :, part], u[:, :, part], state, 1e-4)
        found.append(y)
    weight = randn(1, 2, 70, V, seed=4)
    grads = torch.autograd.grad((torch.cat(found, dim=2) * weight).sum(), given)
    wanted = torch.autograd.grad((vla.reference(q, k, v, u, 0.1, 1e-4, 0.0, 20) * weight).sum(), given)
    assert_close(grads, wanted)


def test_vla_nudges_after_every_period_only():
    u = randn(B, H, T, K, seed=6)
    exact, nudged = (vla.attend(*QKV, u, 0.1, 1e-4, eps, 20) for eps in (0.0, 1e-3))
    assert_close(nudged[:, :, :19], exact[:, :, :19])
    assert (nudged - exact)[:, :, 19:].abs().max() > 1e-7


def test_vla_with_a_large_lambda_writes_along_its_keys():
    """Then A is nearly isotropic: the delta rule with a write strength of one, over the usual denominator."""
    f = linear_attention.phi
    key = torch.nn.functional.normalize(f(QKV[1]), dim=-1)
    read, _ = ops.delta_scan(f(QKV[0]), key, QKV[2], key)
    den = (f(QKV[0]) * f(QKV[1]).cumsum(dim=2)).sum(dim=-1, keepdim=True)
    assert_close(vla.attend(*QKV, randn(B, H, T, K, seed=6), 1e9, 1e-4, 0.0, 20), read / den, rtol=1e-6, atol=1e-7)


def test_mesa_is_ridge_regression_and_exact_once_the_keys_span():
    q, k, _ = QKV
    A_KV = randn(K, V, seed=9)
    y = mesa.attend(q, k, k @ A_KV, ONE, NONE, torch.full((H, K), 1e-9, dtype=torch.float64))
    assert_close(y[:, :, 2 * K :], (q @ A_KV)[:, :, 2 * K :], rtol=1e-6, atol=1e-6)
    lamb = rand(H, K, seed=10) + 0.1
    y = mesa.attend(*QKV, ONE, NONE, lamb)[:, :, -1]
    M = torch.linalg.solve(k.mT @ k + torch.diag_embed(lamb), k.mT @ QKV[2])
    assert_close(y, (q[:, :, -1:] @ M)[:, :, 0])


def test_mesa_with_a_large_ridge_is_linear_attention():
    lamb = torch.full((H, K), 1e8, dtype=torch.float64)
    assert_close(
        1e8 * mesa.attend(*QKV, BETA, DECAY, lamb), mamba2.attend(*QKV, BETA, DECAY, 1.0), rtol=1e-5, atol=1e-6
    )


def test_mesa_forgets_all_but_the_last_token():
    q, k, v = UNIT
    lamb = torch.ones(H, K, dtype=torch.float64)
    y = mesa.attend(q, k, v, ONE, torch.full_like(DECAY, -1e4), lamb)
    assert_close(y, (q * k).sum(dim=-1, keepdim=True) * v / 2)  # (k k^T + I)^{-1} k = k / 2


# hybrids


def hola_of(beta: Tensor, *, window: int, size: int, gate: float, v: Tensor = UNIT[2]) -> Tensor:
    one, zero = torch.ones(K, dtype=torch.float64), torch.zeros(H, dtype=torch.float64)
    sizes = {"window": window, "chunk_size": size, "cache_scale": SCALE, "state_scale": 1.0}
    return hola.attend(*UNIT[:2], v, beta, DECAY, one, one, zero, zero + gate, **sizes, l2_eps=0.0, rms_eps=1e-6)


def test_hola_with_its_gate_shut_is_its_state():
    assert_close(hola_of(BETA, window=4, size=8, gate=-1e4), gated_delta_net.attend(*UNIT, BETA, DECAY, 1.0))


def test_hola_in_one_block_is_softmax_with_a_null():
    state = gated_delta_net.attend(*UNIT, BETA, DECAY, 1.0)
    q, k = (torch.nn.functional.rms_norm(z, (K,), eps=1e-6) for z in UNIT[:2])
    A = ops.scores(q, k, SCALE).exp().tril()
    assert_close(hola_of(BETA, window=4, size=64, gate=1e4), state + A @ UNIT[2] / (1 + A.sum(dim=-1, keepdim=True)))


def test_hola_without_writes_has_nothing_to_rank():
    assert (hola.importance(UNIT[1], UNIT[2], NONE, DECAY) == 0).all()


def test_hola_without_window_forgets_the_blocks_before():
    """With a state that is never written, the first block reaches the later ones through the cache alone."""
    v = UNIT[2].clone()
    v[:, :, 0] += 100
    for window, equal in ((0, True), (8, False)):
        y, moved = (hola_of(NONE, window=window, size=8, gate=0.0, v=z) for z in (UNIT[2], v))
        assert torch.equal(y[:, :, 8:], moved[:, :, 8:]) == equal


def test_hola_ranks_by_what_the_state_was_told():
    """The score is the length of what each token adds to the state."""
    scores = hola.importance(UNIT[1], UNIT[2], BETA, DECAY)
    S = torch.zeros(B, H, K, V, dtype=torch.float64)
    for t in range(T):
        faded = DECAY[:, :, t, None, None].exp() * S
        error = UNIT[2][:, :, t, None] - UNIT[1][:, :, t, None] @ faded
        S = faded + BETA[:, :, t, None, None] * UNIT[1][:, :, t, :, None] @ error
        assert_close(scores[:, :, t], (S - faded).norm(dim=(-2, -1)))


def test_the_largest_of_more_is_the_largest_of_the_largest():
    m, rows = rand(B, H, T, seed=11), randn(B, H, T, V, seed=12)
    kept = hola.largest(m[:, :, :30], 6, rows[:, :, :30])
    online = hola.largest(torch.cat([kept[0], m[:, :, 30:]], dim=-1), 6, torch.cat([kept[1], rows[:, :, 30:]], dim=2))
    for found, expected in zip(online, hola.largest(m, 6, rows), strict=True):
        assert_close(found, expected)
    few, _ = hola.largest(m[:, :, :2], 6, rows[:, :, :2])
    assert (few[..., 2:] == float("-inf")).all()


@pytest.mark.parametrize("size", [1, 8, 16, 64])
def test_nats_l_of_one_type_is_one_of_its_parts(size):
    types = torch.zeros(B, H, -(-T // size), dtype=torch.int64)
    assert_close(nats_l.attend(*QKV, types, size, "softmax", SCALE), softmax.attend(*QKV, SCALE))
    linear = nats_l.attend(*QKV, types + 1, size, "linear", SCALE, BETA, DECAY, 0.0)
    assert_close(linear, gated_delta_net.attend(*UNIT, BETA, DECAY, SCALE))


def test_nats_l_chunks_of_softmax_only_decay_the_state():
    types = torch.zeros(B, H, T // 8, dtype=torch.int64)
    y = nats_l.attend(*QKV, types, 8, "linear", SCALE, BETA, DECAY, 0.0)
    for start in range(0, T, 8):
        q, k, v, beta, g = (z[:, :, start : start + 8] for z in (*UNIT, BETA, DECAY))
        assert_close(y[:, :, start : start + 8], gated_delta_net.attend(q, k, v, beta, g, SCALE))


def test_nats_l_uses_a_type_after_its_chunk_only():
    types = torch.randint(2, (B, H, 5), generator=torch.Generator().manual_seed(0))
    flipped = types.clone()
    flipped[..., 2] = 1 - flipped[..., 2]
    for branch in ("softmax", "linear"):
        y, other = (nats_l.attend(*QKV, z, 8, branch, SCALE, BETA, DECAY, 1e-6) for z in (types, flipped))
        assert torch.equal(y[:, :, :24], other[:, :, :24])
        assert not torch.equal(y[:, :, 24:], other[:, :, 24:])


def test_nats_l_routes_alike_in_training_and_evaluation():
    torch.manual_seed(0)
    mixer = nats_l.Mixer(32, nats_l.Mixer.Config(heads=2, chunk=8)).double()
    x_BTD = randn(2, 30, 32)
    trained = mixer.train()(x_BTD)
    assert torch.equal(trained, mixer.eval()(x_BTD))
    (grad,) = torch.autograd.grad(trained.square().sum(), mixer.route.weight)
    assert grad.abs().max() > 0
