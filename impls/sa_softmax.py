"""Self-adjust softmax. Zheng et al. 2025, "Self-Adjust Softmax", arXiv:2502.18277.

With s_ts = scale q_t . k_s and p_ts = softmax_s(s_ts) over the visible keys s <= t:

    v1  A_ts = s_ts p_ts
    v2  A_ts = p_ts (s_ts - lo_t) / (hi_t - lo_t),  lo_t = min(min_s s_ts, 0),  hi_t = max(max_s s_ts, 0)
    y_t = sum_{s<=t} A_ts v_s

The forms are those of the abstract; v2 is what HKUDS/SepLLM (authors in common; Training-SepLLM, USE_SA_SOFTMAX) trains
with. Rows of v1 can sum to anything, rows of v2 to something in [0, 1]; the first row of v2 is 1 or 0.

Differs from the released code: `eps`, there 1e-10 and added to hi - lo up to twice, is added once and is 0 by default;
a row whose scores are all 0 (0/0 in v2), or within 1e-30 of it, is a row of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map

FLAT = 1e-30  # hi - lo below this is taken for 0: its inverse would overflow in the gradient
VARIANTS = ("v1", "v2")


def weights(q: Tensor, k: Tensor, scale: float, variant: str, eps: float) -> Tensor:
    """A_BHTS; masked scores are 0 outside the softmax, which is neutral in lo and hi, and never -inf times 0."""
    s_BHTS = ops.hide(ops.wide(ops.scores(q, k, scale)), 0.0)
    p_BHTS = ops.causal_softmax(s_BHTS)
    if variant == "v1":
        return (s_BHTS * p_BHTS).to(q.dtype)
    lo_BHT1 = s_BHTS.amin(dim=-1, keepdim=True).clamp(max=0)
    span_BHT1 = s_BHTS.amax(dim=-1, keepdim=True).clamp(min=0) - lo_BHT1 + eps
    lift_BHTS = (s_BHTS - lo_BHT1) / torch.where(span_BHT1 > FLAT, span_BHT1, 1.0)
    return (lift_BHTS * p_BHTS).to(q.dtype)


@dispatched(score_map.sa_softmax)
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, variant: str, eps: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, variant, eps) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        variant: str = "v2"  # or "v1"
        eps: float = 0.0  # added to hi - lo

        def __post_init__(self):
            if self.variant not in VARIANTS:
                raise ValueError(f"variant={self.variant!r} is none of {', '.join(VARIANTS)}")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.variant, self.eps = self.head_dim**-0.5, cfg.variant, cfg.eps

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.variant, self.eps)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.variant, self.eps)
