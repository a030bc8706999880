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

CHUNK = 256  # where the state of a head of width 16, 153 channels, starts to cost less than the pairs


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


def taylor_scan(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, keep: bool) -> tuple[Tensor, Tensor | None]:
    """(y_BHTV, S_T) of y_t = sum_{s<=t} f(q_t . k_s) v_s: pairs inside a chunk, S over `features` from chunk to chunk.

    S costs as much as all else where one chunk holds everything, and is None then unless it is to be kept.
    """
    with ops.no_autocast(q):
        T, size = q.shape[2], ops.chunk_size(q.shape[2], CHUNK)
        q, k, v = (ops.chunked(ops.wide(z), size) for z in (q, k, v))
        s = q @ k.mT
        y = ops.hide(1 + s + s.square() / 2, 0.0) @ v
        if state is not None or keep or q.shape[2] > 1:
            starts, state = ops.carry(v.new_ones(1, 1, 1, 1, 1), features(k).mT @ v, state, torch.mul)
            y = y + features(q) @ starts
        return y.flatten(2, 3)[:, :, :T], state


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV in chunks."""
    return divide(taylor_scan(q * scale, k, with_one(v), None, keep=False)[0], eps).to(v.dtype)


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

    def read(self, x_BTD: Tensor, state: Tensor | None, keep: bool) -> tuple[Tensor, Tensor | None]:
        """(y_BTD, the state if it is to be kept)."""
        q, k, v = self.project(x_BTD)
        y_BHTV, Sz_BHKV = taylor_scan(q, k, with_one(v), state, keep)
        return self.out(ops.merge_heads(divide(y_BHTV, self.eps).to(x_BTD.dtype))), Sz_BHKV

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.read(x_BTD, None, keep=False)[0]

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        y_BTD, Sz_BHKV = self.read(x_BTD, state.Sz_BHKV, keep=True)
        assert Sz_BHKV is not None
        return y_BTD, State(Sz_BHKV)

    def init_state(self, batch: int) -> State:
        K = 1 + self.features + self.features * (self.features + 1) // 2
        return State(ops.wide(self.out.weight).new_zeros(batch, self.heads, K, self.head_dim + 1))

    def weights(self, x_BTD: Tensor) -> Tensor:
        q, k, _ = self.project(x_BTD)
        return weights(q, k, 1.0, self.eps)
