"""Local linear attention, the first higher-order softmax of Wang, Shi and Fox 2025, "Test-time regression: a unifying
framework for designing sequence models with associative memory", arXiv:2501.12352; objective as in arXiv:2510.01450.

    y_t = b of  min over b, W of  1/2 sum_{s<=t} w_ts |v_s - b - W (k_s - q_t)|^2 + ridge/2 |W|^2
    w_ts = softmax_s(q_t . k_s / sqrt(K))

Without W this is softmax attention. Solved, with the weighted means k-_t, v-_t and covariances
S_t = sum_s w_ts (k_s - k-_t)(k_s - k-_t)^T + ridge I and C_t = sum_s w_ts (k_s - k-_t) v_s^T:

    y_t = v-_t - (k-_t - q_t)^T S_t^{-1} C_t  =  sum_{s<=t} w_ts (1 - r_t . (k_s - k-_t)) v_s
    r_t = S_t^{-1} (k-_t - q_t)

The closed form follows from the objective and is the function of the latter's released reference
(Yifei-Zuo/FlashLLA, flashlla/ops/naive.py), which sets up S_t about q_t and has a ridge of 10 by default.

S_t is not made: a system is solved by conjugate gradients, each step of which is one more pass of attention.

Differs from the papers, or may: queries and keys are normalised to length sqrt(K), for which arXiv:2501.12352 argues.
Solved in float32 or wider: rows with t < K are singular but for the ridge, so it must be large beside 1e-7 |k|^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import rms_norm

from impls import ops
from impls.base import ScoreMixer
from impls.solvers import solve


def probe(x_BHTK: Tensor, k_BHKS: Tensor, mean_BHTK: Tensor) -> Tensor:
    """x_t . (k_s - k-_t), [B,H,T,S]."""
    return (x_BHTK @ k_BHKS).sub_((x_BHTK * mean_BHTK).sum(dim=-1, keepdim=True))


def slopes(w_BHTS: Tensor, b_BHTK: Tensor, k: Tensor, mean_BHTK: Tensor, ridge: float) -> Tensor:
    """S_t^{-1} b_t, [B,H,T,K]."""
    k_BHKS = k.mT.contiguous()  # laid out once for all steps of the solver

    def spread(x_BHTK: Tensor) -> Tensor:
        """S_t x_t, without the T matrices S_t."""
        return (probe(x_BHTK, k_BHKS, mean_BHTK).mul_(w_BHTS) @ k).add_(x_BHTK, alpha=ridge)

    condition = 1 + k.square().sum(dim=-1).amax() / ridge  # no spread is wider than the longest key
    return solve(spread, b_BHTK, condition)


class Weights(torch.autograd.Function):
    """A_BHTS of q, k in float32 or wider. Its gradient solves one more system: with g the gradient of r,
    that of S_t is -l_t r_t^T where S_t l_t = g_t."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, scale: float, ridge: float) -> Tensor:  # pyright: ignore
        w = ops.causal_softmax(ops.scores(q, k, scale))
        mean = w @ k
        r = slopes(w, mean - q, k, mean, ridge)
        bend = probe(r, k.mT, mean)
        ctx.save_for_backward(q, k, w, mean, r, bend)
        ctx.scale, ctx.ridge = scale, ridge
        return torch.addcmul(w, w, bend, value=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore
        q, k, w, mean, r, bend = ctx.saved_tensors
        weighted = grad * w
        total = weighted.sum(dim=-1, keepdim=True)
        l = slopes(w, total * mean - weighted @ k, k, mean, ctx.ridge)  # noqa: E741
        rise = probe(l, k.mT, mean).add_(grad)
        grad_mean = torch.addcmul(l, total, r)  # not by way of S_t: keys are spread about their mean
        grad_w = (grad_mean @ k.mT).add_(grad).addcmul_(bend, rise, value=-1)
        grad_s = torch.ops.aten._softmax_backward_data(grad_w, w, -1, w.dtype).mul_(ctx.scale)
        by_bend, by_rise = w * bend, rise.mul_(w)
        grad_k = grad_s.mT @ q + w.mT @ grad_mean - by_rise.mT @ r - by_bend.mT @ l
        return grad_s @ k - l, grad_k, None, None


def weights(q: Tensor, k: Tensor, scale: float, ridge: float) -> Tensor:
    """A_BHTS of either sign; rows sum to 1."""
    with ops.no_autocast(q):
        return Weights.apply(ops.wide(q), ops.wide(k), scale, ridge).to(q.dtype)  # pyright: ignore


def weights_directly(q: Tensor, k: Tensor, scale: float, ridge: float) -> Tensor:
    """The same, by making each S_t and solving, with PyTorch's gradients."""
    w_BHTS = ops.causal_softmax(ops.scores(q, k, scale))
    mean_BHTK = w_BHTS @ k
    square_BHTKK = torch.einsum("bhts,bhsk,bhsj->bhtkj", w_BHTS, k, k)
    S_BHTKK = square_BHTKK - mean_BHTK[..., :, None] * mean_BHTK[..., None, :]
    S_BHTKK = S_BHTKK + ridge * torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    r_BHTK = torch.linalg.solve_ex(S_BHTKK, (mean_BHTK - q)[..., None])[0][..., 0]
    return w_BHTS * (1 + (r_BHTK * mean_BHTK).sum(dim=-1, keepdim=True) - r_BHTK @ k.mT)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, ridge: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, ridge) @ v


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, ridge: float) -> Tensor:
    """The same with each system solved directly."""
    return weights_directly(q, k, scale, ridge) @ v


attend.reference = reference


def unit(x_BHTK: Tensor) -> Tensor:
    """x brought to length sqrt(K); rotating it before or after is the same."""
    return rms_norm(x_BHTK, x_BHTK.shape[-1:], eps=1e-6)


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        ridge: float = 10.0  # lambda

        def __post_init__(self):
            if not self.ridge > 0:
                raise ValueError(f"ridge={self.ridge} must be positive: rows with fewer keys than K are singular")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.ridge = self.head_dim**-0.5, cfg.ridge

    def project(self, x_BTD: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        return unit(q_BHTK), unit(k_BHTK), v_BHTV

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.ridge)
