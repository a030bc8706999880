"""One tiled kernel family for attention of the form, causal,

    y_i = sum_j f(s_ij) v_j / g(sum_j h(s_ij)),    s_ij = scale q_i . k_j

without a T x T array: one forward kernel, two backward kernels (dq; dk and dv), and a map from `score_maps`. There is
one function for each mechanism, with the arguments of its `attend`:

    map           f, h                                    used by
    softmax       e^s                                     softmax; sink_bias and softmax_plus_one, with a further logit
                                                          whose value is 0; ssa, with its temperature on q;
                                                          affine_scaled, with a running sum of values
    softpick      relu(e^s - 1), |e^s - 1|                softpick
    cog           sign(s) e^|s|, e^|s|                    cog_attention
    adjust        (s - lo_i) e^s, e^s                     sa_softmax
    softplus      ln(1 + e^s)                             lssar without re-weighting (LSSA), and its sums for
    reweight      relu(N_i A_ij - O_i)^p                  lssar, which looks at every score twice
    sigmoid       1 / (1 + e^-s)                          sigmoid; no sum
    relu          relu(s)                                 relu_attention; divided by a function of i

q [B,H,T,K], k [B,G,S,K], v [B,G,S,V] with G dividing H, widths up to 256, queries the last T of S positions; computed
in the dtype of v with float32 sums. Matrix products of float32 follow `torch.get_float32_matmul_precision`.

Differs from the torch forms: softpick takes the row's maximum in eps e^m for a constant; of equal smallest or largest
scores of a row, sa_softmax v2 sends the gradient to one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from impls import ops


def score_map(q: Tensor, k: Tensor, v: Tensor, name: str, scale: float, **more: object) -> tuple[Tensor, Tensor]:
    """(y_BHTV, stat_BHT) by the map of this name; see `score_apply.score_map`. Imports Triton."""
    from impls.kernels import score_apply

    return score_apply.score_map(q, k, v, name, scale, **more)  # pyright: ignore[reportArgumentType]


def softmax(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return score_map(q, k, v, "softmax", scale)[0]


def softmax_plus_one(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return score_map(q, k, v, "softmax", scale, row=q.new_zeros(()))[0]


def sink_bias(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    sink_logit: Tensor | None = None,
    sink_key: Tensor | None = None,
    sink_value: Tensor | None = None,
) -> Tensor:
    if sink_key is not None:
        row_BHT = torch.einsum("bhtk,hk->bht", ops.wide(q) * scale, ops.wide(sink_key))
    else:
        assert sink_logit is not None
        row_BHT = sink_logit[:, None].expand(q.shape[:3])
    y_BHTV, stat_BHT = score_map(q, k, v, "softmax", scale, row=row_BHT)
    if sink_value is None:
        return y_BHTV
    weight_BHT1 = (row_BHT - stat_BHT * math.log(2)).exp()[..., None]
    return y_BHTV + (weight_BHT1 * sink_value[:, None]).to(v.dtype)


def ssa(q: Tensor, k: Tensor, v: Tensor, pos_beta: Tensor, scale: float, tau_token: Tensor | None = None) -> Tensor:
    tau = 1 + (-pos_beta.exp()).exp() * ops.visible(q.shape[2], k.shape[2], ops.wide(q)).log()
    return softmax(q * (tau if tau_token is None else tau + tau_token[..., None]), k, v, scale)


def affine_scaled(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, alpha_ma: Tensor, n_mode: str | int, scale: float
) -> Tensor:
    T, S = q.shape[2], k.shape[2]
    alpha_BHT1 = ops.wide(alpha)[..., None]
    N = ops.visible(T, S, alpha_BHT1) if n_mode == "visible" else S if n_mode == "length" else int(n_mode)
    beta_BHT1 = (ops.wide(alpha_ma)[:, None, None] - alpha_BHT1) / N
    before = v[:, :, : S - T].sum(dim=2, keepdim=True, dtype=torch.float32)
    running = before + v[:, :, S - T :].cumsum(dim=2, dtype=torch.float32)
    uniform = beta_BHT1 * running.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    return (alpha_BHT1 * softmax(q, k, v, scale) + uniform).to(v.dtype)


def sigmoid(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: float) -> Tensor:
    return score_map(q, k, v, "sigmoid", scale, bias=bias)[0]


def relu_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, normalizer: str) -> Tensor:
    return score_map(q, k, v, "relu" if normalizer == "none" else "relu_index", scale)[0]


def softpick(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    return score_map(q, k, v, "softpick", scale, bias=eps)[0]


def cog_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return score_map(q, k, v, "cog", scale)[0]


def sa_softmax(q: Tensor, k: Tensor, v: Tensor, scale: float, variant: str, eps: float) -> Tensor:
    """With lo and hi of v2 from a pass of their own."""
    if variant == "v1":
        return score_map(q, k, v, "adjust", scale)[0]
    from impls.kernels import score_ends

    lo_BHT, hi_BHT = score_ends.ends(q.to(v.dtype), k.to(v.dtype), scale)
    span_BHT = hi_BHT - lo_BHT + eps
    inverse_BHT1 = (1 / torch.where(span_BHT > 1e-30, span_BHT, 1.0))[..., None]
    return (score_map(q, k, v, "adjust", scale, row=lo_BHT)[0] * inverse_BHT1).to(v.dtype)


def lssar(q: Tensor, k: Tensor, v: Tensor, p: float | None) -> Tensor:
    """With the sums of A from a pass of their own, over values of width 1, where p is given."""
    N_T1 = ops.visible(q.shape[2], k.shape[2], ops.wide(q))
    q, k = (_unit(z) for z in (q, k))
    q = q * (math.log(q.shape[3]) * N_T1.log())
    if p is None:
        return score_map(q, k, v, "softplus", 1.0)[0]
    inverse_BHT = score_map(q, k, v[..., :1].detach() * 0, "softplus", 1.0)[1]
    return score_map(q, k, v, "reweight", 1.0, bias=p, row=N_T1[:, 0] * inverse_BHT)[0]


def _unit(x: Tensor) -> Tensor:
    """x / |x| in float32 or wider; a vector shorter than 1e-15 stays as it is."""
    square = ops.wide(x).square().sum(dim=-1, keepdim=True)
    return x * torch.where(square > 1e-30, square, 1.0).rsqrt()
