"""NAtS-L. "Neural Attention Search Linear: Towards Adaptive Token-Level Hybrid Attention Models", 2026,
arXiv:2602.03681. In one layer each chunk of C = 64 tokens is either kept for softmax attention or absorbed by the state
of Gated DeltaNet (`impls.gated_delta_net`); a routing head decides from the mean of the chunk's inputs:

    type_c = argmax W mean_{t in c} x_t                     0 softmax, 1 linear; the softmax over both trains it
    softmax: t sees s <= t where type(chunk of s) is 0 or s is in t's own chunk; q and k have RMSNorms, no positions
    linear:  the gated delta rule inside a chunk; at its end the state stays if its type is 1, else it becomes the
             chunk's first state, decayed as far
    out = W_o ((w_0 RMSNorm(y_linear) + w_1 RMSNorm(y_softmax)) * swish(W_g x)),   w = softmax(W_w q)

A type is used after its chunk only, so nothing leaks from the tokens that it pools. It gets the gradient of a number
added to the chunk's logits (softmax) or multiplying what it wrote (linear), the types that are not active none. From
automl/NeuralAttentionSearchLinear, src/nats/layers/natsl_attn_gdn.py.

Differs from the paper: routing is for each head of the delta rule, and each of those covers `split` softmax heads; the
code has a number of its own. Decoding replays the prefix, where the paper's cache drops what no head keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm

from impls import ops
from impls.base import TokenMixer
from impls.parts import Trunk

ROWS = 64  # queries whose scores are made at once


def softmax_branch(q: Tensor, k: Tensor, v: Tensor, type_BHN: Tensor, size: int, bias_BHN: Tensor | None) -> Tensor:
    """y_BHTV of scaled q; bias_BHN is added to the logits of each chunk's keys. Some chunks of queries at a time."""
    T, y_BHTV, many = q.shape[2], [], max(ROWS // size, 1) * size
    q, k, v = (pad(z, (0, 0, 0, -T % size)) for z in (q, k, v))
    chunk_N = torch.arange(q.shape[2] // size, device=q.device)
    chunk_S = chunk_N.repeat_interleave(size)
    gone_BHS = torch.where(type_BHN == 0, 0.0, float("-inf")).to(ops.wide(q).dtype)[:, :, chunk_S]
    bias_BHS = None if bias_BHN is None else bias_BHN[:, :, chunk_S]
    for first in range(0, T, many):
        last = min(first + many, q.shape[2])
        own_NS = chunk_N[first // size : last // size, None] == chunk_S[:last]
        bias_BHNS = gone_BHS[:, :, None, :last].masked_fill(own_NS, 0.0)
        bias_BHNS = bias_BHNS if bias_BHS is None else bias_BHNS + bias_BHS[:, :, None, :last]
        s_BHTS = ops.wide(q[:, :, first:last] @ k[:, :, :last].mT)
        s_BHTS = (s_BHTS.unflatten(2, (-1, size)) + bias_BHNS[:, :, :, None]).flatten(2, 3)
        y_BHTV.append(ops.causal_softmax(s_BHTS).to(v.dtype) @ v[:, :, :last])
    return torch.cat(y_BHTV, dim=2)[:, :, :T]


def linear_branch(
    q: Tensor, k: Tensor, v: Tensor, beta_BHT: Tensor, g_BHT: Tensor, commit_BHN: Tensor, size: int
) -> Tensor:
    """y_BHTV of unit q, k: what a chunk writes stays as far as commit (1 or 0) says."""
    return ops.delta_scan(q, k, v, beta_BHT[..., None] * k, g_BHT, chunk=size, commit_BHN=commit_BHN)[0]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chunk_type: Tensor,
    chunk_size: int,
    branch: str,
    scale: float,
    beta: Tensor | None = None,
    log_decay: Tensor | None = None,
    l2_eps: float = 1e-6,
) -> Tensor:
    """y_BHTV of one branch, "softmax" or "linear", which also takes beta_BHT and log_decay_BHT <= 0; type_BHN."""
    if beta is None or log_decay is None or branch == "softmax":
        return softmax_branch(q * scale, k, v, chunk_type, chunk_size, None)
    q, k = (z * (z.square().sum(dim=-1, keepdim=True) + l2_eps).rsqrt() for z in (q, k))
    return linear_branch(q * scale, k, v, beta, log_decay, chunk_type.to(v.dtype), chunk_size)


attend.reference = attend


class Mixer(TokenMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 6  # of the delta rule and of routing
        split: int = 2  # softmax heads for each
        chunk: int = 64  # C
        conv: int = 4  # taps of the convolution; 0 where the backbone has one
        gate: bool = True  # swish output gate
        A: Sequence[float] = (0.0, 16.0)  # decays start as in `impls.gated_delta_net`
        dt: Sequence[float] = (1e-3, 1e-1)

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.trunk = Trunk(d_model, "gdn", cfg.heads, cfg.conv, cfg.gate, cfg.A, cfg.dt)
        self.heads, self.softmax_heads, self.chunk = cfg.heads, cfg.heads * cfg.split, cfg.chunk
        key, value = (ops.head_dim(z, self.softmax_heads) for z in (self.trunk.key, self.trunk.value))
        self.route = ops.linear(d_model, 2 * cfg.heads)
        self.mix = ops.linear(self.trunk.key, 2 * self.softmax_heads)
        self.norm_q_K, self.norm_k_K = nn.Parameter(torch.ones(key)), nn.Parameter(torch.ones(key))
        self.norm_V = nn.Parameter(torch.ones(value))

    def types(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """(type_BHN; active_BHN, 1 with the gradient, when training, of the probability of that type)."""
        x_BNCD = pad(x_BTD, (0, 0, 0, -x_BTD.shape[1] % self.chunk)).unflatten(1, (-1, self.chunk))
        p_BNHX = ops.wide(self.route(x_BNCD.mean(dim=2))).unflatten(-1, (self.heads, 2)).softmax(dim=-1)
        p_BHN, type_BHN = (z.transpose(1, 2) for z in p_BNHX.max(dim=-1))
        return type_BHN, 1 + (p_BHN - p_BHN.detach()) if self.training else torch.ones_like(p_BHN)

    def regroup(self, z_BHTK: Tensor) -> Tensor:
        """The delta rule's heads as softmax heads."""
        return ops.split_heads(ops.merge_heads(z_BHTK), self.softmax_heads)

    def forward(self, x_BTD: Tensor) -> Tensor:
        i = self.trunk.project(x_BTD, self.trunk.zeros(x_BTD.shape[0])[1], 0, unit=False)
        type_BHN, active_BHN = self.types(x_BTD)
        assert i.beta_BHT1 is not None
        commit_BHN = type_BHN * active_BHN
        q, k = ops.unit(i.q), ops.unit(i.k)
        y_BHTV = linear_branch(q, k, i.v, i.beta_BHT1[..., 0], i.log_decay, commit_BHN, self.chunk)
        linear_BHTV = self.regroup(ops.head_norm(y_BHTV, self.trunk.norm_V))
        q, k = (
            rms_norm(self.regroup(z), w.shape, w.to(z.dtype), 1e-5)
            for z, w in ((i.q, self.norm_q_K), (i.k, self.norm_k_K))
        )
        groups = self.softmax_heads // self.heads
        type_BHN, bias_BHN = (z.repeat_interleave(groups, dim=1) for z in (type_BHN, active_BHN - 1))
        y_BHTV = softmax_branch(q * q.shape[-1] ** -0.5, k, self.regroup(i.v), type_BHN, self.chunk, bias_BHN)
        w_BTHX = self.mix(ops.merge_heads(i.q)).unflatten(-1, (self.softmax_heads, 2)).softmax(dim=-1)
        w_BHT1, w_BHT2 = w_BTHX.transpose(1, 2).split(1, dim=-1)
        y_BTV = ops.merge_heads(w_BHT1 * linear_BHTV + w_BHT2 * ops.head_norm(y_BHTV, self.norm_V))
        return self.trunk.gated(y_BTV, i.gate_BTV)
