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

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from impls import ops
from impls.base import ScoreMixer
from impls.solvers import solve


def probe(x_BHTK: Tensor, k: Tensor, mean_BHTK: Tensor) -> Tensor:
    """x_t . (k_s - k-_t), [B,H,T,S]."""
    return x_BHTK @ k.mT - (x_BHTK * mean_BHTK).sum(dim=-1, keepdim=True)


def slopes(w_BHTS: Tensor, q: Tensor, k: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """(r_BHTK, k-_BHTK)."""
    mean_BHTK = w_BHTS @ k

    def spread(x_BHTK: Tensor) -> Tensor:
        """S_t x_t, without the T matrices S_t."""
        return (w_BHTS * probe(x_BHTK, k, mean_BHTK)) @ k + ridge * x_BHTK

    condition = 1 + k.detach().square().sum(dim=-1).amax() / ridge  # no spread is wider than the longest key
    return solve(spread, mean_BHTK - q, condition), mean_BHTK


def slopes_directly(w_BHTS: Tensor, q: Tensor, k: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The same, by making each S_t and solving."""
    mean_BHTK = w_BHTS @ k
    square_BHTKK = torch.einsum("bhts,bhsk,bhsj->bhtkj", w_BHTS, k, k)
    S_BHTKK = square_BHTKK - mean_BHTK[..., :, None] * mean_BHTK[..., None, :]
    S_BHTKK = S_BHTKK + ridge * torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    return torch.linalg.solve_ex(S_BHTKK, (mean_BHTK - q)[..., None])[0][..., 0], mean_BHTK


def weights(
    q: Tensor, k: Tensor, scale: float, ridge: float, slopes: Callable[..., tuple[Tensor, Tensor]] = slopes
) -> Tensor:
    """A_BHTS of either sign; rows sum to 1."""
    with ops.no_autocast(q):
        dtype, q, k = q.dtype, ops.wide(q), ops.wide(k)
        w_BHTS = ops.causal_softmax(ops.scores(q, k, scale))
        r_BHTK, mean_BHTK = slopes(w_BHTS, q, k, ridge)
        return (w_BHTS * (1 - probe(r_BHTK, k, mean_BHTK))).to(dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, ridge: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, ridge) @ v


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, ridge: float) -> Tensor:
    """The same with each system solved directly."""
    return weights(q, k, scale, ridge, slopes_directly) @ v


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
