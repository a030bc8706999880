"""ReLU attention. Ran-Milo 2026, "Attention Sinks Are Provably Necessary in Softmax Transformers", arXiv:2603.11487.

    A_ts = relu(scale q_t . k_s) / r_t for s <= t,    y_t = sum_s A_ts v_s
    r_t = 1, 1, 2, 3, … (`max(i,1)`, t counted from 0)  or  1 (`none`)

The text calls it non-normalised, which is `none`; the released code (YuvMilo/sinks-are-provably-necessary,
utils/models.py) divides by max(t, 1), one less than the number of visible keys. Both are given.

Differs from the paper: heads have width d_model / heads, not d_model; positions are rotary, the paper has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map

NORMALIZERS = ("max(i,1)", "none")


def weights(q: Tensor, k: Tensor, scale: float, normalizer: str) -> Tensor:
    """A_BHTS >= 0, whose rows sum to anything."""
    T, S = q.shape[-2], k.shape[-2]
    A_BHTS = ops.hide(ops.scores(q, k, scale).relu(), 0.0)
    return A_BHTS if normalizer == "none" else A_BHTS / (ops.visible(T, S, A_BHTS) - 1).clamp(min=1)


@dispatched(score_map.relu_attention)
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, normalizer: str) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV."""
    return weights(q, k, scale, normalizer) @ v


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True  # the paper's model has no positions
        scale: float = 1.0  # the released code does not divide by sqrt(K)
        normalizer: str = "max(i,1)"  # or "none"

        def __post_init__(self):
            if self.normalizer not in NORMALIZERS:
                raise ValueError(f"normalizer={self.normalizer!r} is none of {', '.join(NORMALIZERS)}")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.normalizer = cfg.scale, cfg.normalizer

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.normalizer)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.normalizer)
