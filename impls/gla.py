"""Gated linear attention. Yang et al. 2023, "Gated Linear Attention Transformers with Hardware-Efficient Training",
arXiv:2312.06635, §4.

    a_t = sigmoid(W_2 W_1 x_t + b)^{1/tau}                  one decay a key channel, W_2 W_1 of rank 16, tau = 16
    S_t = diag(a_t) S_{t-1} + k_t v_t^T,   y_t = S_t^T q_t
    out = W_o (swish(W_r x) * norm_h(y))

Keys are half as wide as d_model, values as wide; q is scaled by 1/sqrt(K).

Differs from the paper: the norm of each head is an RMSNorm and W_r has no bias, as in its authors' later code
(fla-org/flash-linear-attention, fla/layers/gla.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu

from impls import ops
from impls.base import RecurrentMixer

CHUNK = 16  # quickest with a decay a channel


def reference(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV by the recurrence."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for q_BHK, k_BHK, v_BHV, g_BHK in zip(*(z.unbind(2) for z in (q, k, v, log_decay)), strict=True):
        S_BHKV = g_BHK.exp()[..., None] * S_BHKV + torch.einsum("bhk,bhv->bhkv", k_BHK, v_BHV)
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV))
    return torch.stack(y_BHTV, dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV and log_decay_BHTK <= 0, in chunks."""
    return ops.decay_scan(q * scale, k, v, log_decay, chunk=CHUNK)[0]


attend.reference = reference


class State(NamedTuple):
    """The decayed sum of k v^T."""

    S_BHKV: Tensor


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 4
        expand_k: float = 0.5  # width of the keys over d_model
        expand_v: float = 1.0  # width of the values over d_model
        gate_rank: int = 16
        gate_temperature: float = 16.0  # tau
        gate_bias: Sequence[float] = (0.0, 0.0)  # b starts uniform between these; high: decays start near 1
        gate: bool = True  # swish output gate

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.temperature = cfg.heads, cfg.gate_temperature
        self.key = ops.expanded(d_model, cfg.expand_k, cfg.heads)
        self.value = ops.expanded(d_model, cfg.expand_v, cfg.heads)
        self.widths = [self.key, self.key, self.value, self.value if cfg.gate else 0, cfg.gate_rank]
        self.inner = ops.linear(d_model, sum(self.widths))
        self.decay = ops.linear(cfg.gate_rank, self.key, bias=True)
        low, high = cfg.gate_bias
        nn.init.uniform_(self.decay.bias, low, high)
        self.norm_V = nn.Parameter(torch.ones(self.value // cfg.heads))
        self.out = ops.linear(self.value, d_model)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q, k, v, log_decay_BHTK and the gate_BTV."""
        q, k, v, gate_BTV, rank = self.inner(x_BTD).split(self.widths, dim=-1)
        g = logsigmoid(ops.wide(self.decay(rank))) / self.temperature
        q, k, v, g = (ops.split_heads(z, self.heads) for z in (q, k, v, g))
        return q * q.shape[-1] ** -0.5, k, v, g, gate_BTV

    def finish(self, y_BHTV: Tensor, gate_BTV: Tensor) -> Tensor:
        y_BTV = ops.merge_heads(ops.head_norm(y_BHTV, self.norm_V))
        return self.out(silu(gate_BTV) * y_BTV if gate_BTV.shape[-1] else y_BTV)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        q, k, v, g, gate_BTV = self.project(x_BTD)
        y_BHTV, S_BHKV = ops.decay_scan(q, k, v, g, chunk=CHUNK)
        return self.finish(y_BHTV, gate_BTV), State(S_BHKV)

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        return State(zeros(batch, self.heads, self.key // self.heads, self.value // self.heads))

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        q_BH1K, k_BH1K, v_BH1V, g_BH1K, gate_B1V = self.project(x_BD[:, None])
        S_BHKV = g_BH1K.mT.exp() * state.S_BHKV + k_BH1K.mT * v_BH1V
        y_BH1V = q_BH1K.to(S_BHKV.dtype) @ S_BHKV
        return self.finish(y_BH1V.to(x_BD.dtype), gate_B1V)[:, 0], State(S_BHKV)
