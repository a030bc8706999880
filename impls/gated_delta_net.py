"""Gated DeltaNet. Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule",
arXiv:2412.06464.

    S'_t = a_t S_{t-1}                                      the state decays first,
    S_t  = S'_t + beta_t k_t (v_t - S'_t^T k_t)^T           then the delta rule reads and writes the decayed one
    y_t  = S_t^T q_t
    ln a_t = -A softplus(W_a x_t + b_dt),   beta_t = sigmoid(W_b x_t)
    out = W_o (swish(W_g x) * RMSNorm_h(y))

q, k and v pass a causal convolution of width 4 and SiLU; q and k then have unit length. A starts in U(0, 16) and
softplus(b_dt) log-uniform in [0.001, 0.1], as in Mamba-2 (arXiv:2405.21060). The widths, keys 0.75 and values 1.5 of
d_model, are those of the authors' code (NVlabs/GatedDeltaNet).

Differs from the paper: nothing known. q is not scaled, which the norm would cancel but for its epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from impls import ops
from impls.base import RecurrentMixer
from impls.convs import conv_weight, short_conv


def reference(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV by the recurrence."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for q_BHK, k_BHK, v_BHV, beta_BH, g_BH in zip(*(z.unbind(2) for z in (q, k, v, beta, log_decay)), strict=True):
        S_BHKV = g_BH.exp()[..., None, None] * S_BHKV
        error_BHV = v_BHV - torch.einsum("bhk,bhkv->bhv", k_BHK, S_BHKV)
        S_BHKV = S_BHKV + torch.einsum("bh,bhk,bhv->bhkv", beta_BH, k_BHK, error_BHV)
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV))
    return torch.stack(y_BHTV, dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, beta_BHT and log_decay_BHT <= 0, in chunks; q and k are used as given."""
    return ops.delta_scan(q * scale, k, v, beta[..., None] * k, log_decay)[0]


attend.reference = reference


class State(NamedTuple):
    """The map from keys to values, and the last inputs of the convolution."""

    S_BHKV: Tensor
    past_BWD: Tensor


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 6  # of width 256 at d_model 2048
        expand_k: float = 0.75  # width of the keys over d_model
        expand_v: float = 1.5  # width of the values over d_model
        conv: int = 4  # taps of the convolution; 0 where the backbone has one
        gate: bool = True  # swish output gate
        A: Sequence[float] = (0.0, 16.0)  # starts uniform between these
        dt: Sequence[float] = (1e-3, 1e-1)  # softplus(b_dt) starts log-uniform between these; small: decays near 1

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.past = cfg.heads, max(cfg.conv - 1, 0)
        self.key = ops.expanded(d_model, cfg.expand_k, cfg.heads)
        self.value = ops.expanded(d_model, cfg.expand_v, cfg.heads)
        self.widths = [2 * self.key + self.value, self.value if cfg.gate else 0, cfg.heads, cfg.heads]
        self.inner = ops.linear(d_model, sum(self.widths))
        self.conv_DW = conv_weight(self.widths[0], cfg.conv)
        (A_low, A_high), (dt_low, dt_high) = cfg.A, cfg.dt
        self.A_log_H = nn.Parameter(
            (A_high - (A_high - A_low) * torch.rand(cfg.heads)).log()
        )  # (low, high], never ln 0
        dt_H = torch.empty(cfg.heads).uniform_(math.log(dt_low), math.log(dt_high)).exp()
        self.dt_bias_H = nn.Parameter(dt_H + torch.log(-torch.expm1(-dt_H)))  # the inverse of softplus
        self.norm_V = nn.Parameter(torch.ones(self.value // cfg.heads))
        self.out = ops.linear(self.value, d_model)

    def project(self, x_BTD: Tensor, past_BWD: Tensor) -> tuple[Tensor, ...]:
        """q, k of unit length, v, beta_BHT, log_decay_BHT, the gate_BTV and the convolution's next past."""
        qkv, gate_BTV, beta_BTH, dt_BTH = self.inner(x_BTD).split(self.widths, dim=-1)
        qkv, past_BWD = short_conv(qkv, self.conv_DW, past_BWD)
        qkv = silu(qkv).split([self.key, self.key, self.value], dim=-1)
        q, k, v = (ops.split_heads(z, self.heads) for z in qkv)
        g_BTH = -ops.wide(self.A_log_H).exp() * softplus(ops.wide(dt_BTH) + self.dt_bias_H)
        return ops.unit(q), ops.unit(k), v, beta_BTH.sigmoid().mT, g_BTH.mT, gate_BTV, past_BWD

    def finish(self, y_BHTV: Tensor, gate_BTV: Tensor) -> Tensor:
        y_BTV = ops.merge_heads(ops.head_norm(y_BHTV, self.norm_V))
        return self.out(silu(gate_BTV) * y_BTV if gate_BTV.shape[-1] else y_BTV)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        past_BWD = self.init_state(x_BTD.shape[0]).past_BWD
        q, k, v, beta_BHT, g_BHT, gate_BTV, past_BWD = self.project(x_BTD, past_BWD)
        y_BHTV, S_BHKV = ops.delta_scan(q, k, v, beta_BHT[..., None] * k, g_BHT)
        return self.finish(y_BHTV, gate_BTV), State(S_BHKV, past_BWD)

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        S_BHKV = zeros(batch, self.heads, self.key // self.heads, self.value // self.heads)
        return State(S_BHKV, zeros(batch, self.past, self.widths[0]))

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        q_BH1K, k_BH1K, v_BH1V, beta_BH1, g_BH1, gate_B1V, past_BWD = self.project(x_BD[:, None], state.past_BWD)
        k_BH1K = k_BH1K.to(state.S_BHKV.dtype)
        S_BHKV = g_BH1[..., None].exp() * state.S_BHKV
        S_BHKV = S_BHKV + beta_BH1[..., None] * k_BH1K.mT * (v_BH1V - k_BH1K @ S_BHKV)
        y_BH1V = q_BH1K.to(S_BHKV.dtype) @ S_BHKV
        return self.finish(y_BH1V.to(x_BD.dtype), gate_B1V)[:, 0], State(S_BHKV, past_BWD)
