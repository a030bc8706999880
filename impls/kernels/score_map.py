"""One tiled kernel family for attention of the form, causal,

    y_i = sum_j f(s_ij) v_j / g(sum_j h(s_ij)),    s_ij = scale q_i . k_j

without a T x T array: one forward kernel, two backward kernels (dq; dk and dv), and a map from `score_maps`. There is
one function for each mechanism, with the arguments of its `attend`:

    map           f, h                                    used by
    softmax       e^s                                     softmax; sink_bias and softmax_plus_one, as a further logit
                                                          with value 0; ssa, with its temperature on q; affine_scaled,
                                                          plus a running sum of values
    softpick      relu(e^s - 1), |e^s - 1|                softpick
    cog           sign(s) e^|s|, e^|s|                    cog_attention
    adjust        s e^s, e^s                              sa_softmax v1
    softplus      ln(1 + e^s)                             lssar without re-weighting (LSSA)
    sigmoid       1 / (1 + e^-s)                          sigmoid; no sum
    relu          relu(s)                                 relu_attention; divided by a function of i

q [B,H,T,K], k [B,G,S,K], v [B,G,S,V] with G dividing H, widths up to 256, queries the last T of S positions; computed
in the dtype of v with float32 sums. Matrix products of float32 follow `torch.get_float32_matmul_precision`.

Differs from the torch forms: softpick takes the row's maximum in eps e^m for a constant.
"""

from __future__ import annotations

from torch import Tensor


def score_map(q: Tensor, k: Tensor, v: Tensor, name: str, scale: float, **more: object) -> tuple[Tensor, Tensor]:
    """(y_BHTV, stat_BHT) by the map of this name; see `score_apply.score_map`. Imports Triton."""
    from impls.kernels import score_apply

    return score_apply.score_map(q, k, v, name, scale, **more)  # pyright: ignore[reportArgumentType]


def softmax(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return score_map(q, k, v, "softmax", scale)[0]


def softmax_plus_one(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return score_map(q, k, v, "softmax", scale, sink=q.new_zeros(()))[0]


def sigmoid(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: float) -> Tensor:
    return score_map(q, k, v, "sigmoid", scale, bias=bias)[0]


def relu_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, normalizer: str) -> Tensor:
    return score_map(q, k, v, "relu" if normalizer == "none" else "relu_index", scale)[0]


def softpick(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    return score_map(q, k, v, "softpick", scale, bias=eps)[0]


def cog_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return score_map(q, k, v, "cog", scale)[0]
