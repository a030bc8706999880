"""Variational linear attention. Pandey and Singh 2026, "Variational Linear Attention: Stable Associative Memory for
Long-Context Transformers", arXiv:2605.11196, as the authors' last notebook has it (Vishal-sys-code/
variational-linear-attention, notebooks/07-vlav3-benchmark-fixed.ipynb).

    f(x) = elu(x) + 1,   u_t := u_t / |u_t| / sqrt(K),   k^_t = f(k_t) / |f(k_t)|
    A_t = A_{t-1} - A_{t-1} u_t u_t^T A_{t-1} / (1 + u_t^T A_{t-1} u_t),   A_0 = I / lambda_0     Sherman–Morrison
    a_t = A_t k^_t / |A_t k^_t|                             write direction of unit length
    S_t = S_{t-1} + a_t (v_t - S_{t-1}^T k^_t)^T,   z_t = z_{t-1} + f(k_t)
    y_t = S_t^T f(q_t) / max(z_t . f(q_t), 1e-4)

A_t is the inverse of P_t = lambda_0 I + sum u u^T. With P at the start of a chunk, U the chunk's rows, and
L L^T = I + U P^{-1} U^T: A_t = P^{-1} - sum_{s<=t} y_s y_s^T, where the rows y are L^{-1} U P^{-1}. The rest is a delta
rule with another write. u is a projection of all heads' keys; a layer norm over the heads precedes the output.

Differs from the authors' code: it also adds 0.001 I to A after every 20th token, which makes A no inverse and moves y
by about 1e-4; here `attend` does so when asked, the layer does not. The paper's penalty network is computed there and
not used; here it is left out. Linear maps have no bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import layer_norm, normalize

from impls import ops
from impls.parts import OnePath, phi


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    u: Tensor,
    lambda0: float,
    stab_eps: float,
    nudge_eps: float,
    nudge_period: int,
) -> Tensor:
    """y_BHTV by the recurrence; nudge_eps I is added to A after every nudge_period-th token."""
    q, key, u = phi(q), normalize(phi(k), dim=-1), normalize(u, dim=-1) * u.shape[-1] ** -0.5
    one_KK = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    A_BHKK = (one_KK / lambda0).expand(*k.shape[:2], -1, -1)
    S_BHKV, z_BHK, y_BHTV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None]), torch.zeros_like(k[:, :, 0]), []
    for t in range(q.shape[2]):
        Au_BHK1 = A_BHKK @ u[:, :, t, :, None]
        A_BHKK = A_BHKK - Au_BHK1 @ Au_BHK1.mT / (1 + u[:, :, t, None] @ Au_BHK1).clamp_min(stab_eps)
        if nudge_eps and (t + 1) % nudge_period == 0:
            A_BHKK = A_BHKK + nudge_eps * one_KK
        a_BHK1 = normalize(A_BHKK @ key[:, :, t, :, None], dim=-2)
        S_BHKV = S_BHKV + a_BHK1 @ (v[:, :, t, None] - key[:, :, t, None] @ S_BHKV)
        z_BHK = z_BHK + phi(k[:, :, t])
        den_BH1 = (z_BHK * q[:, :, t]).sum(dim=-1, keepdim=True).clamp_min(stab_eps)
        y_BHTV.append((q[:, :, t, None] @ S_BHKV)[:, :, 0] / den_BH1)
    return torch.stack(y_BHTV, dim=2)


class Inverse(torch.autograd.Function):
    """(P_t^{-1} k_t [B,H,N,C,K], P_T) of chunks of keys and of u, and of P before the first.

    With a_t = P_t^{-1} k_t and g_t the gradient of a_t, the gradient of k_t is l_t = P_t^{-1} g_t, that of P_t is
    -l_t a_t^T, and u_s is in each P_t from t = s on.
    """

    @staticmethod
    def forward(ctx: Any, key: Tensor, u: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        P_BHNKK = P[:, :, None] + (u.mT @ u).cumsum(dim=2)
        factor, _ = torch.linalg.cholesky_ex(torch.cat([P[:, :, None], P_BHNKK[:, :, :-1]], dim=2))
        uA, keyA = torch.cholesky_solve(torch.cat([u, key], dim=3).mT, factor).mT.split(u.shape[3], dim=3)
        L, _ = torch.linalg.cholesky_ex(torch.eye(u.shape[3], dtype=u.dtype, device=u.device) + uA @ u.mT)
        y = torch.linalg.solve_triangular(L, uA, upper=False)
        a = keyA - (key @ y.mT).tril_() @ y
        ctx.save_for_backward(u, factor, y, a)
        return a, P_BHNKK[:, :, -1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_P: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore
        u, factor, y, a = ctx.saved_tensors
        l = torch.cholesky_solve(grad.mT, factor).mT - (grad @ y.mT).tril_() @ y  # noqa: E741
        of_chunk = l.mT @ a
        of_chunk = of_chunk + of_chunk.mT
        whole = of_chunk.sum(dim=2, keepdim=True)
        near = (u @ a.mT).triu_() @ l + (u @ l.mT).triu_() @ a
        grad_PP = (grad_P + grad_P.mT)[:, :, None]
        return l, u @ (grad_PP - whole + of_chunk.cumsum(dim=2)) - near, grad_P - whole[:, :, 0] / 2


def directions(key: Tensor, u: Tensor, P_BHKK: Tensor, chunk: int = 32) -> tuple[Tensor, Tensor]:
    """(a_BHTK, P_T) of k^, u of length 1/sqrt(K) and P before the first token, a chunk at a time."""
    T, size = key.shape[2], ops.chunk_size(key.shape[2], chunk)
    a, P_BHKK = Inverse.apply(ops.chunked(key, size), ops.chunked(u, size), P_BHKK)  # pyright: ignore
    return normalize(a.flatten(2, 3)[:, :, :T], dim=-1), P_BHKK


def exact(q: Tensor, k: Tensor, v: Tensor, u: Tensor, state: State, stab_eps: float) -> tuple[Tensor, State]:
    """(y_BHTV, state after these tokens) without nudges."""
    with ops.no_autocast(q):
        q, k, v = phi(ops.wide(q)), phi(ops.wide(k)), ops.wide(v)
        key, u = normalize(k, dim=-1), normalize(ops.wide(u), dim=-1) * u.shape[-1] ** -0.5
        a_BHTK, P_BHKK = directions(key.double(), u.double(), state.P_BHKK)
        y_BHTV, S_BHKV = ops.delta_scan(q, key, v, a_BHTK.to(v.dtype), state_BHKV=state.S_BHKV)
        z_BHTK = state.z_BH1K + k.cumsum(dim=2)
        den_BHT1 = (z_BHTK * q).sum(dim=-1, keepdim=True).clamp_min(stab_eps)
        return y_BHTV / den_BHT1, State(P_BHKK, S_BHKV, z_BHTK[:, :, -1:])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    u: Tensor,
    lambda0: float,
    stab_eps: float,
    nudge_eps: float,
    nudge_period: int,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV and u_BHTK as projected: in chunks, or token by token where nudges fall."""
    if nudge_eps and q.shape[2] >= nudge_period:
        return reference(q, k, v, u, lambda0, stab_eps, nudge_eps, nudge_period)
    return exact(q, k, v, u, start(k[:, :, 0], v.shape[-1], lambda0), stab_eps)[0].to(v.dtype)


attend.reference = reference


class State(NamedTuple):
    """P, whose inverse is A, in float64; the memory S; the sum z of f(k)."""

    P_BHKK: Tensor
    S_BHKV: Tensor
    z_BH1K: Tensor


def start(like_BHK: Tensor, value: int, lambda0: float) -> State:
    """Before the first token."""
    z_BH1K = torch.zeros_like(ops.wide(like_BHK))[:, :, None]
    S_BHKV = torch.zeros_like(z_BH1K.mT).repeat(1, 1, 1, value)
    return State(torch.diag_embed((z_BH1K.double() + lambda0).squeeze(2)), S_BHKV, z_BH1K)


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 4
        lambda0: float = 0.1
        eps: float = 1e-4  # smallest denominator

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.lambda0, self.eps = cfg.heads, cfg.lambda0, cfg.eps
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.qkv, self.penalty = ops.linear(d_model, 3 * d_model), ops.linear(d_model, d_model)
        self.norm_D, self.norm_bias_D = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.out = ops.linear(d_model, d_model)

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self.qkv(x_BTD).chunk(3, dim=-1)
        q, k, v, u = (ops.split_heads(z, self.heads) for z in (q, k, v, self.penalty(k)))
        y_BHTV, state = exact(q, k, v, u, state, self.eps)
        y_BTD = ops.merge_heads(y_BHTV).to(x_BTD.dtype)
        return self.out(layer_norm(y_BTD, self.norm_D.shape, self.norm_D, self.norm_bias_D)), state

    def init_state(self, batch: int) -> State:
        like_BHK = self.out.weight.new_zeros(batch, self.heads, self.head_dim)
        return start(like_BHK, self.head_dim, self.lambda0)
