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
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map

DEAD = 1e-6  # largest N A - 1 of a row that is taken for a rounding error of 0


def unit(x: Tensor) -> Tensor:
    """x / |x|; a vector shorter than 1e-15 counts as zero, stays as it is and has a finite gradient."""
    square = x.square().sum(dim=-1, keepdim=True)
    return x * torch.where(square > 1e-30, square, 1.0).rsqrt()


def power_below(x: Tensor, p: float) -> Tensor:
    """x^(p - 1) of x >= 0, 0 where x is 0; by repeated squaring where p is whole, which is quicker on a CPU."""
    if p != int(p):
        return x ** (p - 1)
    found, square, left = None, x, int(p) - 1
    while left:
        if left % 2:
            found = square if found is None else found * square
        left //= 2
        square = square * square if left else square
    return (x > 0).to(x.dtype) if found is None else found


class Weights(torch.autograd.Function):
    """A_BHTS of LSSA (p None) or R_BHTS of LSSAR, of scores in float32 or wider that no mask has touched.

    With r = relu(a - O/N sum(a)), which is N A - O but for a factor that each row has in common, R = r^p / sum r^p.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, p: float | None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        # no linear branch: torch's softplus has one from 20 on, whose error grows with N A. Here s < ln K ln N < 80
        a = softplus(s, threshold=80.0).tril_(s.shape[-1] - s.shape[-2])
        total, ctx.p = a.sum(dim=-1, keepdim=True), p
        if p is None:
            A = a / total
            ctx.save_for_backward(a, A, 1 / total)
            return A
        N_T1 = ops.visible(s.shape[-2], s.shape[-1], s)
        part_T1 = (N_T1 > 3).to(s.dtype) / N_T1
        r = torch.addcmul(a, total, part_T1, value=-1).relu_()
        top = r.amax(dim=-1, keepdim=True)
        alive = N_T1 * top > DEAD * total
        unit = torch.where(alive, 1 / torch.where(alive, top, 1.0), 0.0)
        below = power_below(r.mul_(unit), p)
        R = below * r
        share = 1 / torch.where(alive, R.sum(dim=-1, keepdim=True), 1.0)
        ctx.save_for_backward(a, R.mul_(share), below.mul_(share * unit * p), part_T1)
        return R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, A, slope, *part = ctx.saved_tensors
        grad_a = (grad - (grad * A).sum(dim=-1, keepdim=True)).mul_(slope)
        if part:
            grad_a.sub_(grad_a.sum(dim=-1, keepdim=True) * part[0])
        return torch.expm1(-a).neg_().mul_(grad_a), None  # of softplus, 1 - exp(-a), which is 0 where a was hidden


def weights(q: Tensor, k: Tensor, p: float | None) -> Tensor:
    """A_BHTS >= 0 of LSSA (p None) or LSSAR; rows sum to 1, or to 0 where LSSAR's re-weighting leaves nothing."""
    scale_T1 = math.log(q.shape[-1]) * ops.visible(q.shape[-2], k.shape[-2], ops.wide(q)).log()
    s_BHTS = ops.scores(unit(ops.wide(q)) * scale_T1, unit(ops.wide(k)), 1.0)
    return Weights.apply(ops.wide(s_BHTS), p).to(q.dtype)  # pyright: ignore[reportReturnType]


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
