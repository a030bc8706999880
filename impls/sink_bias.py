"""Softmax with a learned sink. Gu et al. 2024, "When Attention Sink Emerges in Language Models", arXiv:2410.10781.

With s_ts = scale q_t . k_s, one more column takes part in every row's softmax and is dropped from the weights:

    logit      A_ts = exp(s_ts) / (exp(b_h) + sum_{r<=t} exp(s_tr)),  y_t = sum_{s<=t} A_ts v_s
    key        the column's score is scale q_t . k*_h, its value is 0              (the paper's K biases)
    key_value  the same, and its weight times v*_h is added to y_t                 (the paper's KV biases)

`logit` is not in the paper: it is the sink of GPT-OSS (transformers, models/gpt_oss), one number b_h a head, used as
it is. The key forms follow sail-sg/Attention-Sink, lit_gpt/model_kv_bias.py: k* and v* are drawn from N(0, 0.02) and
k* is not rotated.

Differs from the paper: b starts at N(0, 0.02) like the other forms (the start in GPT-OSS's training is not public).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer
from impls.kernels import dispatched, score_map

FORMS = ("logit", "key", "key_value")


def sink_and_weights(q: Tensor, k: Tensor, scale: float, sink_BHT1: Tensor) -> tuple[Tensor, Tensor]:
    """(weight of the sink_BHT1, A_BHTS) of one softmax over both."""
    s_BHTS = ops.hide(ops.scores(q, k, scale), float("-inf"))
    joint = torch.cat([sink_BHT1.to(s_BHTS.dtype), s_BHTS], dim=-1).softmax(dim=-1)
    return joint[..., :1], joint[..., 1:]


def sink_scores(q: Tensor, scale: float, sink_logit: Tensor | None, sink_key: Tensor | None) -> Tensor:
    """The sink's logit_BHT1 from sink_logit [H] or sink_key [H,K]; exactly one is given."""
    if sink_key is not None:
        return torch.einsum("bhtk,hk->bht", q * scale, sink_key.to(q.dtype))[..., None]
    assert sink_logit is not None
    return sink_logit[None, :, None, None].expand(*q.shape[:3], 1)


def weights(
    q: Tensor, k: Tensor, scale: float, sink_logit: Tensor | None = None, sink_key: Tensor | None = None
) -> Tensor:
    """A_BHTS of the tokens; a row sums to 1 minus the sink's weight."""
    return sink_and_weights(q, k, scale, sink_scores(q, scale, sink_logit, sink_key))[1]


@dispatched(score_map.sink_bias)
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    sink_logit: Tensor | None = None,
    sink_key: Tensor | None = None,
    sink_value: Tensor | None = None,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV; sink_logit [H] or sink_key [H,K], with it sink_value [H,V] or 0."""
    sink_BHT1, A_BHTS = sink_and_weights(q, k, scale, sink_scores(q, scale, sink_logit, sink_key))
    y_BHTV = A_BHTS @ v
    return y_BHTV if sink_value is None else y_BHTV + sink_BHT1 * sink_value[:, None].to(v.dtype)


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True
        form: str = "key"  # "key", "key_value" or "logit"

        def __post_init__(self):
            if self.form not in FORMS:
                raise ValueError(f"form={self.form!r} is none of {', '.join(FORMS)}")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5

        def draw(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * 0.02)

        self.sink_logit = draw(cfg.heads) if cfg.form == "logit" else None
        self.sink_key = draw(cfg.heads, self.head_dim) if cfg.form != "logit" else None
        self.sink_value = draw(cfg.heads, self.head_dim) if cfg.form == "key_value" else None

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.sink_logit, self.sink_key)

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        return attend(q_BHTK, k_BHSK, v_BHSV, self.scale, self.sink_logit, self.sink_key, self.sink_value)
