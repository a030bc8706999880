"""Softmax attention with its denominator replaced. Mongaras and Larson 2025, "On the Expressiveness of Softmax
Attention: A Recurrent Neural Network Perspective", arXiv:2507.23632.

    e_ts = exp(min(q_t . k_s / sqrt(K), clamp)),    u_t = sum_{s<=t} e_ts v_s,    n = t + 1 visible keys

    div_n                    u / n                          rmsnorm = div_n_rmsnorm    RMSNorm(u / n)
    clamp_denom              u / max(sum_s e_ts, 1)         layernorm                  LayerNorm(u / n)
    gate                     u sigmoid(g_t)                 l2norm                     u / max(|u|, eps)
    div_n_gate               (u / n) sigmoid(g_t)           l2norm_noclamp             the same, clamp is None
    in_out_gate_layernorm    LayerNorm(sigmoid(g_t) u / n) with values v sigmoid(i_t)

g and i are linear in x with a bias, one number a head and token; norms are over the width of a head and their weights
are shared by the heads. The variants are ablations of the released code (GPT_Trainer/LlamaDecoderLayer.py).

Differs from the released code: RMSNorm's eps is 1e-6, there the machine epsilon of the dtype. Where nothing is clamped,
a positive row maximum leaves the exponent and goes into the norm's eps: the same function, without overflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer

GATED = ("gate", "div_n_gate", "in_out_gate_layernorm")
NORM_EPS = {
    **dict.fromkeys(("layernorm", "in_out_gate_layernorm"), 1e-5),
    **dict.fromkeys(("rmsnorm", "div_n_rmsnorm"), 1e-6),
    **dict.fromkeys(("l2norm", "l2norm_noclamp"), 1e-12),
}
VARIANTS = ("div_n", "clamp_denom", "gate", "div_n_gate", *NORM_EPS)
UNDIVIDED = ("clamp_denom", "gate", "l2norm", "l2norm_noclamp")


def kernel(q: Tensor, k: Tensor, scale: float, variant: str, clamp: float | None) -> tuple[Tensor, Tensor]:
    """(e_BHTS exp(-m), divided by n where the variant divides, m_BHT1); m is 0 where scores are clamped."""
    T, S = q.shape[-2], k.shape[-2]
    s_BHTS = ops.hide(ops.wide(ops.scores(q, k, scale)), float("-inf"))
    top_BHT1 = s_BHTS.detach().amax(dim=-1, keepdim=True).clamp(min=0)
    m_BHT1 = top_BHT1 if clamp is None else torch.zeros_like(top_BHT1)
    e_BHTS = (s_BHTS - m_BHT1 if clamp is None else s_BHTS.clamp(max=clamp)).exp()
    return (e_BHTS if variant in UNDIVIDED else e_BHTS / ops.visible(T, S, e_BHTS)), m_BHT1


def norm(y: Tensor, m: Tensor, variant: str, eps: float, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """The variant's norm of exp(m) y, over the last axis."""
    tiny = torch.finfo(y.dtype).tiny
    if variant.startswith("l2norm"):
        return y / torch.maximum(y.norm(dim=-1, keepdim=True), (eps * (-m).exp()).clamp(min=tiny))
    y = y - y.mean(dim=-1, keepdim=True) if variant.endswith("layernorm") else y
    y = y * (y.square().mean(dim=-1, keepdim=True) + (eps * (-2 * m).exp()).clamp(min=tiny)).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def weights(
    q: Tensor, k: Tensor, scale: float, variant: str, clamp: float | None, out_gate_logit: Tensor | None = None
) -> Tensor:
    """A_BHTS >= 0 before any norm; plain sums overflow unless clamped. The gate_BHT is the queries'."""
    e_BHTS, m_BHT1 = kernel(q, k, scale, variant, clamp)
    if variant == "clamp_denom":
        return e_BHTS / torch.maximum(e_BHTS.sum(dim=-1, keepdim=True), (-m_BHT1).exp())
    A_BHTS = e_BHTS * m_BHT1.exp()
    return A_BHTS if out_gate_logit is None else A_BHTS * out_gate_logit.sigmoid()[..., None]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    variant: str,
    clamp: float | None,
    norm_eps: float | None = None,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    out_gate_logit: Tensor | None = None,
    in_gate_logit: Tensor | None = None,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV; gates are logits, out_gate_BHT and in_gate_BHS."""
    v = v if in_gate_logit is None else v * in_gate_logit.sigmoid()[..., None]
    if norm_eps is None:
        return weights(q, k, scale, variant, clamp, out_gate_logit).to(v.dtype) @ v
    e_BHTS, m_BHT1 = kernel(q, k, scale, variant, clamp)
    e_BHTS = e_BHTS if out_gate_logit is None else e_BHTS * out_gate_logit.sigmoid()[..., None]
    return norm(e_BHTS @ ops.wide(v), m_BHT1, variant, norm_eps, norm_weight, norm_bias).to(v.dtype)


attend.reference = attend


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 16
        rope: bool = True
        variant: str = "rmsnorm"
        clamp: float | None = 5.0  # None: no clamp

        def __post_init__(self):
            if self.variant not in VARIANTS:
                raise ValueError(f"variant={self.variant!r} is none of {', '.join(VARIANTS)}")
            if self.clamp is None and self.variant in ("div_n", "gate", "div_n_gate"):
                raise ValueError(f"variant={self.variant!r} overflows unless clamp is a number")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.variant, self.clamp = self.head_dim**-0.5, cfg.variant, cfg.clamp
        self.norm_eps = NORM_EPS.get(cfg.variant)
        ln, rms = cfg.variant.endswith("layernorm"), cfg.variant.endswith("rmsnorm")
        self.norm_weight = nn.Parameter(torch.ones(self.head_dim)) if ln or rms else None
        self.norm_bias = nn.Parameter(torch.zeros(self.head_dim)) if ln else None
        self.out_gate = ops.linear(d_model, cfg.heads, bias=True) if cfg.variant in GATED else None
        self.in_gate = ops.linear(d_model, cfg.heads, bias=True) if cfg.variant.startswith("in_") else None

    def project(self, x_BTD: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and the values with their gate on."""
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        return q_BHTK, k_BHTK, v_BHTV if self.in_gate is None else v_BHTV * self.in_gate(x_BTD).sigmoid().mT[..., None]

    def gates(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        return () if self.out_gate is None else (self.out_gate(x_BTD).mT,)

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor, *out_gate: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.variant, self.clamp, *out_gate).to(q_BHTK.dtype)

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, *out_gate: Tensor) -> Tensor:
        norm = (self.norm_eps, self.norm_weight, self.norm_bias)
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.variant, self.clamp, *norm, *out_gate)

    def weights(self, x_BTD: Tensor) -> Tensor | None:
        return super().weights(x_BTD) if self.norm_eps is None else None
