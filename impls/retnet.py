"""Retention. Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models",
arXiv:2307.08621.

    y_t = sum_{s<=t} gamma^{t-s} (q_t . k_s) v_s            eq. 5, parallel; q and k rotated to their positions
    S_t = gamma S_{t-1} + k_t v_t^T,   y_t = S_t^T q_t      eq. 6, recurrent
    gamma_h = 1 - 2^{-5-h},   h = 0, 1, ...
    out = W_o (swish(W_g x) * GroupNorm_h(y))               eq. 8

q is scaled by 1/sqrt(K), which the group norm cancels but for its epsilon. Values are twice as wide as keys.

Differs from the paper: nothing known; the authors' code replaces the group norm by an RMSNorm of each head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, silu

from impls import ops
from impls.base import RecurrentMixer


def log_gamma(like_BHTK: Tensor) -> Tensor:
    """ln gamma as [1,H,1], in float32 or wider."""
    h = torch.arange(like_BHTK.shape[1], device=like_BHTK.device, dtype=ops.wide(like_BHTK[:0]).dtype)
    return torch.log1p(-(2 ** (-5 - h)))[None, :, None]


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV by eq. 5: one matrix of decays a head."""
    t = torch.arange(q.shape[2], device=q.device)
    distance_TS = (t[:, None] - t).masked_fill(t[:, None] < t, 0)
    decay_HTS = (log_gamma(q)[0, :, :, None] * distance_TS).exp().tril()
    return (ops.scores(q, k, scale) * decay_HTS) @ v


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV in chunks."""
    return ops.decay_scan(q * scale, k, v, log_gamma(q))[0]


attend.reference = reference


class State(NamedTuple):
    """The decayed sum of k v^T, and how many tokens went into it."""

    S_BHKV: Tensor
    position: int


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8  # the paper's 1.3B model, d_model 2048
        expand_v: float = 2.0  # width of the values over d_model
        gate: bool = True  # swish output gate

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads = cfg.heads
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.value = ops.expanded(d_model, cfg.expand_v, cfg.heads)
        self.widths = [d_model, d_model, self.value, self.value if cfg.gate else 0]
        self.inner = ops.linear(d_model, sum(self.widths))
        self.out = ops.linear(self.value, d_model)

    def project(self, x_BTD: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v of tokens at positions start, start + 1, ... and the gate_BTV."""
        q, k, v, gate_BTV = self.inner(x_BTD).split(self.widths, dim=-1)
        q, k, v = (ops.split_heads(z, self.heads) for z in (q, k, v))
        return ops.rope(q, start) * self.head_dim**-0.5, ops.rope(k, start), v, gate_BTV

    def finish(self, y_BHTV: Tensor, gate_BTV: Tensor) -> Tensor:
        y_BTV = ops.merge_heads(layer_norm(y_BHTV, y_BHTV.shape[-1:], eps=1e-6))
        return self.out(silu(gate_BTV) * y_BTV if gate_BTV.shape[-1] else y_BTV)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        q, k, v, gate_BTV = self.project(x_BTD, 0)
        y_BHTV, S_BHKV = ops.decay_scan(q, k, v, log_gamma(q))
        return self.finish(y_BHTV, gate_BTV), State(S_BHKV, x_BTD.shape[1])

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        return State(zeros(batch, self.heads, self.head_dim, self.value // self.heads), 0)

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        q_BH1K, k_BH1K, v_BH1V, gate_B1V = self.project(x_BD[:, None], state.position)
        S_BHKV = log_gamma(q_BH1K).exp()[..., None] * state.S_BHKV + k_BH1K.mT * v_BH1V
        y_BH1V = q_BH1K.to(S_BHKV.dtype) @ S_BHKV
        return self.finish(y_BH1V.to(x_BD.dtype), gate_B1V)[:, 0], State(S_BHKV, state.position + 1)
