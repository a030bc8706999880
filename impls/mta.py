"""Multi-token attention. Golovneva, Wang, Weston and Sukhbaatar 2025, "Multi-Token Attention", arXiv:2504.00927.

The steps of the released language models (facebookresearch/RAM, projects/mta/mta_transformer.py), in order:

    1. S = q . k / sqrt(K)
    2. S <- convolution over (queries, keys) of S, zero where s > t, a kernel [cq, ck] a head:
       S_ts <- sum_{a,b} theta_h[a,b] S[t - (cq-1) + a, s - (ck-1)/2 + b]
    3. S_g <- sum_h M_gh S_h                              mixing of heads before the softmax
    4. A = softmax over s <= t
    5. A <- convolution like 2 with kernel theta', then zero where s > t
    6. A_g <- sum_h A_h M'_hg                             mixing of heads after the softmax
    7. z = RMSNorm(A v) over the width of a head
    8. y = z sigmoid(w . z + b)                           one gate for all heads of the layer

Kernels and mixings start as the identity, so A starts as softmax's and y as half its norm. Row t of step 5 needs the
scores of the queries t - 2(cq-1), …, t: decoding keeps that many queries beside keys and values.

Differs from the paper: steps 2 and 5 are in every layer (`convolve`), there in every fourth; all heads mix, there in
groups of 16, which is all heads; rotary base 1e4, there 1e5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from impls import ops
from impls.base import ScoreMixer

FOLD = 8  # keys to a pixel
ROWS = 128  # queries whose weights are made at once


def convolve(s_BHTS: Tensor, kernel: Tensor) -> Tensor:
    """Step 2 or 5 with a kernel [H,cq,ck], ck odd. Future entries count as zero: no row sees a later key.

    FOLD keys side by side become the channels F of one pixel N, and the kernel a band over the pixels that it reaches:
    on a CPU that is more than twice as fast as a convolution with one channel a head.
    """
    (H, cq, ck), S = kernel.shape, s_BHTS.shape[-1]
    reach = -(-(ck // 2) // FOLD)  # pixels to either side
    to_right = reach * FOLD + -S % FOLD
    s_BHTNF = pad(ops.hide(s_BHTS, 0.0), (reach * FOLD, to_right, cq - 1, 0)).unflatten(-1, (-1, FOLD))
    s_BXTN = s_BHTNF.permute(0, 1, 4, 2, 3).flatten(1, 2).contiguous(memory_format=torch.channels_last)
    key_I, key_F = (torch.arange(n, device=kernel.device) for n in ((2 * reach + 1) * FOLD, FOLD))
    tap_IF = key_I[:, None] - reach * FOLD - key_F + ck // 2
    band_HQIF = kernel.to(s_BHTS.dtype)[:, :, tap_IF.clamp(0, ck - 1)] * ((tap_IF >= 0) & (tap_IF < ck))
    band_XFQN = band_HQIF.unflatten(2, (-1, FOLD)).permute(0, 4, 3, 1, 2).flatten(0, 1)
    return conv2d(s_BXTN, band_XFQN, groups=H).unflatten(1, (H, FOLD)).permute(0, 1, 3, 4, 2).flatten(3)[..., :S]


def weights(
    q: Tensor,
    k: Tensor,
    scale: float,
    kq_kernel_pre: Tensor | None = None,
    head_mix_pre: Tensor | None = None,
    kq_kernel_post: Tensor | None = None,
    head_mix_post: Tensor | None = None,
) -> Tensor:
    """A_BHTS of steps 1 to 6, a step with an absent tensor skipped; queries before the first given count as zero."""
    s_BHTS = ops.wide(ops.scores(q, k, scale))
    if kq_kernel_pre is not None:
        s_BHTS = convolve(s_BHTS, kq_kernel_pre)
    if head_mix_pre is not None:
        s_BHTS = torch.einsum("gh,bhts->bgts", head_mix_pre.to(s_BHTS.dtype), s_BHTS)
    A_BHTS = ops.causal_softmax(s_BHTS)
    if kq_kernel_post is not None:
        A_BHTS = ops.hide(convolve(A_BHTS, kq_kernel_post), 0.0)
    if head_mix_post is not None:
        A_BHTS = torch.einsum("bhts,hg->bgts", A_BHTS, head_mix_post.to(A_BHTS.dtype))
    return A_BHTS.to(q.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    kq_kernel_pre: Tensor | None = None,
    head_mix_pre: Tensor | None = None,
    kq_kernel_post: Tensor | None = None,
    head_mix_post: Tensor | None = None,
) -> Tensor:
    """A v of steps 1 to 6: y_BHTV of q_BHTK, k_BHSK, v_BHSV. Kernels are [H,cq,ck], mixings [H,H]."""
    return weights(q, k, scale, kq_kernel_pre, head_mix_pre, kq_kernel_post, head_mix_post) @ v


attend.reference = attend


class Window(NamedTuple):
    """Keys and values of all tokens so far, and the queries of the last ones."""

    k_BHSK: Tensor
    v_BHSV: Tensor
    q_BHTK: Tensor


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 16
        rope: bool = True
        convolve: bool = True  # steps 2 and 5
        queries: int = 6  # cq
        keys: int = 11  # ck

        def __post_init__(self):
            if self.queries < 1 or self.keys < 1 or self.keys % 2 == 0:
                raise ValueError(f"queries={self.queries} must be positive and keys={self.keys} odd and positive")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=cfg.rope)
        self.scale, self.reach = self.head_dim**-0.5, 2 * (cfg.queries - 1) if cfg.convolve else 0
        identity = torch.zeros(cfg.heads, cfg.queries, cfg.keys)
        identity[:, -1, cfg.keys // 2] = 1
        self.kernel_pre = nn.Parameter(identity.clone()) if cfg.convolve else None
        self.kernel_post = nn.Parameter(identity.clone()) if cfg.convolve else None
        self.mix_pre, self.mix_post = nn.Parameter(torch.eye(cfg.heads)), nn.Parameter(torch.eye(cfg.heads))
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5)
        self.gate = nn.Linear(self.head_dim, 1)
        nn.init.trunc_normal_(self.gate.weight, std=d_model**-0.5)

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return weights(q_BHTK, k_BHSK, self.scale, self.kernel_pre, self.mix_pre, self.kernel_post, self.mix_post)

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        """Some rows at a time, after the `reach` rows before them, which step 5 needs and which are then left out."""
        T, S, z_BHTV = q_BHTK.shape[2], k_BHSK.shape[2], []
        for first in range(0, T, ROWS):
            last, earlier = min(first + ROWS, T), min(first, self.reach)
            seen = S - T + last
            A_BHTS = self.attention(q_BHTK[:, :, first - earlier : last], k_BHSK[:, :, :seen])
            z_BHTV.append(A_BHTS[:, :, earlier:] @ v_BHSV[:, :, :seen])
        z_BHTV = self.norm(torch.cat(z_BHTV, dim=2))
        return z_BHTV * self.gate(z_BHTV).sigmoid()

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Window]:
        q_BHTK, k_BHTK, v_BHTV = self.project(x_BTD)
        return self(x_BTD), Window(k_BHTK, v_BHTV, self.last(q_BHTK, self.reach))

    def step(self, x_BD: Tensor, state: Window) -> tuple[Tensor, Window]:
        new = self.project(x_BD[:, None], start=state.k_BHSK.shape[2])
        old = (state.q_BHTK, state.k_BHSK, state.v_BHSV)
        q_BHTK, k_BHSK, v_BHSV = (torch.cat(pair, dim=2) for pair in zip(old, new, strict=True))
        y_BH1V = self.mix(q_BHTK, k_BHSK, v_BHSV)[:, :, -1:]
        return self.out(ops.merge_heads(y_BH1V))[:, 0], Window(k_BHSK, v_BHSV, self.last(q_BHTK, self.reach))

    @staticmethod
    def last(q_BHTK: Tensor, n: int) -> Tensor:
        """The last n of the queries, or all if they are fewer."""
        return q_BHTK[:, :, max(q_BHTK.shape[2] - n, 0) :]
