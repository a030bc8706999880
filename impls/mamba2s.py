"""Mamba-2S. Mongaras and Larson 2026, "2Mamba2Furious: Linear in Complexity, Competitive in Accuracy",
arXiv:2602.17363, Algorithm 4: Mamba-2 cut down to the parts that matter.

    L_ts = exp(a_{s+1} + ... + a_t),   a_t = -softplus(W_a x_t)         one number a head, apart from dt
    y_t  = sum_{s<=t} (q_t . k_s / sqrt(K)) L_ts dt_s v_s,   dt_t = softplus(W_dt x_t)
    out  = W_o RMSNorm(y)                                               over all heads together

q, k and v come from one projection and pass a causal convolution of width 2 with bias and no activation. The scale is
that of the released code (gmongaras/2Mamba2Furious), where the norm cancels it but for its epsilon.

Differs from the paper: the norm's epsilon is 1e-6; the code has machine epsilon. Both forget half of the state at each
token at the start; `forget` starts it elsewhere, by a learned bias of a that the paper does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from impls import ops
from impls.convs import conv_weight, short_conv
from impls.parts import OnePath, forget_bias


def normed(y_BHTV: Tensor, weight_V: Tensor | None, eps: float) -> Tensor:
    """RMSNorm over the heads together, of which weight_V [H·V] has one after the other; nothing without a weight."""
    if weight_V is None:
        return y_BHTV
    square_B1T1 = y_BHTV.square().mean(dim=(1, 3), keepdim=True)
    return y_BHTV * (square_B1T1 + eps).rsqrt() * weight_V.unflatten(0, (y_BHTV.shape[1], 1, -1))


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dt: Tensor,
    log_decay: Tensor,
    scale: float,
    norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
) -> Tensor:
    """y_BHTV by the recurrence."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for q_BHK, k_BHK, v_BHV, dt_BH, a_BH in zip(*(z.unbind(2) for z in (q, k, v, dt, log_decay)), strict=True):
        S_BHKV = a_BH.exp()[..., None, None] * S_BHKV + torch.einsum("bh,bhk,bhv->bhkv", dt_BH, k_BHK, v_BHV)
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV))
    return normed(torch.stack(y_BHTV, dim=2), norm_weight, norm_eps)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dt: Tensor,
    log_decay: Tensor,
    scale: float,
    norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, dt_BHT and log_decay_BHT <= 0, in chunks."""
    return normed(ops.decay_scan(q * scale, k, dt[..., None] * v, log_decay)[0], norm_weight, norm_eps)


attend.reference = reference


class State(NamedTuple):
    """The decayed sum of dt k v^T, and the last inputs of the convolution."""

    S_BHKV: Tensor
    past_BWD: Tensor


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        conv: int = 2  # taps of the convolution; 0 where the backbone has one
        forget: float = 0.5  # 1 - exp(a) at the start

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.past = cfg.heads, max(cfg.conv - 1, 0)
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.inner = ops.linear(d_model, 3 * d_model + 2 * cfg.heads)
        self.conv_DW = conv_weight(3 * d_model, cfg.conv)
        self.conv_bias_D = nn.Parameter(torch.zeros(3 * d_model)) if cfg.conv else None
        self.a_bias_H = forget_bias(cfg.heads, cfg.forget)
        self.norm_V = nn.Parameter(torch.ones(d_model))
        self.out = ops.linear(d_model, d_model)

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        D = x_BTD.shape[-1]
        qkv, dt_BTH, a_BTH = self.inner(x_BTD).split([3 * D, self.heads, self.heads], dim=-1)
        qkv, past_BWD = short_conv(qkv, self.conv_DW, state.past_BWD)
        qkv = qkv if self.conv_bias_D is None else qkv + self.conv_bias_D
        q, k, v = (ops.split_heads(z, self.heads) for z in qkv.chunk(3, dim=-1))
        a_BTH = ops.wide(a_BTH) if self.a_bias_H is None else ops.wide(a_BTH) + self.a_bias_H
        dt_BHT1, a_BHT = softplus(ops.wide(dt_BTH)).mT[..., None], -softplus(a_BTH).mT
        y_BHTV, S_BHKV = ops.decay_scan(q * self.head_dim**-0.5, k, dt_BHT1 * v, a_BHT, state.S_BHKV)
        y_BHTV = normed(y_BHTV, self.norm_V, 1e-6)
        return self.out(ops.merge_heads(y_BHTV.to(x_BTD.dtype))), State(S_BHKV, past_BWD)

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        S_BHKV = zeros(batch, self.heads, self.head_dim, self.head_dim)
        return State(S_BHKV, zeros(batch, self.past, 3 * self.norm_V.shape[0]))
