"""Adaptively sparse attention. Correia, Niculae and Martins 2019, "Adaptively Sparse Transformers", arXiv:1909.00015.

    A_t = alpha-entmax over s <= t of s_ts = q_t . k_s / sqrt(K)  =  [(alpha - 1) s_t - tau_t 1]_+ ^ (1/(alpha - 1)),
    tau_t such that the row sums to 1;                               y_t = sum_s A_ts v_s
    alpha_h = 1 + sigmoid(a_h), clamped to [1.01, 2], a_h ~ N(0, 1) learned, one a head

alpha = 1 is softmax, alpha > 1 can give exact zeros. The mapping and its gradients, also in alpha, are those of the
authors' library (deep-spin/entmax), whose bisection is `attend.reference`; tau is found by Newton's method here. The
start and the clamp are those of their AlphaChooser, known from an extracted copy.

Differs from the paper: a causal decoder with rotary positions instead of translation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from entmax import entmax_bisect
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from impls import ops
from impls.base import ScoreMixer

STEPS = 100  # of Newton's method at most; no row was seen to need a quarter of them


def bisect(s_BHTS: Tensor, alpha: float | Tensor) -> Tensor:
    """alpha-entmax of each row by the library, to the precision of its dtype: 24 halvings for float32 (its advice)."""
    steps = 50 if s_BHTS.dtype == torch.float64 else 24
    return entmax_bisect(s_BHTS, alpha, dim=-1, n_iter=steps)  # pyright: ignore[reportArgumentType]


def power(z: Tensor, p: Tensor) -> Tensor:
    """z^p for z >= 0 and p >= 0, and 0 where z is 0, p too. Four times as fast as torch's on a CPU, where zeros and
    results below the least normal number are slow: both are kept out of log and exp."""
    if p.dim() == 0 and p == 1:
        return z
    least = (0.9 * math.log(torch.finfo(z.dtype).tiny) / p.clamp_min(1)).exp()
    return torch.maximum(z, least).log_().mul_(p).exp_().mul_(z.sign())


class Newton(torch.autograd.Function):
    """alpha-entmax of each row, whose largest score is 0, for alpha in (1, 2] that broadcasts against the scores.

    With z = [(alpha - 1) s - tau]_+ and p = 1/(alpha - 1), the row sums to 1 where |z|_p = 1. The norm is convex and
    falls in tau, at -1 it is at least 1: Newton's steps from there never pass the root, and six or so reach it.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, alpha: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        p, x, done = 1 / (alpha - 1), s * (alpha - 1), False
        A = slope = total = x  # of the loop's last pass
        tau, close = torch.full_like(s[..., :1], -1.0), torch.finfo(s.dtype).eps ** 0.6  # its square is rounding
        for _ in range(STEPS):
            z = (x - tau).relu_()
            slope = power(z, p - 1)  # dA/ds at this tau
            A = slope * z if slope is z else z.mul_(slope)
            total, total_slope = A.sum(dim=-1, keepdim=True), slope.sum(dim=-1, keepdim=True)
            if done:
                break
            norm = total ** (1 / p)
            step = (norm - 1) * total / (norm * total_slope)
            tau, done = tau + step, not (step > close).any()
        A = A.div_(total)
        ctx.save_for_backward(A, slope, alpha)
        return A

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        A, slope, alpha = ctx.saved_tensors
        rise, total_slope = grad * slope, slope.sum(dim=-1, keepdim=True)
        mean = rise.sum(dim=-1, keepdim=True) / total_slope
        grad_s = torch.addcmul(rise, mean, slope, value=-1)  # tau moves so that the row still sums to 1
        if not ctx.needs_input_grad[1]:
            return grad_s, None
        # of A (1/(alpha - 1) - ln A) / (alpha - 1), less its share in the slope so that the row still sums to 1
        up = A * (1 / (alpha - 1) - A.clamp_min(torch.finfo(A.dtype).tiny).log())
        grad_alpha = ((grad - mean) * up).sum(dim=-1, keepdim=True) / (alpha - 1)
        return grad_s, grad_alpha.sum_to_size(alpha.shape)


def newton(s_BHTS: Tensor, alpha: float | Tensor) -> Tensor:
    """alpha-entmax of each row, sort-free and to the precision of its dtype, by `Newton`."""
    return Newton.apply(s_BHTS, torch.as_tensor(alpha, dtype=s_BHTS.dtype, device=s_BHTS.device))  # pyright: ignore


def weights(q: Tensor, k: Tensor, scale: float, alpha: float | Tensor, solve: Callable[..., Tensor] = newton) -> Tensor:
    """A_BHTS; alpha is a number >= 1 or one number > 1 a head [H]. float32 inside: the exponent goes up to 100."""
    s_BHTS = ops.hide(ops.wide(ops.scores(q, k, scale)), float("-inf"))
    s_BHTS = s_BHTS - s_BHTS.detach().amax(dim=-1, keepdim=True)  # tau is sought between max - 1 and max
    if isinstance(alpha, Tensor):
        A_BHTS = solve(s_BHTS, ops.wide(alpha).view(-1, 1, 1))
    elif alpha == 1:
        A_BHTS = s_BHTS.softmax(dim=-1)
    else:
        A_BHTS = (solve if alpha <= 2 else bisect)(s_BHTS, alpha)
    return A_BHTS.to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, alpha: float | Tensor) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, alpha) @ v


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, alpha: float | Tensor) -> Tensor:
    """The same by the library's bisection."""
    return weights(q, k, scale, alpha, bisect) @ v


attend.reference = reference


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        alpha: float | None = None  # a fixed one for all heads; None learns one a head

        def __post_init__(self):
            if self.alpha is not None and not self.alpha >= 1:
                raise ValueError(f"alpha={self.alpha} must be at least 1, or null to learn it")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5
        self.alpha = nn.Parameter(torch.randn(cfg.heads)) if cfg.alpha is None else cfg.alpha  # a_h, or alpha itself

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            alpha = (1 + ops.wide(alpha).sigmoid()).clamp(min=1.01, max=2.0)
        return weights(q_BHTK, k_BHSK, self.scale, alpha)
