"""Magnitude-aware linear attention. Fan et al. 2025, "Rectifying Magnitude Neglect in Linear Attention",
arXiv:2507.00698.

    c_t = scale / t,   z_t = c_t f(q_t) . sum_{s<=t} f(k_s),   f(x) = elu(x) + 1
    y_t = sum_{s<=t} ((1 + 1/z_t) c_t f(q_t) . f(k_s) - z_t / t) v_s

The weights of a row sum to 1, may be negative and grow apart with |f(q)|, to which linear attention is blind. From
qhfan/MALA, classfication_release/model.py, whose layer adds a depthwise convolution of the values (LePE) and multiplies
by a fourth projection of x without activation: both here.

Differs from the paper: it attends in both directions over N positions of an image; here each row is the paper's over
the t tokens so far. Its convolution is 5 × 5, here 5 tokens back. No rotary positions, with which rows would not sum
to 1. 1e-6 is added to z where it divides, as in the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from impls import ops
from impls.convs import conv_weight, short_conv
from impls.parts import OnePath, phi, with_one


def weights(q: Tensor, k: Tensor, scale: float, eps: float) -> Tensor:
    """A_BHTS of q_BHTK, k_BHTK before f; rows sum to 1 but for eps."""
    t_T1 = ops.visible(q.shape[2], k.shape[2], q)
    A_BHTS = ops.hide(ops.scores(phi(q), phi(k), scale) / t_T1, 0.0)
    z_BHT1 = A_BHTS.sum(dim=-1, keepdim=True)
    return A_BHTS * (1 + 1 / (z_BHT1 + eps)) - ops.hide((z_BHT1 / t_T1).expand_as(A_BHTS), 0.0)


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV from all pairs."""
    return weights(q, k, scale, eps) @ v


def combine(y_BHTV: Tensor, sum_BHTV: Tensor, t_T1: Tensor, eps: float) -> Tensor:
    """y_BHTV of scale · f(q) read from the sums of f(k) [v, 1]^T, and the sum of the values."""
    y_BHTV, z_BHT1 = (y_BHTV / t_T1).split([sum_BHTV.shape[-1], 1], dim=-1)
    return y_BHTV * (1 + 1 / (z_BHT1 + eps)) - z_BHT1 * sum_BHTV / t_T1


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV in chunks; f is applied here."""
    y_BHTV, _ = ops.decay_scan(phi(q) * scale, phi(k), with_one(v))
    return combine(y_BHTV, v.cumsum(dim=2), ops.visible(v.shape[2], v.shape[2], v), eps)


attend.reference = reference


class State(NamedTuple):
    """Sums of f(k) [v, 1]^T and of v, the last values, and how many tokens went into them."""

    Sz_BHKV: Tensor
    sum_BH1V: Tensor
    past_BWD: Tensor
    position: int


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        lepe: int = 5  # taps of the convolution of the values; 0 for none
        gate: bool = True  # multiply by a projection of x
        eps: float = 1e-6  # added to z where it divides

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.eps, self.past = cfg.heads, cfg.eps, max(cfg.lepe - 1, 0)
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.inner = ops.linear(d_model, (4 if cfg.gate else 3) * d_model)
        self.lepe_DW = conv_weight(d_model, cfg.lepe)
        self.out = ops.linear(d_model, d_model)

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        q_BTD, k_BTD, v_BTD, *gate = self.inner(x_BTD).split(x_BTD.shape[-1], dim=-1)
        q, k, v = (ops.wide(ops.split_heads(z, self.heads)) for z in (q_BTD, k_BTD, v_BTD))
        y_BHTV, Sz_BHKV = ops.decay_scan(phi(q) * self.head_dim**-0.5, phi(k), with_one(v), state_BHKV=state.Sz_BHKV)
        sum_BHTV, position = state.sum_BH1V + v.cumsum(dim=2), state.position + v.shape[2]
        y_BHTV = combine(y_BHTV, sum_BHTV, ops.visible(v.shape[2], position, v), self.eps)
        y_BTD = ops.merge_heads(y_BHTV).to(x_BTD.dtype)
        near_BTD, past_BWD = short_conv(v_BTD, self.lepe_DW, state.past_BWD)
        y_BTD = y_BTD if self.lepe_DW is None else y_BTD + near_BTD
        y_BTD = self.out(y_BTD * gate[0] if gate else y_BTD)
        return y_BTD, State(Sz_BHKV, sum_BHTV[:, :, -1:], past_BWD, position)

    def init_state(self, batch: int) -> State:
        zeros, K = ops.wide(self.out.weight).new_zeros, self.head_dim
        past_BWD = zeros(batch, self.past, self.out.in_features)
        return State(zeros(batch, self.heads, K, K + 1), zeros(batch, self.heads, 1, K), past_BWD, 0)

    def weights(self, x_BTD: Tensor) -> Tensor:
        q, k = (ops.split_heads(z, self.heads) for z in self.inner(x_BTD).split(x_BTD.shape[-1], dim=-1)[:2])
        return weights(q, k, self.head_dim**-0.5, self.eps)
