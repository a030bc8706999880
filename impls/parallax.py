"""Parallax. Zuo et al. 2026, "Parallax: Parameterized Local Linear Attention for Language Modeling", arXiv:2605.29157.

With p_ts = softmax_s(q_t . k_s / sqrt(K)) over s <= t and k-_t = sum_s p_ts k_s:

    y_t = sum_{s<=t} p_ts v_s  -  sum_{s<=t} p_ts (r_t . (k_s - k-_t)) v_s,    r_t = W_r x_t

A local linear estimate of v around q_t whose slope is read off by a learned second query r; r . k is not scaled and
r = 0 is softmax. From fla-org/flash-linear-attention (fla/ops/parallax/naive.py, fla/layers/parallax.py), contributed
by the authors, and the authors' training patch (yifei-zuo/Parallax), which treats r as q and k: rotated.

Differs from the fla layer: rotary positions by default (it has none), as in the training patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from impls import ops
from impls.base import ScoreMixer


def weights(q: Tensor, r: Tensor, k: Tensor, scale: float) -> Tensor:
    """A_BHTS = p_ts (1 - r_t . (k_s - k-_t)), of either sign; rows sum to 1. r_BHTK belongs to the queries."""
    p_BHTS = ops.causal_softmax(ops.scores(q, k, scale))
    probe_BHTS = ops.hide(ops.wide(ops.scores(r, k, 1.0)), 0.0)
    mean_BHT1 = (p_BHTS * probe_BHTS).sum(dim=-1, keepdim=True)
    return (p_BHTS * (1 - probe_BHTS + mean_BHT1)).to(q.dtype)


def attend(q: Tensor, r: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, r_BHTK, k_BHSK, v_BHSV."""
    return weights(q, r, k, scale) @ v


attend.reference = attend


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5
        self.probe = ops.linear(d_model, d_model)

    def project(self, x_BTD: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """q and r side by side, k, v: r takes q's way through forward and step."""
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        r_BHTK = ops.split_heads(self.probe(x_BTD), self.heads)
        r_BHTK = ops.rope(r_BHTK, start) if self.rope else r_BHTK
        return torch.cat([q_BHTK, r_BHTK], dim=-1), k_BHTK, v_BHTV

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        q_BHTK, r_BHTK = q_BHTK.chunk(2, dim=-1)
        return weights(q_BHTK, r_BHTK, k_BHSK, self.scale)
