"""MesaNet's layer, or exact test-time ridge regression. von Oswald et al. 2025, "MesaNet: Sequence Modeling by Locally
Optimal Test-Time Training", arXiv:2506.05233; least squares among the rules of Wang, Shi and Fox 2025, "Test-time
regression: a unifying framework for designing sequence models with associative memory", arXiv:2501.12352.

    H_t = a_t H_{t-1} + b_t k_t k_t^T,   G_t = a_t G_{t-1} + b_t k_t v_t^T
    y_t = G_t^T (H_t + diag(l))^{-1} q_t  =  M q_t  of  min over M of  sum_s w_ts |v_s - M k_s|^2 + |M diag(l)^1/2|^2
    w_ts = a_{s+1} ... a_t b_s,   a_t = sigmoid(W_a x_t + 1),   b_t = sigmoid(W_b x_t),   l > 0.25, 1 at the start

q, k and v pass a causal convolution of width 4 and SiLU; q and k then have unit length; an RMSNorm of each head
precedes the output. Names and starts as in fla-org/flash-linear-attention (fla/layers/mesa_net.py).

Differs from the paper, or may: the system is solved exactly for each token, not by 30 steps of conjugate gradients;
W_a starts with a bias of 1; there is no output gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu, softplus

from impls import ops
from impls.parts import OnePath


def reference(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, lamb: Tensor) -> Tensor:
    """y_BHTV by the recurrences, one solve a step."""
    H_BHKK = torch.zeros_like(k[:, :, 0, :, None] * k[:, :, 0, None])
    G_BHKV, y_BHTV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None]), []
    for q_BHK, k_BHK, v_BHV, b_BH, g_BH in zip(*(z.unbind(2) for z in (q, k, v, beta, log_decay)), strict=True):
        write_BHK = b_BH[..., None] * k_BHK
        H_BHKK = g_BH.exp()[..., None, None] * H_BHKK + write_BHK[..., None] * k_BHK[..., None, :]
        G_BHKV = g_BH.exp()[..., None, None] * G_BHKV + write_BHK[..., None] * v_BHV[..., None, :]
        x_BHK = torch.linalg.solve(H_BHKK + torch.diag_embed(lamb), q_BHK)
        y_BHTV.append(torch.einsum("bhk,bhkv->bhv", x_BHK, G_BHKV))
    return torch.stack(y_BHTV, dim=2)


class State(NamedTuple):
    """Sums of k k^T (as one row) and of k v^T, and the last inputs of the convolution."""

    H_BH1X: Tensor
    G_BHKV: Tensor
    past_BWD: Tensor


def regress(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, lamb: Tensor, H_BH1X: Tensor, G_BHKV: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(y_BHTV, H_T, G_T): H of every token is a scan with k k^T as its values, read by 1."""
    with torch.autocast(q.device.type, enabled=False):
        q, k, v, beta_BHT1 = ops.wide(q), ops.wide(k), ops.wide(v), ops.wide(beta)[..., None]
        square_BHTX = (k[..., :, None] * k[..., None, :]).flatten(-2)
        H_BHTX, H_BH1X = ops.decay_scan(torch.ones_like(beta_BHT1), beta_BHT1, square_BHTX, log_decay, H_BH1X)
        H_BHTKK = H_BHTX.unflatten(-1, (k.shape[-1], -1)) + torch.diag_embed(ops.wide(lamb))[:, None]
        x_BHTK = torch.linalg.solve_ex(H_BHTKK, q[..., None])[0][..., 0]
        y_BHTV, G_BHKV = ops.decay_scan(x_BHTK, beta_BHT1 * k, v, log_decay, G_BHKV)
        return y_BHTV, H_BH1X, G_BHKV


def attend(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, lamb: Tensor) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, beta_BHT, log_decay_BHT <= 0 and lamb_HK > 0."""
    like, K = ops.wide(k).new_zeros(*k.shape[:2], 1), k.shape[-1]
    H_BH1X, G_BHKV = like[..., None].repeat(1, 1, 1, K * K), like[..., None].repeat(1, 1, K, v.shape[-1])
    return regress(q, k, v, beta, log_decay, lamb, H_BH1X, G_BHKV)[0].to(v.dtype)


attend.reference = reference


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        conv: int = 4  # taps of the convolution; 0 where the backbone has one
        ridge: float = 1.0  # l at the start
        least_ridge: float = 0.25  # l never falls below this

        def __post_init__(self):
            if not 0 < self.least_ridge < self.ridge:
                raise ValueError(f"least_ridge={self.least_ridge} must lie between 0 and ridge={self.ridge}")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.past, self.least = cfg.heads, max(cfg.conv - 1, 0), cfg.least_ridge
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.inner = ops.linear(d_model, 3 * d_model)
        self.rates = ops.linear(d_model, 2 * cfg.heads, bias=True)
        nn.init.ones_(self.rates.bias[: cfg.heads])
        self.conv_DW = ops.conv_weight(3 * d_model, cfg.conv)
        raw = math.log(math.expm1(cfg.ridge - cfg.least_ridge))
        self.ridge_HK = nn.Parameter(torch.full((cfg.heads, self.head_dim), raw))
        self.norm_V = nn.Parameter(torch.ones(self.head_dim))
        self.out = ops.linear(d_model, d_model)

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        qkv, past_BWD = ops.short_conv(self.inner(x_BTD), self.conv_DW, state.past_BWD)
        q, k, v = (ops.split_heads(z, self.heads) for z in silu(qkv).chunk(3, dim=-1))
        a_BHT, b_BHT = (ops.wide(z.mT) for z in self.rates(x_BTD).chunk(2, dim=-1))
        lamb_HK = softplus(ops.wide(self.ridge_HK)) + self.least
        y_BHTV, H_BH1X, G_BHKV = regress(
            ops.unit(q), ops.unit(k), v, b_BHT.sigmoid(), logsigmoid(a_BHT), lamb_HK, state.H_BH1X, state.G_BHKV
        )
        y_BTD = ops.merge_heads(ops.head_norm(y_BHTV.to(x_BTD.dtype), self.norm_V))
        return self.out(y_BTD), State(H_BH1X, G_BHKV, past_BWD)

    def init_state(self, batch: int) -> State:
        zeros, K = ops.wide(self.out.weight).new_zeros, self.head_dim
        past_BWD = zeros(batch, self.past, 3 * self.out.in_features)
        return State(zeros(batch, self.heads, 1, K * K), zeros(batch, self.heads, K, K), past_BWD)
