"""InLine attention. Han et al. 2024, "Bridging the Divide: Reconsidering Softmax and Linear Attention",
arXiv:2412.06590.

    w_ts = c_t q_t . k_s - (1/t) sum_{r<=t} c_t q_t . k_r + 1/t,   c_t = scale / t
    y_t  = sum_{s<=t} w_ts v_s + sum_{i<taps} r_ti v_{t-i}

Normalised by subtraction, a row sums to 1 and no two queries share their weights unless all keys say so (injective).
The second sum, the local residual, has weights r that two linear layers within heads make of the mean of x. From
LeapLabTHU/InLine, models/inline_deit.py, with its default, no feature map.

Differs from the paper: it attends in both directions over N positions of an image; here each row is the paper's over
the t tokens so far, the mean that makes r is over those, and the 3 × 3 convolution of the values is one of 3 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from impls import ops
from impls.parts import OnePath, with_one


def weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """A_BHTS of q_BHTK, k_BHTK, of either sign; rows sum to 1."""
    t_T1 = ops.visible(q.shape[2], k.shape[2], q)
    A_BHTS = ops.hide(ops.scores(q, k, scale) / t_T1, 0.0)
    return ops.hide(A_BHTS + (1 - A_BHTS.sum(dim=-1, keepdim=True)) / t_T1, 0.0)


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV from all pairs."""
    return weights(q, k, scale) @ v


def combine(y_BHTV: Tensor, sum_BHTV: Tensor, t_T1: Tensor) -> Tensor:
    """y_BHTV of scale · q read from the sums of k [v, 1]^T, and the sum of the values."""
    y_BHTV, z_BHT1 = (y_BHTV / t_T1).split([sum_BHTV.shape[-1], 1], dim=-1)
    return y_BHTV + (1 - z_BHT1) * sum_BHTV / t_T1


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV in chunks; without the local residual."""
    y_BHTV, _ = ops.decay_scan(q * scale, k, with_one(v))
    return combine(y_BHTV, v.cumsum(dim=2), ops.visible(v.shape[2], v.shape[2], v))


attend.reference = reference


class State(NamedTuple):
    """Sums of k [v, 1]^T, of v and of x, the last values, and how many tokens went into them."""

    Sz_BHKV: Tensor
    sum_BH1V: Tensor
    sum_B1D: Tensor
    past_BWD: Tensor
    position: int


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        taps: int = 3  # of the local residual; 0 for none

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.taps = cfg.heads, cfg.taps
        self.head_dim = K = ops.head_dim(d_model, cfg.heads)
        self.qkv = ops.linear(d_model, 3 * d_model)
        normal = torch.empty(cfg.heads, K, K * (1 + cfg.taps)).normal_(std=0.02)
        self.first_HKK = nn.Parameter(normal[..., :K].clone()) if cfg.taps else None
        self.second_HKX = nn.Parameter(normal[..., K:].clone()) if cfg.taps else None
        self.out = ops.linear(d_model, d_model)

    def local(self, mean_BTD: Tensor, v_BHTV: Tensor, past_BWD: Tensor) -> tuple[Tensor, Tensor]:
        """(sum over i of r_ti v_{t-i}, [B,H,T,V]; the convolution's next past)."""
        if self.first_HKK is None or self.second_HKX is None:
            return torch.zeros_like(v_BHTV), past_BWD
        mean_BHTK = ops.split_heads(mean_BTD, self.heads)
        r_BHTX = gelu(mean_BHTK @ self.first_HKK.to(mean_BHTK.dtype)) @ self.second_HKX.to(mean_BHTK.dtype)
        v_BTD = torch.cat([past_BWD.to(v_BHTV.dtype), ops.merge_heads(v_BHTV)], dim=1)
        near_BTDW = v_BTD.unfold(1, self.taps, 1).flip(-1)  # v_t, v_{t-1}, ...
        r_BHTVW = r_BHTX.unflatten(-1, (self.head_dim, self.taps))
        near_BHTVW = near_BTDW.unflatten(2, (self.heads, -1)).transpose(1, 2)
        return (r_BHTVW * near_BHTVW).sum(dim=-1), v_BTD[:, v_BHTV.shape[2] :]

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = (ops.wide(ops.split_heads(z, self.heads)) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        y_BHTV, Sz_BHKV = ops.decay_scan(q * self.head_dim**-0.5, k, with_one(v), state_BHKV=state.Sz_BHKV)
        sum_BHTV, position = state.sum_BH1V + v.cumsum(dim=2), state.position + v.shape[2]
        t_T1 = ops.visible(v.shape[2], position, v)
        sum_BTD = state.sum_B1D + ops.wide(x_BTD).cumsum(dim=1)
        near_BHTV, past_BWD = self.local(sum_BTD / t_T1, v, state.past_BWD)
        y_BTD = ops.merge_heads(combine(y_BHTV, sum_BHTV, t_T1) + near_BHTV).to(x_BTD.dtype)
        return self.out(y_BTD), State(Sz_BHKV, sum_BHTV[:, :, -1:], sum_BTD[:, -1:], past_BWD, position)

    def init_state(self, batch: int) -> State:
        zeros, K, D = ops.wide(self.out.weight).new_zeros, self.head_dim, self.out.in_features
        sum_BH1V, past_BWD = zeros(batch, self.heads, 1, K), zeros(batch, max(self.taps - 1, 0), D)
        return State(zeros(batch, self.heads, K, K + 1), sum_BH1V, zeros(batch, 1, D), past_BWD, 0)

    def weights(self, x_BTD: Tensor) -> Tensor:
        q, k, _ = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return weights(q, k, self.head_dim**-0.5)
