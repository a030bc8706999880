"""Sigmoid attention. Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention",
arXiv:2409.04431.

    y_t = sum_{s<=t} sigmoid(q_t . k_s / sqrt(K) + b) v_s,    b = -ln n

No normaliser: each weight depends on its own score alone. n is the training length; b is a constant, the same for
all heads, rows and lengths, so that training, prefill and decoding are one function. In the authors' language models
(apple/ml-sigmoid-attention) q and k have a LayerNorm each, over the width of a head.

Differs from the paper: positions are rotary, one of the two choices in its code; no LayerScale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def weights(q: Tensor, k: Tensor, scale: float, bias: float) -> Tensor:
    """A_BHTS = sigmoid(scale q . k + bias) for visible keys, else 0."""
    return (ops.scores(q, k, scale) + bias).sigmoid().tril(k.shape[-2] - q.shape[-2])


@dispatched(score_map.sigmoid)
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, bias) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        n: int = 2048  # the training length
        qk_norm: bool = True

        def __post_init__(self):
            if self.n < 1:
                raise ValueError(f"n={self.n} must be a length, at least 1")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.bias = self.head_dim**-0.5, -math.log(cfg.n)
        self.q_norm = nn.LayerNorm(self.head_dim, eps=1e-6) if cfg.qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(self.head_dim, eps=1e-6) if cfg.qk_norm else nn.Identity()

    def project(self, x_BTD: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        q_BHTK, k_BHTK, v_BHTV = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        q_BHTK, k_BHTK = self.q_norm(q_BHTK), self.k_norm(k_BHTK)
        if self.rope:
            q_BHTK, k_BHTK = ops.rope(q_BHTK, start), ops.rope(k_BHTK, start)
        return q_BHTK, k_BHTK, v_BHTV

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.bias)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.bias)
