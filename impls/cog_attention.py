"""Cog attention. Lv et al. 2024, "More Expressive Attention with Negative Weights", arXiv:2411.07176.

    A_ts = sign(s_ts) softmax_s(|s_ts|),  s_ts = q_t . k_s / sqrt(K),    y_t = sum_{s<=t} A_ts v_s

As in the released code (trestad/CogAttn, Cogformer/attention.py). sum_s |A_ts| = 1; sign(0) = 0 has no gradient.

Differs from the paper: its first and last layer keep plain softmax; here every layer has Cog attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """A_BHTS, signed."""
    s_BHTS = ops.scores(q, k, scale)
    return (s_BHTS.sign() * ops.causal_softmax(s_BHTS.abs())).to(q.dtype)


@dispatched(score_map.cog_attention)
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
