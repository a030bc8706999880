"""Softmax attention. Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762.

    y_t = sum_{s<=t} softmax_s(q_t . k_s / sqrt(K)) v_s                                        eq. 1, causal (§3.2.3)

Differs from the paper: positions are rotary (arXiv:2104.09864), not added sinusoids, as in today's decoders.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map


def weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """A_BHTS = softmax over the visible keys; the queries are the last T of the S positions."""
    mask_TS = ops.causal(q.shape[-2], k.shape[-2], q.device)
    return ops.scores(q, k, scale).masked_fill(~mask_TS, float("-inf")).softmax(dim=-1)


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV by eq. 1 as it is written."""
    return weights(q, k, scale) @ v


@dispatched(score_map.softmax)
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV by fused attention, torch's or `score_map`'s. `attend.reference` is eq. 1."""
    T, S = q.shape[-2], k.shape[-2]
    if T == S:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return scaled_dot_product_attention(q, k, v, attn_mask=ops.causal(T, S, q.device), scale=scale)


attend.reference = reference


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8  # h; the paper's base model has 8 at width 512
        rope: bool = True  # the paper adds sinusoids to the embedding instead

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale)

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale)
