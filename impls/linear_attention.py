"""Linear attention. Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with Linear
Attention", arXiv:2006.16236.

    phi(x) = elu(x) + 1                                     eq. 7
    S_t = S_{t-1} + phi(k_t) v_t^T                          eq. 18
    z_t = z_{t-1} + phi(k_t)                                eq. 19
    y_t = phi(q_t)^T S_t / phi(q_t)^T z_t                   eq. 20

z is the column of S that belongs to a value that is always 1, so one scan carries both.

Differs from the paper: 1e-6 is added to the denominator, as in its code; no positions are added to the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from impls import ops
from impls.base import RecurrentMixer
from impls.parts import divide, phi, with_one


def weights(q: Tensor, k: Tensor, scale: float, eps: float) -> Tensor:
    """A_BHTS, rows sum to 1 but for eps."""
    a_BHTS = ops.scores(phi(q), phi(k), scale).tril(k.shape[-2] - q.shape[-2])
    return a_BHTS / (a_BHTS.sum(dim=-1, keepdim=True) + eps)


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float, normalize: bool) -> Tensor:
    """y_BHTV by eq. 18 to 20, a step at a time."""
    S_BHKV, z_BHK = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None]), torch.zeros_like(k[:, :, 0])
    y_BHTV = []
    for q_BHK, k_BHK, v_BHV in zip(phi(q).unbind(2), phi(k).unbind(2), v.unbind(2), strict=True):
        S_BHKV = S_BHKV + torch.einsum("bhk,bhv->bhkv", k_BHK, v_BHV)
        z_BHK = z_BHK + k_BHK
        y_BHV = scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV)
        norm_BH = scale * torch.einsum("bhk,bhk->bh", q_BHK, z_BHK) + eps
        y_BHTV.append(y_BHV / norm_BH[..., None] if normalize else y_BHV)
    return torch.stack(y_BHTV, dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, eps: float, normalize: bool) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV in chunks; not divided by the normaliser unless `normalize`."""
    q, k = phi(q) * scale, phi(k)
    return divide(ops.decay_scan(q, k, with_one(v))[0], eps) if normalize else ops.decay_scan(q, k, v)[0]


attend.reference = reference


class State(NamedTuple):
    """S with z as its last column."""

    Sz_BHKV: Tensor


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8  # the paper's language-like experiments have 8 heads of 32
        eps: float = 1e-6  # added to the denominator

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.eps = cfg.heads, cfg.eps
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.qkv = ops.linear(d_model, 3 * d_model)
        self.out = ops.linear(d_model, d_model)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """phi(q), phi(k) and v with a column of ones, [B,H,T,·]."""
        q, k, v = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return phi(q), phi(k), with_one(v)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        y_BHTV, Sz_BHKV = ops.decay_scan(*self.project(x_BTD))
        return self.out(ops.merge_heads(divide(y_BHTV, self.eps))), State(Sz_BHKV)

    def init_state(self, batch: int) -> State:
        zeros = ops.wide(self.out.weight).new_zeros
        return State(zeros(batch, self.heads, self.head_dim, self.head_dim + 1))

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        q_BHK, k_BHK, v_BHV = (z.squeeze(2) for z in self.project(x_BD[:, None]))
        Sz_BHKV = state.Sz_BHKV + torch.einsum("bhk,bhv->bhkv", k_BHK, v_BHV)
        y_BHV = divide(torch.einsum("bhk,bhkv->bhv", q_BHK.to(Sz_BHKV.dtype), Sz_BHKV), self.eps)
        return self.out(y_BHV.flatten(1).to(x_BD.dtype)), State(Sz_BHKV)

    def weights(self, x_BTD: Tensor) -> Tensor:
        q, k, _ = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return weights(q, k, 1.0, self.eps)
