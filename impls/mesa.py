"""MesaNet's layer, or exact test-time ridge regression. von Oswald et al. 2025, "MesaNet: Sequence Modeling by Locally
Optimal Test-Time Training", arXiv:2506.05233; least squares among the rules of Wang, Shi and Fox 2025, "Test-time
regression: a unifying framework for designing sequence models with associative memory", arXiv:2501.12352.

    H_t = a_t H_{t-1} + b_t k_t k_t^T,   G_t = a_t G_{t-1} + b_t k_t v_t^T
    y_t = G_t^T (H_t + diag(l))^{-1} q_t  =  M q_t  of  min over M of  sum_s w_ts |v_s - M k_s|^2 + |M diag(l)^1/2|^2
    w_ts = a_{s+1} ... a_t b_s,   a_t = sigmoid(W_a x_t + c),   b_t = sigmoid(W_b x_t + d),   l > 0.25, 1 at the start

q and k pass a causal convolution of width 4 and SiLU and then have unit length; v is a plain projection; an RMSNorm of
each head precedes the output. Layout and starts, c = d = 0 among them, as in fla-org/flash-linear-attention
(fla/layers/mesa_net.py, fla/models/mesa_net).

Differs from the paper, or may: conjugate gradients solve each system to rounding, not in 30 steps whatever is left;
there is no output gate. `forget` starts c so that another share than half is forgotten at each token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu, softplus

from impls import ops
from impls.convs import conv_weight, short_conv
from impls.parts import OnePath
from impls.solvers import solve

CHUNK = 32


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
    """Sums of k k^T and of k v^T, and the last inputs of the convolution."""

    H_BHKK: Tensor
    G_BHKV: Tensor
    past_BWD: Tensor


def regress(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, lamb: Tensor, H_BHKK: Tensor, G_BHKV: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(y_BHTV, H_T, G_T), a chunk at a time: H_t x_t and G_t^T x_t are one scan over keys and values side by side."""
    with ops.no_autocast(q):
        T, K, size = q.shape[2], k.shape[-1], ops.chunk_size(q.shape[2], CHUNK)
        q, k, v, beta = (ops.chunked(ops.wide(z), size) for z in (q, k, v, beta[..., None]))
        lamb, inside = ops.wide(lamb)[:, None, None], ops.decays(log_decay, T, k, size)
        weight = inside.mask * beta.mT  # w_ts of one chunk
        sides = torch.cat([k, v], dim=-1)
        write, before = (k * beta * inside.to_end).mT @ sides, torch.cat([H_BHKK, G_BHKV], dim=-1)
        starts, state = ops.carry(inside.whole, write, before, torch.mul)
        H_start, G_start = starts.split([K, v.shape[-1]], dim=-1)

        k_KC = k.mT.contiguous()  # laid out once for all steps of the solver

        def gram(x: Tensor) -> Tensor:
            """(H_t + diag(l)) x_t."""
            near = (x @ k_KC * weight) @ k
            return near.addcmul_(x @ H_start, inside.from_start).addcmul_(lamb, x)

        # no eigenvalue of H is larger than its trace
        trace = beta.detach().sum(dim=(2, 3, 4)) * k.detach().square().sum(dim=-1).amax() + traces(H_BHKK.detach())
        x = solve(gram, q, 1 + trace.amax() / lamb.detach().amin())
        y = torch.addcmul((x @ k_KC * weight) @ v, x @ G_start, inside.from_start)
        H_BHKK, G_BHKV = state.split([K, v.shape[-1]], dim=-1)
        return y.flatten(2, 3)[:, :, :T], H_BHKK, G_BHKV


def traces(H_BHKK: Tensor) -> Tensor:
    return H_BHKK.diagonal(dim1=-2, dim2=-1).sum(dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, lamb: Tensor) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, beta_BHT, log_decay_BHT <= 0 and lamb_HK > 0."""
    H_BHKK, G_BHKV = (ops.wide(k).new_zeros(*k.shape[:2], k.shape[-1], z.shape[-1]) for z in (k, v))
    return regress(q, k, v, beta, log_decay, lamb, H_BHKK, G_BHKV)[0].to(v.dtype)


attend.reference = reference


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        conv: int = 4  # taps of the convolution; 0 where the backbone has one
        ridge: float = 1.0  # l at the start
        least_ridge: float = 0.25  # l never falls below this
        forget: float = 0.5  # 1 - a_t at the start

        def __post_init__(self):
            if not 0 < self.least_ridge < self.ridge:
                raise ValueError(f"least_ridge={self.least_ridge} must lie between 0 and ridge={self.ridge}")
            if not 0 < self.forget < 1:
                raise ValueError(f"forget={self.forget} must lie between 0 and 1")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.past, self.least = cfg.heads, max(cfg.conv - 1, 0), cfg.least_ridge
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.inner = ops.linear(d_model, 3 * d_model)
        self.rates = ops.linear(d_model, 2 * cfg.heads, bias=True)
        nn.init.constant_(self.rates.bias[: cfg.heads], math.log((1 - cfg.forget) / cfg.forget))
        self.conv_DW = conv_weight(2 * d_model, cfg.conv)
        raw = math.log(math.expm1(cfg.ridge - cfg.least_ridge))
        self.ridge_HK = nn.Parameter(torch.full((cfg.heads, self.head_dim), raw))
        self.norm_V = nn.Parameter(torch.ones(self.head_dim))
        self.out = ops.linear(d_model, d_model)

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        qk, v = self.inner(x_BTD).tensor_split([2 * x_BTD.shape[-1]], dim=-1)
        qk, past_BWD = short_conv(qk, self.conv_DW, state.past_BWD)
        q, k, v = (ops.split_heads(z, self.heads) for z in (*silu(qk).chunk(2, dim=-1), v))
        a_BHT, b_BHT = (ops.wide(z.mT) for z in self.rates(x_BTD).chunk(2, dim=-1))
        lamb_HK = softplus(ops.wide(self.ridge_HK)) + self.least
        y_BHTV, H_BHKK, G_BHKV = regress(
            ops.unit(q), ops.unit(k), v, b_BHT.sigmoid(), logsigmoid(a_BHT), lamb_HK, state.H_BHKK, state.G_BHKV
        )
        y_BTD = ops.merge_heads(ops.head_norm(y_BHTV.to(x_BTD.dtype), self.norm_V))
        return self.out(y_BTD), State(H_BHKK, G_BHKV, past_BWD)

    def init_state(self, batch: int) -> State:
        zeros, K = ops.wide(self.out.weight).new_zeros, self.head_dim
        past_BWD = zeros(batch, self.past, 2 * self.out.in_features)
        return State(zeros(batch, self.heads, K, K), zeros(batch, self.heads, K, K), past_BWD)
