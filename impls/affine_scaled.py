"""Affine-scaled attention. Bae et al. 2026, "Affine-Scaled Attention: Towards Flexible and Stable Transformer
Attention", arXiv:2602.23057.

    y_t = sum_{s<=t} [alpha_t softmax_s(q_t . k_s / sqrt(K)) + beta_t] v_s,    beta_t = (alpha_ma - alpha_t) / N_t
    alpha_t = clip(0.1 w_h . x_t + 0.5, 0, 1), one a head and token
    alpha_ma <- rho alpha_ma + (1 - rho) mean(alpha), rho = 0.9, from 0, without gradient

The paper does not say what N is. "visible" is N_t = t + 1, with which every row sums to alpha_ma; a number is one fixed
N, such as the training length, with which row t sums to alpha_t + (alpha_ma - alpha_t)(t + 1)/N. `attend` also knows
"length", N = S; the layer does not, since it would let the length of a text into its first tokens.

Differs from the paper, or may, as it does not say: w starts at 0 (alpha = 0.5); one average a head; it stands still in
evaluation; a training step uses the average of the steps before it, so that no token sees a later one through it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def weights(q: Tensor, k: Tensor, alpha: Tensor, alpha_ma: Tensor, n_mode: str | int, scale: float) -> Tensor:
    """A_BHTS of either sign; alpha is [B,H,T], alpha_ma [H]. The additive term never reaches a masked key."""
    T, S = q.shape[-2], k.shape[-2]
    p_BHTS = ops.causal_softmax(ops.scores(q, k, scale))
    alpha_BHT1 = ops.wide(alpha)[..., None]
    N = ops.visible(T, S, p_BHTS) if n_mode == "visible" else S if n_mode == "length" else int(n_mode)
    beta_BHT1 = (ops.wide(alpha_ma)[:, None, None] - alpha_BHT1) / N
    return ops.hide(alpha_BHT1 * p_BHTS + beta_BHT1, 0.0).to(q.dtype)


@dispatched(score_map.affine_scaled)
def attend(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, alpha_ma: Tensor, n_mode: str | int, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, alpha, alpha_ma, n_mode, scale) @ v


class Mixer(ScoreMixer):
    alpha_ma: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 16  # the paper's 0.5B model, width 1024
        rope: bool = True
        count: str | int = "visible"  # N: "visible" or a number
        rho: float = 0.9

        def __post_init__(self):
            if self.count != "visible" and not (isinstance(self.count, int) and self.count > 0):
                raise ValueError(f'count={self.count!r} is neither "visible" nor a positive number of keys')
            if not 0 <= self.rho <= 1:
                raise ValueError(f"rho={self.rho} is not in [0, 1]")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.count, self.rho = self.head_dim**-0.5, cfg.count, cfg.rho
        self.gate = nn.Linear(d_model, cfg.heads, bias=False)
        nn.init.zeros_(self.gate.weight)
        self.register_buffer("alpha_ma", torch.zeros(cfg.heads))

    def gates(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """alpha_BHT and the average before this step, alpha_ma [H]."""
        alpha_BTH = (0.1 * self.gate(x_BTD) + 0.5).clamp(0, 1)
        before = self.alpha_ma.clone()
        if self.training:
            with torch.no_grad():
                self.alpha_ma.lerp_(alpha_BTH.mean(dim=(0, 1)).to(before.dtype), 1 - self.rho)
        return alpha_BTH.mT, before

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor, alpha_BHT: Tensor, alpha_ma: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, alpha_BHT, alpha_ma, self.count, self.scale)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, alpha_BHT: Tensor, alpha_ma: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, alpha_BHT, alpha_ma, self.count, self.scale)
