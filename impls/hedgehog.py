"""Hedgehog. Zhang et al. 2024, "The Hedgehog & the Porcupine: Expressive Linear Attentions with Softmax Mimicry",
arXiv:2402.04347.

    y_t = f(q_t)^T sum_{s<=t} f(k_s) v_s^T / f(q_t)^T sum_{s<=t} f(k_s)
    f(x) = [exp(u), exp(-u)],   u = x W_h + b_h             learned for each head, one for queries and one for keys

exp is kept in range by a softmax over channels, in one of two ways that are different functions:

    "lolcats"   [softmax(u), softmax(-u)], at least 1e-12   HazyResearch/lolcats, src/model/feature_map.py; no b
    "fla"       softmax([2u, -2u])                          fla-org/flash-linear-attention, fla/modules/feature_map.py

W starts as the identity. `distillation` is the loss by which the maps learn to mimic softmax attention.

Differs from the paper: maps are trained with the model unless a caller does otherwise; positions are rotary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from impls import ops
from impls.parts import OnePath, divide, with_one


def features(x_BHTK: Tensor, w_HKF: Tensor, b_HF: Tensor | None, variant: str) -> Tensor:
    """f(x)_BHTF, twice as wide as u."""
    u_BHTF = ops.wide(x_BHTK @ w_HKF.to(x_BHTK.dtype))
    u_BHTF = u_BHTF if b_HF is None else u_BHTF + b_HF[:, None]
    if variant == "lolcats":
        return torch.cat([u_BHTF.softmax(dim=-1), (-u_BHTF).softmax(dim=-1)], dim=-1).clamp_min(1e-12)
    return torch.cat([2 * u_BHTF, -2 * u_BHTF], dim=-1).softmax(dim=-1)


def weights(q_BHTF: Tensor, k_BHSF: Tensor, eps: float) -> Tensor:
    """A_BHTS of features; rows sum to 1 but for eps."""
    A_BHTS = ops.hide(ops.scores(q_BHTF, k_BHSF, 1.0), 0.0)
    return A_BHTS / (A_BHTS.sum(dim=-1, keepdim=True) + eps)


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    variant: str,
    eps: float,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
) -> Tensor:
    """y_BHTV from all pairs."""
    return weights(features(q, w_q, b_q, variant), features(k, w_k, b_k, variant), eps) @ v


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    variant: str,
    eps: float,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, w_HKF and b_HF, in chunks."""
    q, k = features(q, w_q, b_q, variant), features(k, w_k, b_k, variant)
    return divide(ops.decay_scan(q, k, with_one(v))[0], eps)


attend.reference = reference


class State(NamedTuple):
    """The sum of f(k) v^T, with that of f(k) as its last column, and how many tokens went into it."""

    Sz_BHKV: Tensor
    position: int


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 12  # GPT-2 of 125M
        variant: str = "lolcats"  # or "fla"
        bias: bool = False  # b_h, which starts at 0
        rope: bool = True
        eps: float = 1e-12  # added to the denominator

        def __post_init__(self):
            if self.variant not in ("lolcats", "fla"):
                raise ValueError(f'variant={self.variant!r} is neither "lolcats" nor "fla"')

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.variant, self.rope, self.eps = cfg.heads, cfg.variant, cfg.rope, cfg.eps
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.qkv = ops.linear(d_model, 3 * d_model)
        one_HKF = torch.eye(self.head_dim).repeat(cfg.heads, 1, 1)
        self.map_q_HKF, self.map_k_HKF = nn.Parameter(one_HKF.clone()), nn.Parameter(one_HKF.clone())
        zeros_HF = torch.zeros(cfg.heads, self.head_dim)
        self.bias_q_HF = nn.Parameter(zeros_HF.clone()) if cfg.bias else None
        self.bias_k_HF = nn.Parameter(zeros_HF.clone()) if cfg.bias else None
        self.out = ops.linear(d_model, d_model)

    def project(self, x_BTD: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return (ops.rope(q, start), ops.rope(k, start), v) if self.rope else (q, k, v)

    def features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (
            features(q, self.map_q_HKF, self.bias_q_HF, self.variant),
            features(k, self.map_k_HKF, self.bias_k_HF, self.variant),
        )

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self.project(x_BTD, state.position)
        y_BHTV, Sz_BHKV = ops.decay_scan(*self.features(q, k), with_one(ops.wide(v)), state_BHKV=state.Sz_BHKV)
        y_BTD = self.out(ops.merge_heads(divide(y_BHTV, self.eps).to(x_BTD.dtype)))
        return y_BTD, State(Sz_BHKV, state.position + x_BTD.shape[1])

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        return State(zeros(batch, self.heads, 2 * self.head_dim, self.head_dim + 1), 0)

    def weights(self, x_BTD: Tensor) -> Tensor:
        q, k, _ = self.project(x_BTD, 0)
        return weights(*self.features(q, k), self.eps)

    def distillation(self, x_BTD: Tensor) -> Tensor:
        """Cross-entropy, in nats a row, of these weights against the softmax attention of the same queries and keys."""
        q, k, _ = self.project(x_BTD, 0)
        target_BHTS = ops.causal_softmax(ops.scores(q, k, self.head_dim**-0.5))
        log_BHTS = (weights(*self.features(q, k), self.eps) + self.eps).log()
        return -(target_BHTS * log_BHTS).sum(dim=-1).mean()
