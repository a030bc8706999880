"""DeltaNet. Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
arXiv:2406.06484; the rule itself is Schlag et al. 2021, arXiv:2102.11174.

    S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T      what the state returns for k_t moves to v_t by beta_t
    y_t = S_t^T q_t

q, k and v pass a causal convolution of width 4 and SiLU; q and k then have unit length; beta = sigmoid(W x). Each
head's output has an RMSNorm before the output projection.

Differs from the paper: nothing known. q is not scaled, which the norm would cancel but for its epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from impls import ops
from impls.base import RecurrentMixer
from impls.convs import conv_weight, short_conv


def reference(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float) -> Tensor:
    """y_BHTV by the recurrence."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for q_BHK, k_BHK, v_BHV, beta_BH in zip(*(z.unbind(2) for z in (q, k, v, beta)), strict=True):
        error_BHV = v_BHV - torch.einsum("bhk,bhkv->bhv", k_BHK, S_BHKV)
        S_BHKV = S_BHKV + torch.einsum("bh,bhk,bhv->bhkv", beta_BH, k_BHK, error_BHV)
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV))
    return torch.stack(y_BHTV, dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV and beta_BHT, in chunks; q and k are used as given."""
    return ops.delta_scan(q * scale, k, v, beta[..., None] * k)[0]


attend.reference = reference


class State(NamedTuple):
    """The map from keys to values, and the last inputs of the convolution."""

    S_BHKV: Tensor
    past_BWD: Tensor


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        expand_v: float = 1.0  # width of the values over d_model
        conv: int = 4  # taps of the convolution; 0 where the backbone has one

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.past = cfg.heads, max(cfg.conv - 1, 0)
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.value = ops.expanded(d_model, cfg.expand_v, cfg.heads)
        self.widths = [2 * d_model + self.value, cfg.heads]
        self.inner = ops.linear(d_model, sum(self.widths))
        self.conv_DW = conv_weight(self.widths[0], cfg.conv)
        self.norm_V = nn.Parameter(torch.ones(self.value // cfg.heads))
        self.out = ops.linear(self.value, d_model)

    def project(self, x_BTD: Tensor, past_BWD: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q, k of unit length, v, beta_BHT1 and the convolution's next past."""
        qkv, beta_BTH = self.inner(x_BTD).split(self.widths, dim=-1)
        qkv, past_BWD = short_conv(qkv, self.conv_DW, past_BWD)
        k_width = self.heads * self.head_dim
        q, k, v = (ops.split_heads(z, self.heads) for z in silu(qkv).split([k_width, k_width, self.value], dim=-1))
        return ops.unit(q), ops.unit(k), v, beta_BTH.sigmoid().mT[..., None], past_BWD

    def finish(self, y_BHTV: Tensor) -> Tensor:
        return self.out(ops.merge_heads(ops.head_norm(y_BHTV, self.norm_V)))

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        q, k, v, beta_BHT1, past_BWD = self.project(x_BTD, self.init_state(x_BTD.shape[0]).past_BWD)
        y_BHTV, S_BHKV = ops.delta_scan(q, k, v, beta_BHT1 * k)
        return self.finish(y_BHTV), State(S_BHKV, past_BWD)

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        S_BHKV = zeros(batch, self.heads, self.head_dim, self.value // self.heads)
        return State(S_BHKV, zeros(batch, self.past, self.widths[0]))

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        q_BH1K, k_BH1K, v_BH1V, beta_BH11, past_BWD = self.project(x_BD[:, None], state.past_BWD)
        k_BH1K = k_BH1K.to(state.S_BHKV.dtype)
        S_BHKV = state.S_BHKV + beta_BH11 * k_BH1K.mT * (v_BH1V - k_BH1K @ state.S_BHKV)
        y_BH1V = q_BH1K.to(S_BHKV.dtype) @ S_BHKV
        return self.finish(y_BH1V.to(x_BD.dtype))[:, 0], State(S_BHKV, past_BWD)
