"""Gated positional self-attention, causal. d'Ascoli et al. 2021, "ConViT: Improving Vision Transformers with Soft
Convolutional Inductive Biases", arXiv:2103.10697.

    A_ts = (1 - g_h) softmax_s(q_t . k_s / sqrt(K)) + g_h softmax_s(u_h(t - s)),    g_h = sigmoid(lambda_h)
    u_h(d) = -a_h d + b_h d^2,    y_t = sum_{s<=t} A_ts v_s

READING: the paper's operator is bidirectional and two-dimensional. This is its released form (facebookresearch/convit,
convit.py: GPSA) on every prefix, with its projection of (dx, dy, |d|^2) cut down to the one dimension of a text,
(delta, delta^2) with delta = s - t. Its start carries over: lambda = 1; W_v the identity; a_h = -2 h strength and
b_h = -strength, so that head h looks h tokens back, u_h = -strength (d - h)^2 up to a constant.

Differs from the paper: that reading; GPSA in every layer, where the paper has it in the first 10 of 12.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer


def weights(q: Tensor, k: Tensor, pos_bias: Tensor, gate_logit: Tensor, scale: float) -> Tensor:
    """A_BHTS >= 0, rows sum to 1; pos_bias [H,S] by the distance t - s, gate_logit [H]."""
    T, S = q.shape[-2], k.shape[-2]
    query_T, key_S = torch.arange(S - T, S, device=q.device), torch.arange(S, device=q.device)
    u_HTS = ops.wide(pos_bias)[:, (query_T[:, None] - key_S).clamp(min=0)]
    content_BHTS, place_HTS = ops.causal_softmax(ops.scores(q, k, scale)), ops.causal_softmax(u_HTS)
    g_H11 = ops.wide(gate_logit).sigmoid()[:, None, None]
    return ((1 - g_H11) * content_BHTS + g_H11 * place_HTS).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, pos_bias: Tensor, gate_logit: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, pos_bias, gate_logit, scale) @ v


attend.reference = attend


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 4  # ConViT-Ti
        rope: bool = False  # the positional softmax is its position
        strength: float = 1.0  # of locality, at the start

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5
        head_H = torch.arange(cfg.heads, dtype=self.out.weight.dtype)
        self.place_H2 = nn.Parameter(cfg.strength * torch.stack([-2 * head_H, -torch.ones_like(head_H)], dim=-1))
        self.gate_logit = nn.Parameter(torch.ones(cfg.heads))
        nn.init.eye_(self.qkv.weight.data[2 * d_model :])

    def pos_bias(self, S: int) -> Tensor:
        """u_h(d) for d = 0 … S-1: [H,S], float32 or wider."""
        d_S = torch.arange(S, device=self.place_H2.device, dtype=ops.wide(self.place_H2).dtype)
        return ops.wide(self.place_H2) @ torch.stack([-d_S, d_S.square()])

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.pos_bias(k_BHSK.shape[-2]), self.gate_logit, self.scale)
