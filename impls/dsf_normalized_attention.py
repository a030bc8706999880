"""Normalised attention of the dynamical-systems framework. Sieber et al. 2024, "Understanding the differences in
Foundation Models: Attention, State Space Models, and Recurrent Neural Networks", arXiv:2405.15731.

    y_t = (1 / eta_t) sum_{s<=t} (q_t . k_s) v_s,    eta_t = exp(n_t), softplus(n_t) or sigmoid(n_t)
    n_t = w_h . x_t + b_h

As a recurrence: S_t = S_{t-1} + k_t v_t^T,  y_t = S_t^T q_t / eta_t. This is linear attention with identity features
(no 1/sqrt(K), no decay) whose normaliser is a function of the query's token alone, as in the released code
(jsie7/ssm-benchmark, models/transformer.py: MHNA with SelfNormAttention2). It is not arXiv:2005.09561.

Differs from the released code: n is held at -20 or above, so that 1 / eta stays finite; projections have no bias and
start at N(0, 0.02).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

from impls import ops
from impls.base import RecurrentMixer

NORM_FNS = ("exp", "softplus", "sigmoid")


def inverse_norm(norm_logit: Tensor, norm_fn: str) -> Tensor:
    """1 / eta, elementwise."""
    n = ops.wide(norm_logit).clamp(min=-20)
    if norm_fn == "softplus":
        return 1 / softplus(n)
    return (-n).exp() + (1 if norm_fn == "sigmoid" else 0)


def reference(q: Tensor, k: Tensor, v: Tensor, norm_logit: Tensor, norm_fn: str, scale: float) -> Tensor:
    """y_BHTV by the sum as it is written."""
    A_BHTS = ops.scores(q, k, scale).tril() * inverse_norm(norm_logit, norm_fn)[..., None]
    return A_BHTS.to(v.dtype) @ v


def attend(q: Tensor, k: Tensor, v: Tensor, norm_logit: Tensor, norm_fn: str, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV and n_BHT, in chunks; `attend.reference` is the equation."""
    y_BHTV, _ = ops.decay_scan(q * scale, k, v)
    return (y_BHTV * inverse_norm(norm_logit, norm_fn)[..., None]).to(v.dtype)


attend.reference = reference


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 1  # the released default
        norm_fn: str = "exp"  # "exp", "softplus" or "sigmoid"
        scale: float = 1.0

        def __post_init__(self):
            if self.norm_fn not in NORM_FNS:
                raise ValueError(f"norm_fn={self.norm_fn!r} is none of {', '.join(NORM_FNS)}")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.norm_fn, self.scale = cfg.heads, cfg.norm_fn, cfg.scale
        self.head_dim = ops.head_dim(d_model, cfg.heads)
        self.qkv = ops.linear(d_model, 3 * d_model)
        self.norm = ops.linear(d_model, cfg.heads, bias=True)
        self.out = ops.linear(d_model, d_model)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and n_BHT."""
        q_BHTK, k_BHTK, v_BHTV = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return q_BHTK, k_BHTK, v_BHTV, self.norm(x_BTD).mT

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.out(ops.merge_heads(attend(*self.project(x_BTD), self.norm_fn, self.scale)))

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        _, k_BHTK, v_BHTV, _ = self.project(x_BTD)
        return self(x_BTD), ops.wide(k_BHTK).mT @ ops.wide(v_BHTV)

    def init_state(self, batch: int) -> Tensor:
        """S_BHKV in float32 or wider."""
        return ops.wide(self.norm.weight.new_zeros(batch, self.heads, self.head_dim, self.head_dim))

    def step(self, x_BD: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        q_BH1K, k_BH1K, v_BH1V, n_BH1 = self.project(x_BD[:, None])
        S_BHKV = state + ops.wide(k_BH1K).mT @ ops.wide(v_BH1V)
        y_BH1V = ops.wide(q_BH1K) * self.scale @ S_BHKV * inverse_norm(n_BH1, self.norm_fn)[..., None]
        return self.out(ops.merge_heads(y_BH1V.to(x_BD.dtype)))[:, 0], S_BHKV

    def weights(self, x_BTD: Tensor) -> Tensor:
        q_BHTK, k_BHTK, _, n_BHT = self.project(x_BTD)
        inverse = inverse_norm(n_BHT, self.norm_fn)[..., None]
        return (ops.scores(q_BHTK, k_BHTK, self.scale).tril() * inverse).to(x_BTD.dtype)
