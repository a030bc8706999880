"""Selective self-attention. Zhang et al. 2024, "Selective Attention: Enhancing Transformer through Principled Context
Control", arXiv:2411.12892.

    y_t = sum_{s<=t} softmax_s(tau_t q_t . k_s / sqrt(K)) tau^v_s v_s
    tau_t   = tau^pos_t + tau^tok_t,    tau^pos_t = 1 + exp(-exp(beta)) ln(t + 1),    tau^tok_t = tanh(f_h(x_t))
    tau^v_s = 1 + tanh(g_h(x_s))

The position part (one beta a layer, 1.5 at the start) is that of the released code (umich-sota/selective_attention,
lit_gpt/gpt_2_PTS.py), which holds nothing else.

Second-hand: the token part. That temperatures of queries and values are sums of a position and a token term, the tanh,
and that f shares its first layer with the attention projection are known from summaries and third-party code only.

Differs from the paper, or may: f_h = w_h . gelu(the head's own query before rotation), g_h likewise of its value;
w starts at 0, so the layer starts as the released one; the value temperature has no position term.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def weights(q: Tensor, k: Tensor, pos_beta: Tensor, scale: float, tau_token: Tensor | None = None) -> Tensor:
    """A_BHTS; pos_beta has no axes, tau_token is [B,H,T] or absent. The queries are the last T of the S positions."""
    T, S = q.shape[-2], k.shape[-2]
    s_BHTS = ops.wide(ops.scores(q, k, scale))
    tau = 1 + (-pos_beta.exp()).exp() * ops.visible(T, S, s_BHTS).log()
    tau = tau if tau_token is None else tau + tau_token[..., None]
    return ops.causal_softmax(tau * s_BHTS).to(q.dtype)


@dispatched(score_map.ssa)
def attend(q: Tensor, k: Tensor, v: Tensor, pos_beta: Tensor, scale: float, tau_token: Tensor | None = None) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV; values come with their own temperature already on them."""
    return weights(q, k, pos_beta, scale, tau_token) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 12  # GPT-2 small
        rope: bool = True
        pos_beta: float = 1.5  # beta at the start
        token: bool = True  # temperatures from the token as well, for queries and values

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5
        self.pos_beta = nn.Parameter(torch.tensor(cfg.pos_beta))
        zeros = torch.zeros(cfg.heads, self.head_dim)
        self.query_HK = nn.Parameter(zeros.clone()) if cfg.token else None
        self.value_HV = nn.Parameter(zeros.clone()) if cfg.token else None

    def project(self, x_BTD: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        return (
            q_BHTK,
            k_BHTK,
            v_BHTV if self.value_HV is None else v_BHTV * (1 + token(v_BHTV, self.value_HV))[..., None],
        )

    def gates(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        if self.query_HK is None:
            return ()
        q_BTD = linear(x_BTD, self.qkv.weight[: x_BTD.shape[-1]])
        return (token(ops.split_heads(q_BTD, self.heads), self.query_HK),)

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor, *tau_token: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.pos_beta, self.scale, *tau_token)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, *tau_token: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.pos_beta, self.scale, *tau_token)


def token(z_BHTK: Tensor, w_HK: Tensor) -> Tensor:
    """tanh(w_h . gelu(z))_BHT."""
    return torch.einsum("bhtk,hk->bht", gelu(z_BHTK), w_HK.to(z_BHTK.dtype)).tanh()
