"""Based's linear attention. Arora et al. 2024, "Simple linear attention language models balance the recall-throughput
tradeoff", arXiv:2402.18668.

    y_t = sum_{s<=t} f(q_t . k_s / sqrt(K)) v_s / sum_{s<=t} f(q_t . k_s / sqrt(K))
    f(x) = 1 + x + x^2 / 2                                  exp to second order, never below 1/2

f is an inner product of 1 + K + K(K+1)/2 channels; K, the width of queries and keys, is 16 whatever that of the values.

Differs from the paper: this is its global layer alone, without the layers of sliding-window attention and of short
convolutions that stand between. 1e-6 is added to the denominator, as in fla-org/flash-linear-attention
(fla/ops/based/naive.py). x_i x_j and x_j x_i share a channel; the paper keeps both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from impls import ops
from impls.parts import OnePath, divide, second_order, with_one


def features(x: Tensor) -> Tensor:
    """g(x) with g(x) . g(y) = f(x . y)."""
    return torch.cat([torch.ones_like(x[..., :1]), x, second_order(x) * 0.5**0.5], dim=-1)


def weights(q: Tensor, k: Tensor, scale: float, eps: float) -> Tensor:
    """A_BHTS, rows sum to 1 but for eps."""
    s_BHTS = ops.scores(q, k, scale)
    A_BHTS = ops.hide(1 + s_BHTS + s_BHTS.square() / 2, 0.0)
    return A_BHTS / (A_BHTS.sum(dim=-1, keepdim=True) + eps)


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV from all pairs."""
    return weights(q, k, scale, eps) @ v


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV in chunks."""
    q, k = ops.wide(q), ops.wide(k)
    return divide(ops.decay_scan(features(q * scale), features(k), with_one(v))[0], eps)


attend.reference = reference


class State(NamedTuple):
    """The sum of g(k) v^T, with that of g(k) as its last column."""

    Sz_BHKV: Tensor


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 16
        feature_dim: int = 16  # width of a head's queries and keys
        eps: float = 1e-6  # added to the denominator

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.features, self.eps = cfg.heads, cfg.feature_dim, cfg.eps
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.widths = [cfg.heads * cfg.feature_dim] * 2 + [d_model]
        self.qkv = ops.linear(d_model, sum(self.widths))
        self.out = ops.linear(d_model, d_model)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, scaled, k and v."""
        q, k, v = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).split(self.widths, dim=-1))
        return q * self.features**-0.5, k, v

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self.project(x_BTD)
        q, k, v = features(ops.wide(q)), features(ops.wide(k)), with_one(ops.wide(v))
        y_BHTV, Sz_BHKV = ops.decay_scan(q, k, v, state_BHKV=state.Sz_BHKV)
        return self.out(ops.merge_heads(divide(y_BHTV, self.eps).to(x_BTD.dtype))), State(Sz_BHKV)

    def init_state(self, batch: int) -> State:
        K = 1 + self.features + self.features * (self.features + 1) // 2
        return State(ops.wide(self.out.weight).new_zeros(batch, self.heads, K, self.head_dim + 1))

    def weights(self, x_BTD: Tensor) -> Tensor:
        q, k, _ = self.project(x_BTD)
        return weights(q, k, 1.0, self.eps)
