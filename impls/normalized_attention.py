"""Normalized attention pooling. Richter and Wattenhofer 2020, "Normalized Attention Without Probability Cage",
arXiv:2005.09561.

With l_ts = q_t . k_s (not divided by sqrt(K)) and mu_t, sigma_t its mean and population standard deviation over the
visible keys s <= t:

    A_ts = g_h (l_ts - mu_t) / (sigma_t + eps) + b_h,    y_t = sum_{s<=t} A_ts v_s,    g_h = 1, b_h = 0 at the start
    layer output = W_o gelu(layer_norm(concatenated heads))

The formula with eps = 1e-3 is that of the released code (OliverRichter/normalized-attention, models.py). Rows sum to
n b_h and have norm sqrt(n) g_h, so the layer norm that follows is not optional.

Differs from the paper: it is not causal; here the statistics of row t are over s <= t, the released masked statistics
with a causal mask, so the first token, alone with itself, has weight b_h. At sigma = 0 the gradient is the true one,
not the 0/0 of the square root. Its layer norm after the residual sum is left out: the backbone decides that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root of x >= 0, with gradient 0 where x is 0."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def weights(q: Tensor, k: Tensor, gain: Tensor, bias: Tensor, scale: float, eps: float) -> Tensor:
    """A_BHTS of any sign; gain and bias are [H]."""
    T, S = q.shape[-2], k.shape[-2]
    l_BHTS = ops.hide(ops.wide(ops.scores(q, k, scale)), 0.0)
    n_T1 = ops.visible(T, S, l_BHTS)
    centred_BHTS = ops.hide(l_BHTS - l_BHTS.sum(dim=-1, keepdim=True) / n_T1, 0.0)
    sigma_BHT1 = safe_sqrt(centred_BHTS.square().sum(dim=-1, keepdim=True) / n_T1)
    A_BHTS = gain[:, None, None] * centred_BHTS / (sigma_BHT1 + eps) + bias[:, None, None]
    return ops.hide(A_BHTS, 0.0).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, gain: Tensor, bias: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, gain, bias, scale, eps) @ v


attend.reference = attend


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True  # the paper adds learned positions
        scale: float = 1.0
        eps: float = 1e-3  # added to sigma

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.eps = cfg.scale, cfg.eps
        self.gain, self.bias = nn.Parameter(torch.ones(cfg.heads)), nn.Parameter(torch.zeros(cfg.heads))
        self.qkv = ops.linear(d_model, 3 * d_model, bias=True)
        self.out = nn.Sequential(nn.LayerNorm(d_model), nn.GELU(), ops.linear(d_model, d_model, bias=True))

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.gain, self.bias, self.scale, self.eps)
