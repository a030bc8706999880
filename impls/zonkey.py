"""Probabilistic attention. Rozental 2026, "Zonkey: A Hierarchical Diffusion Language Model with Differentiable
Tokenization and Probabilistic Attention", arXiv:2601.21768.

Every token q has a probability p_q of existing, in [0, 1] and not increasing along the text:

    A_qk = softmax_k(q_q . k_k / sqrt(K) + bias_qk),    bias_qk = log p_k - log p_q for k > q, else 0
    keys with p = 0 are left out, rows with p = 0 are zero,    y_q = sum_k A_qk v_k

VACUOUS IN A CAUSAL MODEL: the bias touches keys after the query alone, so under a causal mask nothing of it is left and
`Mixer`, which has to be causal, is softmax attention to the letter; the released causal layer (ARozental/Zonkey,
models/transformer.py: DecoderAttention) is plain attention too. `attend` is the mechanism itself, bidirectional, as in
ProbabilisticAttention there, and is what the tests and the property check look at.

Differs from the paper: the splitter that makes p, the diffusion over latents and the optional output gate are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from impls import ops
from impls.base import ScoreMixer

LEAST = 1e-20  # p below this has its logarithm


def weights(q: Tensor, k: Tensor, existence: Tensor, scale: float, causal: bool = False) -> Tensor:
    """A_BHTS of q_BHTK, k_BHSK and existence_BS; the queries are the last T of the S positions."""
    T, S = q.shape[-2], k.shape[-2]
    earlier_TS = ops.causal(T, S, q.device)
    log_p_BS = ops.wide(existence).clamp(min=LEAST).log()
    bias_BTS = (log_p_BS[:, None, :] - log_p_BS[:, S - T :, None]).masked_fill(earlier_TS, 0.0)
    dead_BS = existence == 0
    dead_BT1 = dead_BS[:, S - T :, None]
    s_BHTS = ops.wide(ops.scores(q, k, scale)) + bias_BTS[:, None]
    s_BHTS = s_BHTS.masked_fill((dead_BS[:, None, :] & ~dead_BT1)[:, None], float("-inf"))
    A_BHTS = ops.causal_softmax(s_BHTS) if causal else s_BHTS.softmax(dim=-1)
    return A_BHTS.masked_fill(dead_BT1[:, None], 0.0).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, existence: Tensor, scale: float, causal: bool = False) -> Tensor:
    """y_BHTV of q_BHTK, k_BHSK, v_BHSV and existence_BS."""
    return weights(q, k, existence, scale, causal) @ v


attend.reference = attend


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale = self.head_dim**-0.5

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, k_BHSK.new_ones(k_BHSK.shape[0], k_BHSK.shape[2]), self.scale, causal=True)
