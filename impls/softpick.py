"""Softpick. Zuhri, Fuadi and Aji 2025, "Softpick: No Attention Sink, No Massive Activations with Rectified Softmax",
arXiv:2504.20966.

    A_ts = relu(e^{s_ts} - 1) / (sum_{r<=t} |e^{s_tr} - 1| + eps),   s_ts = q_t . k_s / sqrt(K),   y_t = sum_s A_ts v_s

A row may sum to less than 1, and a row without a positive score is exactly 0. As in the authors' code the fraction is
taken in float32 or wider, both of its sides times e^{-m}, and eps = 1e-8 is added after that.

Differs from the paper: m = max(largest score, 0) where the authors' code has the largest score. The values are the
same, but e^{-m} cannot overflow, which gave NaN gradients in rows whose scores are all below -88.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def softpick(s: Tensor, keep: Tensor, eps: float = 1e-8) -> Tensor:
    """Weights over the last axis; where `keep` is False a score counts neither above nor below the line."""
    s_wide = ops.wide(s).masked_fill(~keep, 0.0)  # a score of 0 adds |e^0 - 1| = 0
    top = s_wide.max(dim=-1, keepdim=True).values.clamp(min=0)
    m = top.detach()  # cancels but for eps, which is put back as eps e^{top - m}: the same number, the true gradient
    a = (s_wide - m).exp() - (-m).exp()
    above = a.relu()
    magnitude = 2 * above.sum(dim=-1, keepdim=True) - a.sum(dim=-1, keepdim=True)  # the sum of |a|
    return (above / (magnitude + eps * (top - m).exp())).to(s.dtype)


def weights(q: Tensor, k: Tensor, scale: float, eps: float) -> Tensor:
    """A_BHTS; the queries are the last T of the S positions."""
    return softpick(ops.scores(q, k, scale), ops.causal(q.shape[-2], k.shape[-2], q.device), eps)


@dispatched(score_map.softpick)
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, eps) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        eps: float = 1e-8

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.eps = self.head_dim**-0.5, cfg.eps

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.eps)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.eps)
