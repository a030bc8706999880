"""Identities of the score family that follow from its equations; float64 throughout unless a test says otherwise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import impls
from harness import checks
from impls import (
    affine_scaled,
    cog_attention,
    dsf_normalized_attention,
    entmax,
    gpsa,
    local_linear,
    lssar,
    lucid,
    mta,
    normalized_attention,
    ops,
    parallax,
    recurrent_softmax,
    relu_attention,
    sa_softmax,
    sigmoid,
    sink_bias,
    softmax,
    softmax_plus_one,
    ssa,
    vla,
    zonkey,
)

B, H, T, K, V = 2, 3, 9, 4, 5
SCALE = K**-0.5


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = ((B, H, T, K), (B, H, T, K), (B, H, T, V))
    q, k, v = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in shapes)
    return q, k, v


def row_of(weights, scores: list[float], *, seen: int | None = None, dtype=torch.float64) -> Tensor:
    """The weights of one query that sees the first `seen` of keys with these scores."""
    k = torch.tensor(scores, dtype=dtype).view(1, 1, -1, 1)
    return weights(torch.ones_like(k), k)[0, 0, (seen or len(scores)) - 1]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


# sinks and ReLU


@pytest.mark.parametrize(
    ("scores", "seen", "expected"),
    [
        ([0.0, 0.0], 2, [1 / 3, 1 / 3]),
        ([10.0, 10.0], 2, [math.exp(10) / (1 + 2 * math.exp(10))] * 2),
        ([-10.0, -10.0], 2, [math.exp(-10) / (1 + 2 * math.exp(-10))] * 2),
        ([200.0, 200.0], 2, [0.5, 0.5]),
        ([1.0, 2.0, 99.0], 2, [0.2447284711, 0.6652409558, 0.0]),
    ],
)
def test_the_one_in_the_denominator_shrinks_with_the_row_maximum(scores, seen, expected):
    # kyegomez/AttentionIsOFFByOne#5: with the 1 left unshifted, equal scores get 1/3 each whatever they are
    found = row_of(lambda q, k: softmax_plus_one.weights(q, k, 1.0), scores, seen=seen)
    assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-10, rtol=0)


def test_softmax_plus_one_is_a_sink_of_logit_zero_and_a_key_of_zeros(qkv):
    q, k, v = qkv
    y = softmax_plus_one.attend(q, k, v, SCALE)
    zero = torch.zeros(H, dtype=torch.float64)
    assert_close(sink_bias.attend(q, k, v, SCALE, sink_logit=zero), y)
    assert_close(sink_bias.attend(q, k, v, SCALE, sink_key=zero[:, None].expand(H, K)), y)


def test_a_sink_that_nobody_looks_at_leaves_softmax(qkv):
    q, k, v = qkv
    gone = torch.full((H,), -1e4, dtype=torch.float64)
    assert_close(sink_bias.attend(q, k, v, SCALE, sink_logit=gone), softmax.reference(q, k, v, SCALE))


def test_a_sink_with_a_value_is_one_more_key_for_every_query(qkv):
    q, k, v = qkv
    sink_key, sink_value = randn(H, K), randn(H, V)
    y = sink_bias.attend(q, k, v, SCALE, sink_key=sink_key, sink_value=sink_value)
    longer_k = torch.cat([sink_key[:, None].expand(B, H, 1, K), k], dim=2)
    longer_v = torch.cat([sink_value[:, None].expand(B, H, 1, V), v], dim=2)
    assert_close(y, softmax.reference(q, longer_k, longer_v, SCALE))


def test_relu_attention_counts_from_zero(qkv):
    q, k, _ = qkv
    plain, divided = (relu_attention.weights(q, k, SCALE, form) for form in ("none", "max(i,1)"))
    divisor = torch.tensor([1.0, *range(1, T)], dtype=torch.float64)
    assert_close(plain, divided * divisor[:, None])
    assert (relu_attention.weights(-k.abs(), k.abs(), SCALE, "none") == 0).all()


# signs


def test_absolute_cog_weights_sum_to_one_and_positive_scores_give_softmax(qkv):
    q, k, _ = qkv
    assert_close(cog_attention.weights(q, k, SCALE).abs().sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    assert_close(cog_attention.weights(q.abs(), k.abs(), SCALE), softmax.weights(q.abs(), k.abs(), SCALE))
    assert_close(cog_attention.weights(-q, k, SCALE), -cog_attention.weights(q, k, SCALE))
    assert (cog_attention.weights(torch.zeros_like(q), k, SCALE) == 0).all()


def test_self_adjust_softmax_v2_rows_lie_in_zero_one_and_the_first_is_a_switch(qkv):
    q, k, _ = qkv
    A = sa_softmax.weights(q, k, SCALE, "v2", 0.0)
    assert A.min() >= 0
    assert A.sum(-1).max() <= 1 + 1e-12
    assert_close(A[:, :, 0, 0], ((q[:, :, 0] * k[:, :, 0]).sum(-1) > 0).double())
    assert (sa_softmax.weights(torch.zeros_like(q), k, SCALE, "v2", 0.0) == 0).all()


def test_self_adjust_softmax_keeps_a_gradient_where_softmax_has_none():
    k = torch.tensor([30.0, 0.0, 0.0], dtype=torch.float64).view(1, 1, 3, 1)

    def slope(weights) -> float:
        moved = k.clone().requires_grad_()
        (grad,) = torch.autograd.grad(weights(torch.ones_like(moved), moved)[0, 0, 2, 0], moved)
        return float(grad[0, 0, 0, 0])

    assert slope(lambda q, k: softmax.weights(q, k, 1.0)) < 1e-10
    assert slope(lambda q, k: sa_softmax.weights(q, k, 1.0, "v1", 0.0)) == pytest.approx(1, abs=1e-9)


# sparse and reweighted


@pytest.mark.parametrize(
    ("alpha", "scores", "seen", "expected"),
    [
        (2, [0.5, 0.5, 0.0], 3, [0.5, 0.5, 0.0]),
        (2, [1.0, 1.0, 1.0], 3, [1 / 3] * 3),
        (2, [3.0, 0.0, 0.0], 3, [1.0, 0.0, 0.0]),
        (2, [1e9, 0.0, 0.0], 3, [1.0, 0.0, 0.0]),
        (2, [2.0, 1.5, 9.0], 2, [0.75, 0.25, 0.0]),
        (2, [0.0, 9.0, 9.0], 1, [1.0, 0.0, 0.0]),
        (1.5, [0.0, 0.0], 2, [0.5, 0.5]),
        (1.5, [1.0, 0.0], 2, [0.8307189139, 0.1692810861]),
        (1.5, [5.0, 0.0, 0.0], 3, [1.0, 0.0, 0.0]),
        (1.5, [1e6, 1e6, 0.0], 3, [0.5, 0.5, 0.0]),
        (1.2, [1e9, 1e9, 0.0], 3, [0.5, 0.5, 0.0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entmax_golden_values(alpha, scores, seen, expected, dtype):
    # tensorflow/tensorflow#15564 and deep-spin/entmax#19: large and hidden scores
    found = row_of(lambda q, k: entmax.weights(q, k, 1.0, alpha), scores, seen=seen, dtype=dtype)
    assert_close(found, torch.tensor(expected, dtype=dtype), atol=2e-6, rtol=0)


def test_sparsemax_has_the_same_gradient_in_every_head():
    # deep-spin/entmax#13: the gradient once depended on the number of dimensions
    scores = torch.tensor([[-2.0, 0.0, 0.5], [0.1, 2.0, -0.4]], dtype=torch.float64)
    k = scores.view(1, 2, 3, 1).clone().requires_grad_()
    q = torch.ones(1, 2, 1, 1, dtype=torch.float64)
    (grad,) = torch.autograd.grad((entmax.weights(q, k, 1.0, 2) ** 2).sum(), k)
    expected = torch.tensor([[0.0, -0.5, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert_close(grad.view(2, 3), expected)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_entmax_by_bisection_meets_the_exact_algorithms(qkv, alpha):
    q, k, _ = qkv
    by_head = torch.full((H,), alpha, dtype=torch.float64)
    assert_close(entmax.weights(q, k, SCALE, by_head), entmax.weights(q, k, SCALE, alpha), atol=1e-9, rtol=0)


def test_entmax_goes_from_softmax_to_ever_more_zeros(qkv):
    q, k, _ = qkv
    assert_close(entmax.weights(q, k, SCALE, 1), softmax.weights(q, k, SCALE))
    near = entmax.weights(q, k, SCALE, 1.0001)
    assert_close(near, softmax.weights(q, k, SCALE), atol=1e-3, rtol=0)
    zeros = [int((entmax.weights(3 * q, k, SCALE, alpha).tril() == 0).sum()) for alpha in (1.01, 1.3, 1.7, 2.0)]
    assert zeros == sorted(zeros)
    assert zeros[0] < zeros[-1]


def test_lssa_weights_know_directions_only_and_lssar_rows_sum_to_one(qkv):
    q, k, v = qkv
    for p in (None, 3.0, 15.0):
        A = lssar.weights(q, k, p)
        assert_close(lssar.weights(5 * q, 0.01 * k, p), A)
        assert_close(A.sum(-1), torch.ones(B, H, T, dtype=torch.float64))
        assert_close(lssar.attend(q, k, v, p)[:, :, 0], v[:, :, 0])


def test_a_power_of_fifteen_neither_overflows_nor_dies_in_float32():
    k = torch.randn(1, 1, 1024, 32, generator=torch.Generator().manual_seed(2))
    A = lssar.weights(k, k, 15.0)  # every row is peaked at its own key: (N A - 1)^15 is far beyond 3e38
    assert torch.isfinite(A).all()
    assert_close(A.double(), lssar.weights(k.double(), k.double(), 15.0), atol=1e-4, rtol=0)
    assert A[0, 0, -1, -1] > 0.99


def test_a_uniform_row_is_a_zero_row_with_a_finite_gradient():
    k = torch.ones(1, 1, 8, 4, requires_grad=True)
    A = lssar.weights(torch.ones(1, 1, 8, 4), k, 15.0)
    (grad,) = torch.autograd.grad(A.sum(), k)
    assert (A[0, 0, 3:] == 0).all()
    assert torch.isfinite(grad).all()


def test_lssar_is_near_float64_in_bfloat16_autocast():
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 600, 16, generator=draw).bfloat16().double() for _ in range(3))
    for p in (None, 3.0, 15.0):
        with torch.autocast("cpu", torch.bfloat16):
            found = lssar.attend(q.float(), k.float(), v.float(), p)
            A = lssar.weights(q.float(), k.float(), p)
        exact = lssar.attend(q, k, v, p)
        assert (found.double() - exact).norm() < 0.05 * exact.norm()
        assert_close(A.sum(dim=-1), torch.ones(2, 2, 600), atol=1e-5, rtol=0)  # only the scores are rounded


def test_a_long_uniform_row_is_a_zero_row_in_bfloat16_autocast():
    k = torch.ones(1, 1, 600, 16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        A = lssar.weights(torch.ones(1, 1, 600, 16), k, 15.0)
    (grad,) = torch.autograd.grad(A.sum(), k)
    assert (A[0, 0, 3:] == 0).all()
    assert torch.isfinite(grad).all()


# normalisers that are not softmax


def test_normalized_attention_rows_have_a_fixed_sum_and_norm(qkv):
    q, k, _ = qkv
    gain, bias = randn(H), randn(H)
    n = torch.arange(1, T + 1, dtype=torch.float64)
    A = normalized_attention.weights(q, k, gain, bias, 1.0, 1e-3)
    assert_close(A.sum(-1), (bias[:, None] * n).expand(B, H, T))
    A = normalized_attention.weights(q, k, gain, torch.zeros_like(bias), 1.0, 0.0)
    assert_close(A.norm(dim=-1)[..., 1:], (gain.abs()[:, None] * n.sqrt())[:, 1:].expand(B, H, T - 1))


def test_equal_scores_have_the_true_gradient_of_normalized_attention():
    n, eps = 4, 1e-3
    k = torch.ones(1, 1, n, 1, dtype=torch.float64)
    gain, bias = torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    found = torch.autograd.functional.jacobian(
        lambda k: normalized_attention.weights(q, k, gain, bias, 1.0, eps)[0, 0, 0], k
    )
    assert isinstance(found, Tensor)
    expected = 2.0 / eps * (torch.eye(n, dtype=torch.float64) - 1 / n)
    assert_close(found.view(n, n), expected)


def test_dsf_attention_divides_by_a_function_of_the_query_alone(qkv):
    q, k, v = qkv
    n = randn(B, H, T)
    plain = (q @ k.mT).tril() @ v
    assert_close(dsf_normalized_attention.attend(q, k, v, 0 * n, "exp", 1.0), plain)
    eta = {"exp": n.exp(), "softplus": torch.nn.functional.softplus(n), "sigmoid": n.sigmoid()}
    for name, value in eta.items():
        assert_close(dsf_normalized_attention.attend(q, k, v, n, name, 1.0), plain / value[..., None])


def test_replaced_denominators(qkv):
    q, k, v = qkv
    y = softmax.reference(q, k, v, SCALE)

    def attend(variant: str, clamp: float | None = None, **more) -> Tensor:
        return recurrent_softmax.attend(q, k, v, SCALE, variant, clamp, **more)

    assert_close(attend("l2norm_noclamp", norm_eps=1e-12), torch.nn.functional.normalize(y, dim=-1))
    assert_close(attend("rmsnorm", norm_eps=1e-6), attend("div_n_rmsnorm", norm_eps=1e-6))
    total = softmax_total(q, k)
    assert_close(attend("clamp_denom"), torch.where(total >= 1, y, y * total))
    assert_close(attend("gate", out_gate_logit=torch.full((B, H, T), 50.0).double()), y * total)


def softmax_total(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT * SCALE).exp().tril().sum(-1, keepdim=True)


def test_the_norm_of_an_unclamped_sum_does_not_overflow_in_float32(qkv):
    q, k, v = (x.float() for x in qkv)
    y = recurrent_softmax.attend(100 * q, 100 * k, v, SCALE, "l2norm_noclamp", None, norm_eps=1e-12)
    expected = torch.nn.functional.normalize(softmax.reference(100 * q, 100 * k, v, SCALE), dim=-1)
    heard = (q @ k.mT).masked_fill(~ops.causal(T, T), -1.0).amax(dim=-1) > 0  # elsewhere u is below the norm's eps
    assert_close(y[heard], expected[heard], atol=1e-4, rtol=0)
    assert y[~heard].abs().max() < 1e-6


# scaled and shifted softmax


def test_affine_scaling_by_one_is_softmax_and_row_sums_follow_the_count(qkv):
    q, k, v = qkv
    one, gate, average = torch.ones(B, H, T).double(), randn(B, H, T).sigmoid(), randn(H).sigmoid()
    assert_close(
        affine_scaled.attend(q, k, v, one, torch.ones(H).double(), "visible", SCALE), softmax.reference(q, k, v, SCALE)
    )
    sums = affine_scaled.weights(q, k, gate, average, "visible", SCALE).sum(-1)
    assert_close(sums, average[:, None].expand(B, H, T))
    n = torch.arange(1, T + 1, dtype=torch.float64)
    for mode, count in (("length", T), (50, 50)):
        sums = affine_scaled.weights(q, k, gate, average, mode, SCALE).sum(-1)
        assert_close(sums, gate + (average[:, None] - gate) * n / count)


def test_the_moving_average_of_affine_scaling_moves_in_training_only():
    torch.manual_seed(0)
    mixer = impls.build("affine_scaled", 8, {"heads": 2, "rho": 0.75})
    assert isinstance(mixer, affine_scaled.Mixer)
    x = torch.randn(2, 6, 8)
    mixer.eval()(x)
    assert (mixer.alpha_ma == 0).all()
    mixer.train()(x)
    assert_close(mixer.alpha_ma, torch.full((2,), 0.25 * 0.5))  # alpha starts at 0.5
    assert not mixer.alpha_ma.requires_grad
    torch.nn.init.normal_(mixer.gate.weight)
    mixer.alpha_ma.zero_()
    whole = mixer(x)
    mixer.alpha_ma.zero_()
    assert_close(mixer(x[:, :3]), whole[:, :3])  # a training step does not see its own average, made of later tokens


def test_selective_attention_reduces_to_softmax_and_to_the_released_form(qkv):
    q, k, v = qkv
    far = torch.tensor(20.0, dtype=torch.float64)
    assert_close(ssa.attend(q, k, v, far, SCALE), softmax.reference(q, k, v, SCALE))
    torch.manual_seed(0)
    both = impls.build("ssa", 12, {"heads": 2}).double()
    position = impls.build("ssa", 12, {"heads": 2, "token": False}).double()
    position.load_state_dict(both.state_dict(), strict=False)
    x = randn(2, 7, 12)
    assert_close(both(x), position(x))


def test_a_negative_temperature_turns_the_order_of_weights_around():
    q, k = randn(1, 1, 5, K), randn(1, 1, 5, K) * 2
    beta = torch.tensor(20.0, dtype=torch.float64)
    usual, turned = (
        ssa.weights(q, k, beta, SCALE, torch.full((1, 1, 5), tau).double())[0, 0, -1] for tau in (0.0, -2.0)
    )
    assert usual.argsort().equal(turned.argsort(descending=True))


def test_the_gate_of_gpsa_goes_from_content_to_place(qkv):
    q, k, _ = qkv
    place = randn(H, T)
    content = gpsa.weights(q, k, place, torch.full((H,), -60.0).double(), SCALE)
    assert_close(content, softmax.weights(q, k, SCALE))
    far = torch.full((H,), 60.0, dtype=torch.float64)
    assert_close(gpsa.weights(q, k, place, far, SCALE), gpsa.weights(k, q, place, far, SCALE))


def test_gpsa_heads_start_by_looking_back_by_their_own_number():
    mixer = impls.build("gpsa", 16, {"heads": 4, "strength": 3.0}).double()
    A = mixer.weights(1e-3 * randn(1, 12, 16))
    assert A is not None
    assert A[0, :, -1].argmax(-1).tolist() == [11, 10, 9, 8]


# several tokens at once


def test_identity_kernels_and_mixings_make_multi_token_attention_softmax(qkv):
    q, k, v = qkv
    kernel = torch.zeros(H, 6, 11, dtype=torch.float64)
    kernel[:, -1, 5] = 1
    mixing = torch.eye(H, dtype=torch.float64)
    assert_close(mta.attend(q, k, v, SCALE, kernel, mixing, kernel, mixing), softmax.reference(q, k, v, SCALE))
    assert_close(mta.attend(q, k, v, SCALE), softmax.reference(q, k, v, SCALE))


def test_multi_token_attention_starts_as_normed_softmax_times_a_gate():
    torch.manual_seed(0)
    mixer = impls.build("mta", 12, {"heads": 3})
    assert isinstance(mixer, mta.Mixer)
    q, k, v = mixer.project(torch.randn(2, 7, 12))
    normed = torch.nn.functional.rms_norm(softmax.reference(q, k, v, mixer.scale), (4,), eps=1e-5)
    gate = (normed @ mixer.gate.weight.T + mixer.gate.bias).sigmoid()
    assert_close(mixer.mix(q, k, v), normed * gate)


def test_a_kernel_that_shifts_keys_moves_the_scores_not_the_mask():
    scores = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).view(1, 1, 3, 1)
    kernel = torch.zeros(1, 1, 3, dtype=torch.float64)
    kernel[0, 0, 0] = 1  # key s gets the score of key s - 1
    A = mta.weights(torch.ones_like(scores), scores, 1.0, kq_kernel_pre=kernel)
    assert_close(A[0, 0, 2], torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).softmax(-1))
    kernel = kernel.flip(-1)  # key s gets the score of key s + 1, which for the last key is in the future: 0
    A = mta.weights(torch.ones_like(scores), scores, 1.0, kq_kernel_pre=kernel)
    assert_close(A[0, 0, 1, :2], torch.tensor([2.0, 0.0], dtype=torch.float64).softmax(-1))


def test_lucid_solves_for_values_that_the_kernel_maps_back(qkv):
    q, k, v = qkv
    P = lucid.preconditioner(k, SCALE, 1e-5)
    assert_close(P @ lucid.precondition(k, v, SCALE, 1e-5), v)
    assert_close(lucid.weights(q, k, SCALE, 1e-5) @ v, lucid.attend(q, k, v, SCALE, 1e-5))
    assert_close(P[:, :, -2:], lucid.preconditioner(k, SCALE, 1e-5, rows=2))


def test_equal_keys_make_lucid_subtract_the_value_before(qkv):
    _, k, v = qkv
    solved = lucid.precondition(k[:, :, :1].expand_as(k), v, SCALE, 0.0)
    assert_close(solved[:, :, 1:], v[:, :, 1:] - v[:, :, :-1])


# local regression


def test_local_linear_attention_with_an_endless_ridge_is_softmax(qkv):
    q, k, v = qkv
    assert_close(local_linear.attend(q, k, v, SCALE, 1e9), softmax.reference(q, k, v, SCALE), atol=1e-6, rtol=0)


def test_local_linear_attention_recovers_a_linear_map_where_softmax_does_not(qkv):
    q, k, _ = qkv
    linear = randn(K, V)
    found, wanted = local_linear.attend(q, k, k @ linear, SCALE, 1e-9), q @ linear
    assert_close(found[:, :, K + 1 :], wanted[:, :, K + 1 :], atol=1e-4, rtol=0)
    assert (softmax.reference(q, k, k @ linear, SCALE) - wanted)[:, :, K + 1 :].abs().max() > 0.5


def test_parallax_is_softmax_without_its_probe_and_local_linear_with_the_right_one(qkv):
    q, k, v = qkv
    assert_close(parallax.attend(q, torch.zeros_like(q), k, v, SCALE), softmax.reference(q, k, v, SCALE))
    w = softmax.weights(q, k, SCALE)
    r = local_linear.slopes(w, w @ k - q, k, w @ k, 0.1)
    assert_close(parallax.attend(q, r, k, v, SCALE), local_linear.attend(q, k, v, SCALE, 0.1))


def test_weights_of_local_regression_sum_to_one(qkv):
    q, k, _ = qkv
    ones = torch.ones(B, H, T, dtype=torch.float64)
    assert_close(local_linear.weights(q, k, SCALE, 0.1).sum(-1), ones)
    assert_close(parallax.weights(q, randn(B, H, T, K), k, SCALE).sum(-1), ones)


# probabilistic attention, bidirectional


def test_certain_existence_is_full_attention(qkv):
    q, k, v = qkv
    full = (q @ k.mT * SCALE).softmax(-1) @ v
    assert_close(zonkey.attend(q, k, v, torch.ones(B, T).double(), SCALE), full)


def test_existence_of_one_and_zero_is_a_hard_cut(qkv):
    q, k, v = qkv
    p = torch.ones(B, T, dtype=torch.float64)
    p[:, 5:] = 0
    y = zonkey.attend(q, k, v, p, SCALE)
    assert_close(y[:, :, :5], (q[:, :, :5] @ k[:, :, :5].mT * SCALE).softmax(-1) @ v[:, :, :5])
    assert (y[:, :, 5:] == 0).all()


def test_existence_has_a_gradient_and_no_effect_on_what_comes_before_in_a_causal_model(qkv):
    q, k, v = qkv
    p = torch.linspace(1, 0.1, T, dtype=torch.float64).expand(B, T).clone().requires_grad_()
    (grad,) = torch.autograd.grad(zonkey.attend(q, k, v, p, SCALE).square().sum(), p)
    assert torch.isfinite(grad).all()
    assert (grad != 0).all()
    assert_close(zonkey.attend(q, k, v, p.detach(), SCALE, causal=True), softmax.reference(q, k, v, SCALE))


def test_a_less_certain_later_token_gets_less_of_an_earlier_query(qkv):
    q, k, _ = qkv
    p = torch.ones(B, T, dtype=torch.float64)
    p[:, 6:] = 0.25
    sure, unsure = (zonkey.weights(q, k, x, SCALE) for x in (torch.ones_like(p), p))
    odds = unsure[:, :, 2, 7] / unsure[:, :, 2, 0] / (sure[:, :, 2, 7] / sure[:, :, 2, 0])
    assert_close(odds, torch.full_like(odds, 0.25))
    assert_close(unsure[:, :, 7], sure[:, :, 7])


def test_the_check_of_soft_existence_holds_for_it_and_cannot_be_asked_of_others():
    assert checks.run("existence_is_a_soft_mask", "zonkey", {}).holds
    with pytest.raises(ValueError, match="no probability of existence"):
        checks.run("existence_is_a_soft_mask", "softmax", {})


# Jacobians of weights by scores


def test_a_sigmoid_weight_moves_with_its_own_score_by_at_most_a_quarter():
    scores = 3 * randn(1, 1, T, 1)
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    found = torch.autograd.functional.jacobian(lambda k: sigmoid.weights(q, k, 1.0, -math.log(T))[0, 0, 0], scores)
    assert isinstance(found, Tensor)
    jacobian = found.view(T, T)
    assert (jacobian - jacobian.diagonal().diag() == 0).all()
    assert jacobian.diagonal().max() <= 0.25


def test_queries_are_the_last_of_the_positions(qkv):
    q, k, v = qkv
    n = 3
    gain, bias, alpha, beta = randn(H), randn(H), randn(B, H, T).sigmoid(), torch.tensor(0.3, dtype=torch.float64)
    whole_and_tail = [
        (relu_attention.attend(x, k, v, 1.0, "max(i,1)") for x in (q, q[:, :, -n:])),
        (lssar.attend(x, k, v, 3.0) for x in (q, q[:, :, -n:])),
        (normalized_attention.attend(x, k, v, gain, bias, 1.0, 1e-3) for x in (q, q[:, :, -n:])),
        (ssa.attend(x, k, v, beta, SCALE) for x in (q, q[:, :, -n:])),
        (gpsa.attend(x, k, v, randn(H, T), gain, SCALE) for x in (q, q[:, :, -n:])),
        (
            affine_scaled.attend(x, k, v, a, gain.sigmoid(), "visible", SCALE)
            for x, a in ((q, alpha), (q[:, :, -n:], alpha[..., -n:]))
        ),
        (recurrent_softmax.attend(x, k, v, SCALE, "div_n", 5.0) for x in (q, q[:, :, -n:])),
        (zonkey.attend(x, k, v, alpha[:, 0], SCALE) for x in (q, q[:, :, -n:])),
    ]
    for whole, tail in whole_and_tail:
        assert_close(whole[:, :, -n:], tail)


@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize(
    "attend",
    [
        pytest.param(lambda q, k, v: lssar.attend(q, k, v, None), id="LSSA"),
        pytest.param(lambda q, k, v: lssar.attend(q, k, v, 3.0), id="LSSAR"),
        pytest.param(lambda q, k, v: local_linear.attend(q, k, v, SCALE, 0.1), id="local_linear"),
    ],
)
def test_the_last_queries_alone_have_their_true_gradients(qkv, attend, n):
    q, k, v = (z[:, :1].clone().requires_grad_() for z in qkv)
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q[:, :, -n:], k, v), (q, k, v))


@pytest.mark.parametrize(
    "attend",
    [
        lambda q, k, v: lssar.attend(q, k, v, 3.0),
        lambda q, k, v: local_linear.attend(q, k, v, SCALE, 0.1),
        lambda q, k, v: entmax.attend(q, k, v, SCALE, 1.5),
        lambda q, k, v: vla.attend(q, k, v, k, 0.1, 1e-4, 0.0, 20),
    ],
    ids=["lssar", "local_linear", "entmax", "vla"],
)
def test_a_hand_written_gradient_refuses_to_be_differentiated(qkv, attend):
    q, k, v = qkv
    k.requires_grad_()
    (grad,) = torch.autograd.grad(attend(q, k, v).square().sum(), k, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.square().sum().backward()


def test_hide_and_visible_agree_on_what_a_query_sees():
    for queries, keys in ((1, 1), (3, 3), (2, 5)):
        seen = ops.hide(torch.ones(queries, keys), 0.0).sum(-1, keepdim=True)
        assert_close(seen, ops.visible(queries, keys, seen))
