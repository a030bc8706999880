"""LUCID. Duvvuri, Patel, Gupta and Dhillon 2026, "LUCID: Attention with Preconditioned Representations",
arXiv:2602.10410.

    k~_t = k_t / sqrt(mean(k_t^2) + eps)
    P_ts = exp(k~_t . k~_s / sqrt(K) - sqrt(K)) for s <= t, else 0
    v'   = P^{-1} v
    y_t  = sum_{s<=t} softmax_s(q_t . k_s / sqrt(K)) v'_s

P is lower triangular with a diagonal of about 1. Decoding solves row by row, with v' in the cache:
v'_t = (v_t - sum_{s<t} P_ts v'_s) / P_tt. The forms are those of the released code (saisuryadv/LUCID,
modeling_lucid.py): keys after rotation, eps = 1e-5, the diagonal as computed, the softmax over unnormalised keys.

Differs from the paper, or may: whether its main runs rotate is uncertain (the shipped config does not).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import solve_triangular
from torch.nn.functional import rms_norm

from impls import ops
from impls.base import Cache, ScoreMixer


def preconditioner(k: Tensor, scale: float, eps: float, rows: int | None = None) -> Tensor:
    """P_BHSS, or its last `rows` rows, in float32 or wider; -1/scale = -sqrt(K) keeps every entry at 1 or below."""
    with ops.no_autocast(k):
        k = rms_norm(ops.wide(k), k.shape[-1:], eps=eps)
        T, S = rows or k.shape[-2], k.shape[-2]
        return ops.hide(ops.scores(k[..., S - T :, :], k, scale) - 1 / scale, float("-inf")).exp()


def precondition(k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """v'_BHSV in float32 or wider."""
    return solve_triangular(preconditioner(k, scale, eps), ops.wide(v), upper=False)


def weights(q: Tensor, k: Tensor, scale: float, eps: float) -> Tensor:
    """A_BHTS = softmax P^{-1}, of either sign."""
    p_BHTS = ops.causal_softmax(ops.scores(q, k, scale))
    return solve_triangular(preconditioner(k, scale, eps), p_BHTS, upper=False, left=False).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return (ops.causal_softmax(ops.scores(q, k, scale)) @ precondition(k, v, scale, eps)).to(v.dtype)


attend.reference = attend


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        eps: float = 1e-5  # of the keys' norm

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.eps = self.head_dim**-0.5, cfg.eps

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.eps)

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.eps)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Cache]:
        """The cache holds k and v'."""
        _, k_BHTK, v_BHTV = self.project(x_BTD)
        return self(x_BTD), Cache(k_BHTK, precondition(k_BHTK, v_BHTV, self.scale, self.eps))

    def step(self, x_BD: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        q_BH1K, k_BH1K, v_BH1V = self.project(x_BD[:, None], start=state.k_BHSK.shape[2])
        k_BHSK = torch.cat([state.k_BHSK, k_BH1K], dim=2)
        P_BH1S = preconditioner(k_BHSK, self.scale, self.eps, rows=1)
        v_BH1V = (v_BH1V - P_BH1S[..., :-1] @ state.v_BHSV) / P_BH1S[..., -1:]
        cache = Cache(k_BHSK, torch.cat([state.v_BHSV, v_BH1V], dim=2))
        y_BH1V = ops.causal_softmax(ops.scores(q_BH1K, k_BHSK, self.scale)) @ cache.v_BHSV
        return self.out(ops.merge_heads(y_BH1V.to(x_BD.dtype)))[:, 0], cache
