"""LSSA and LSSAR. Gao, Spratling and Gionfrida 2025, "Softplus Attention with Re-weighting Boosts Length
Extrapolation in Large Language Models", arXiv:2501.13428.

With unit vectors q^, k^ (after rotation), N_t = t + 1 visible keys and K the width of a head:

    A_ts = softplus(ln K  ln N_t  q^_t . k^_s) / sum over s <= t                 LSSA: y_t = sum_s A_ts v_s
    R_ts = relu(N_t A_ts - O_t)^p / sum over s <= t                              LSSAR: y_t = sum_s R_ts v_s
    O_t  = 0 for t = 0, 1, 2 and 1 after

p = 15 is the paper's for long texts, p = 3 its best at the training length; p = None is LSSA. Nothing is learned.

Second-hand: the formula is that of a note on version 5 of the paper and of two third-party implementations that agree;
the authors' code could not be read.

Differs from the formula: relu(.) is divided by its row's maximum before the power, which cancels in exact arithmetic
and keeps N^15 from overflowing; a row whose maximum is below 1e-6 (all weights equal, 0/0 as written) is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map

DEAD = 1e-6  # largest N A - 1 of a row that is taken for a rounding error of 0


def unit(x: Tensor) -> Tensor:
    """x / |x|; a vector shorter than 1e-15 counts as zero, stays as it is and has a finite gradient."""
    square = x.square().sum(dim=-1, keepdim=True)
    return x * torch.where(square > 1e-30, square, 1.0).rsqrt()


def softplus_weights(q: Tensor, k: Tensor) -> Tensor:
    """LSSA's A_BHTS. logaddexp has no linear branch, unlike torch's softplus, whose error grows with N A."""
    T, S = q.shape[-2], k.shape[-2]
    scale_T1 = math.log(q.shape[-1]) * ops.visible(T, S, q).log()
    s_BHTS = ops.scores(unit(q), unit(k), 1.0) * scale_T1
    a_BHTS = ops.hide(torch.logaddexp(s_BHTS, torch.zeros_like(s_BHTS)), 0.0)
    return a_BHTS / a_BHTS.sum(dim=-1, keepdim=True)


def reweight(A_BHTS: Tensor, p: float) -> Tensor:
    """LSSAR's R_BHTS."""
    T, S = A_BHTS.shape[-2:]
    N_T1 = ops.visible(T, S, A_BHTS)
    r_BHTS = (N_T1 * A_BHTS - (N_T1 > 3).to(A_BHTS.dtype)).relu()
    top_BHT1 = r_BHTS.detach().amax(dim=-1, keepdim=True)
    alive_BHT1 = top_BHT1 > DEAD
    r_BHTS = torch.where(alive_BHT1, r_BHTS / torch.where(alive_BHT1, top_BHT1, 1.0), 0.0) ** p
    return r_BHTS / torch.where(alive_BHT1, r_BHTS.sum(dim=-1, keepdim=True), 1.0)


def weights(q: Tensor, k: Tensor, p: float | None) -> Tensor:
    """A_BHTS >= 0 of LSSA (p None) or LSSAR; rows sum to 1, or to 0 where LSSAR's re-weighting leaves nothing."""
    A_BHTS = softplus_weights(ops.wide(q), ops.wide(k))
    return (A_BHTS if p is None else reweight(A_BHTS, p)).to(q.dtype)


@dispatched(score_map.lssar)
def attend(q: Tensor, k: Tensor, v: Tensor, p: float | None) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, p) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 12  # GPT-2 small
        rope: bool = True
        p: float | None = 15.0  # None is LSSA

        def __post_init__(self):
            if self.p is not None and not self.p >= 1:
                raise ValueError(f"p={self.p} must be at least 1, or null for LSSA")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.p = cfg.p

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.p)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.p)
