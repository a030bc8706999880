"""Adaptively sparse attention. Correia, Niculae and Martins 2019, "Adaptively Sparse Transformers", arXiv:1909.00015.

    A_t = alpha-entmax over s <= t of s_ts = q_t . k_s / sqrt(K)  =  [(alpha - 1) s_t - tau_t 1]_+ ^ (1/(alpha - 1)),
    tau_t such that the row sums to 1;                               y_t = sum_s A_ts v_s
    alpha_h = 1 + sigmoid(a_h), clamped to [1.01, 2], a_h ~ N(0, 1) learned, one a head

alpha = 1 is softmax, 1.5 and 2 (sparsemax) have exact algorithms; alpha > 1 can give exact zeros. The mapping and
its gradients, also in alpha, are those of the authors' library (deep-spin/entmax). The start and the clamp are those
of their AlphaChooser, known from an extracted copy.

Differs from the paper: a causal decoder with rotary positions instead of translation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from entmax import entmax15, entmax_bisect, sparsemax
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer


def bisect(s_BHTS: Tensor, alpha: float | Tensor) -> Tensor:
    """alpha-entmax of each row, to the precision of its dtype: 24 halvings for float32 (the library's advice)."""
    steps = 50 if s_BHTS.dtype == torch.float64 else 24
    return entmax_bisect(s_BHTS, alpha, dim=-1, n_iter=steps)  # pyright: ignore[reportArgumentType]


def weights(q: Tensor, k: Tensor, scale: float, alpha: float | Tensor) -> Tensor:
    """A_BHTS; alpha is a number >= 1 or one number > 1 a head [H]. float32 inside: the exponent goes up to 100."""
    s_BHTS = ops.hide(ops.wide(ops.scores(q, k, scale)), float("-inf"))
    s_BHTS = s_BHTS - s_BHTS.detach().amax(dim=-1, keepdim=True)  # bisection between max - 1 and max needs max near 0
    if isinstance(alpha, Tensor):
        A_BHTS = bisect(s_BHTS, ops.wide(alpha).view(-1, 1, 1))
    elif alpha == 1:
        A_BHTS = s_BHTS.softmax(dim=-1)
    elif alpha == 1.5:
        A_BHTS = entmax15(s_BHTS, dim=-1)
    elif alpha == 2:
        A_BHTS = sparsemax(s_BHTS, dim=-1)
    else:
        A_BHTS = bisect(s_BHTS, alpha)
    return A_BHTS.to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, alpha: float | Tensor) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, alpha) @ v


attend.reference = attend


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
