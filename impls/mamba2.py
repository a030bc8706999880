"""Mamba-2, or SSD. Dao and Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through
Structured State Space Duality", arXiv:2405.21060.

    S_t = exp(A dt_t) S_{t-1} + dt_t k_t v_t^T              k is the paper's B, v its x, q its C
    y_t = S_t^T q_t + D v_t
    dt_t = softplus(W x_t + b_dt),   A < 0, b_dt and D one number a head
    out = W_o RMSNorm(y * swish(z))

q, k and v pass a causal convolution with bias and SiLU; q and k are shared by the heads (one group), q is not scaled.
The norm is over all heads together, after the gate. Starts: -A in U(1, 16), softplus(b_dt) log-uniform in
[0.001, 0.1], D = 1. From state-spaces/mamba, mamba_ssm/modules/mamba2.py.

Differs from the paper: the number of heads is given, not their width of 64; the state is 128 wide by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from impls import ops
from impls.convs import conv_weight, short_conv
from impls.parts import OnePath, decay_start, log_decay


def reference(q: Tensor, k: Tensor, v: Tensor, dt: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV by the recurrence."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for q_BHK, k_BHK, v_BHV, dt_BH, g_BH in zip(*(z.unbind(2) for z in (q, k, v, dt, log_decay)), strict=True):
        S_BHKV = g_BH.exp()[..., None, None] * S_BHKV + torch.einsum("bh,bhk,bhv->bhkv", dt_BH, k_BHK, v_BHV)
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV))
    return torch.stack(y_BHTV, dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, dt: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, dt_BHT and log_decay_BHT <= 0, in chunks; without D."""
    return ops.decay_scan(q * scale, k, dt[..., None] * v, log_decay)[0]


attend.reference = reference


class State(NamedTuple):
    """The decayed sum of dt k v^T, and the last inputs of the convolution."""

    S_BHKV: Tensor
    past_BWD: Tensor


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 32  # of width 64 at d_model 1024
        expand: float = 2.0  # width of the values over d_model
        state: int = 128  # width of a key
        conv: int = 4  # taps of the convolution; 0 where the backbone has one
        A: Sequence[float] = (1.0, 16.0)  # -A starts uniform between these
        dt: Sequence[float] = (1e-3, 1e-1)  # softplus(b_dt) starts log-uniform between these

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.key, self.past = cfg.heads, cfg.state, max(cfg.conv - 1, 0)
        self.value = ops.expanded(d_model, cfg.expand, cfg.heads)
        self.widths = [2 * cfg.state + self.value, self.value, cfg.heads]
        self.inner = ops.linear(d_model, sum(self.widths))
        self.conv_DW = conv_weight(self.widths[0], cfg.conv)
        self.conv_bias_D = nn.Parameter(torch.zeros(self.widths[0])) if cfg.conv else None
        self.A_log_H, self.dt_bias_H = decay_start(cfg.heads, cfg.A, cfg.dt)
        self.skip_H = nn.Parameter(torch.ones(cfg.heads))
        self.norm_V = nn.Parameter(torch.ones(self.value))
        self.out = ops.linear(self.value, d_model)

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        qkv, gate_BTV, dt_BTH = self.inner(x_BTD).split(self.widths, dim=-1)
        qkv, past_BWD = short_conv(qkv, self.conv_DW, state.past_BWD)
        qkv = silu(qkv if self.conv_bias_D is None else qkv + self.conv_bias_D)
        q_BTK, k_BTK, v_BTV = qkv.split([self.key, self.key, self.value], dim=-1)
        q_BHTK, k_BHTK = (z[:, None].expand(-1, self.heads, -1, -1) for z in (q_BTK, k_BTK))
        v_BHTV = ops.split_heads(v_BTV, self.heads)
        dt_BHT = softplus(ops.wide(dt_BTH) + self.dt_bias_H).mT
        g_BHT = log_decay(self.A_log_H, dt_BHT)
        y_BHTV, S_BHKV = ops.decay_scan(q_BHTK, k_BHTK, dt_BHT[..., None] * v_BHTV, g_BHT, state.S_BHKV)
        y_BTV = ops.merge_heads(y_BHTV + self.skip_H[:, None, None] * v_BHTV) * silu(gate_BTV)
        y_BTV = rms_norm(y_BTV.to(x_BTD.dtype), self.norm_V.shape, self.norm_V.to(x_BTD.dtype), 1e-5)
        return self.out(y_BTV), State(S_BHKV, past_BWD)

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        S_BHKV = zeros(batch, self.heads, self.key, self.value // self.heads)
        return State(S_BHKV, zeros(batch, self.past, self.widths[0]))
