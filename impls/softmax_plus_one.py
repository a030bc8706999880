"""Softmax with one added to the denominator. E. Miller, "Attention Is Off By One", 24 July 2023,
https://www.evanmiller.org/attention-is-off-by-one.html; a baseline of softpick, arXiv:2504.20966.

    A_ts = exp(s_ts) / (1 + sum_{r<=t} exp(s_tr)),  s_ts = q_t . k_s / sqrt(K),    y_t = sum_{s<=t} A_ts v_s

The 1 is exp(0): a key with score 0 and value 0 that every query sees. So the row maximum that is subtracted before
exp counts that 0 too, and the 1 becomes exp(-maximum).

Differs from the source: it proposes the formula and trains nothing; rotary positions are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """A_BHTS, rows sum to less than 1."""
    s_BHTS = ops.hide(ops.wide(ops.scores(q, k, scale)), float("-inf"))
    m_BHT1 = s_BHTS.detach().amax(dim=-1, keepdim=True).clamp(min=0)
    e_BHTS = (s_BHTS - m_BHT1).exp()
    return (e_BHTS / (e_BHTS.sum(dim=-1, keepdim=True) + (-m_BHT1).exp())).to(q.dtype)


@dispatched(score_map.softmax_plus_one)
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale)
