"""HOLA. Cui 2026, "A Hippocampus for Linear Attention: An Exact Memory for What the Recurrent State Forgets",
arXiv:2607.02303, on Gated DeltaNet (`impls.gated_delta_net`), whose delta rule S it reads as y^state:

    m_t = beta_t |e_t|,   e_t = v_t - a_t S_{t-1}^T k_t           what the state got wrong and was told; no gradient
    V_t = {the w tokens before the block of t with the largest m} + {tokens of that block up to t} + {a null}
    y_t = y^state_t + sigmoid(g_h) sum_{s in V_t} softmax_s(q~_t . k~_s / sqrt(K)) v_s
    q~, k~ = RMSNorm(q), RMSNorm(k) before q and k get unit length; the null has a logit of its own and no value

The norms' weights are shared by the heads; g, -4 at the start, and the null's logit are one number a head. A block has
C = 256 tokens, the cache w = 64; a sequence no longer than C has softmax attention over all of it.
`evict: recency`, the paper's control, keeps the last w tokens instead.

Differs from the paper, or may: it does not say whether q~ and k~ are rotated (here not), where the null's logit starts
(0), whether the sum comes before the norm of the heads (before), nor that the gate is a sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn, take_along_dim
from torch.nn.functional import pad, rms_norm

from impls import ops
from impls.base import RecurrentMixer
from impls.parts import Inputs, Trunk, scan


def importance(k: Tensor, v: Tensor, beta: Tensor, g_BHT: Tensor, before_BHTV: Tensor | None = None) -> Tensor:
    """m_BHT of unit keys; what the decayed state returns for each key is worked out from no state where not given."""
    with torch.no_grad():
        if before_BHTV is None:  # token t reads S_{t-1}: the scan is asked at t - 1
            read_BHTV, _ = ops.delta_scan(pad(k[:, :, 1:], (0, 0, 0, 1)), k, v, beta[..., None] * k, g_BHT)
            before_BHTV = pad(read_BHTV[:, :, :-1], (0, 0, 1, 0)) * g_BHT[..., None].exp()
        return beta * (v - before_BHTV).norm(dim=-1)


def largest(m: Tensor, w: int, *kept: Tensor) -> tuple[Tensor, ...]:
    """The w largest of m_BHS, the earlier of two that are equal, and their rows of each; -inf where nothing is left."""
    missing = max(w - m.shape[-1], 0)
    m, at = pad(m, (0, missing), value=float("-inf")).sort(dim=-1, descending=True, stable=True)
    return m[..., :w], *(take_along_dim(pad(z, (0, 0, 0, missing)), at[..., :w, None], dim=2) for z in kept)


def attention(v: Tensor, s: Tensor, null_H: Tensor) -> Tensor:
    """y [..,T,V] of the logits s [B,H,N,T,S] and a null; -inf hides a key."""
    null = ops.wide(null_H)[:, None, None, None].expand(*s.shape[:-1], 1)
    return torch.cat([s, null], dim=-1).softmax(dim=-1)[..., :-1].to(v.dtype) @ v


def logits(q: Tensor, k: Tensor, m: Tensor) -> Tensor:
    """q . k of scaled q [B,H,N,T,K], -inf at keys whose place is empty."""
    return ops.wide(q @ k.mT) + torch.where(m > float("-inf"), 0.0, float("-inf"))[..., None, :]


def blocks(q: Tensor, k: Tensor, v: Tensor, score: Callable, null_H: Tensor, window: int, size: int) -> Tensor:
    """y_BHTV of the cache's read, all blocks at once; q is scaled, q and k are normed; score is asked for m_BHT."""
    T, size = q.shape[2], min(size, q.shape[2])
    q, k, v = (pad(z, (0, 0, 0, -T % size)) for z in (q, k, v))
    N, S = q.shape[2] // size, q.shape[2]
    q_N, v_N = q.unflatten(2, (N, size)), v.unflatten(2, (N, size))
    s = ops.hide(ops.wide(q_N @ k.unflatten(2, (N, size)).mT), float("-inf"))
    if N > 1:  # the first block has nothing before it
        early_NS = torch.arange(S, device=q.device) < size * torch.arange(N, device=q.device)[:, None]
        m_BHNS = pad(score(), (0, S - T), value=float("-inf"))[:, :, None].where(early_NS, float("-inf"))
        m_BHNS, at_BHNS = m_BHNS.sort(dim=-1, descending=True, stable=True)
        at_BHX1 = at_BHNS[..., :window].flatten(2)[..., None]
        k_old, v_old = (take_along_dim(z, at_BHX1, dim=2).unflatten(2, (N, -1)) for z in (k, v))
        s, v_N = torch.cat([logits(q_N, k_old, m_BHNS[..., :window]), s], dim=-1), torch.cat([v_old, v_N], dim=3)
    return attention(v_N, s, null_H).flatten(2, 3)[:, :, :T]


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    gamma_q: Tensor,
    gamma_k: Tensor,
    sink_logit: Tensor,
    gate_logit: Tensor,
    window: int,
    chunk_size: int,
    cache_scale: float,
    state_scale: float,
    l2_eps: float,
    rms_eps: float,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK as projected, v_BHTV, beta_BHT and log_decay_BHT <= 0, in chunks and blocks."""
    near_q, near_k = rms_norm(q, gamma_q.shape, gamma_q, rms_eps), rms_norm(k, gamma_k.shape, gamma_k, rms_eps)
    q, k = (z / (z.square().sum(dim=-1, keepdim=True) + l2_eps).sqrt() for z in (q, k))
    y_BHTV, _ = ops.delta_scan(q * state_scale, k, v, beta[..., None] * k, log_decay)
    score = partial(importance, k, v, beta, log_decay)
    cache_BHTV = blocks(near_q * cache_scale, near_k, v, score, sink_logit, window, chunk_size)
    return y_BHTV + gate_logit.sigmoid()[:, None, None] * cache_BHTV


attend = reference
attend.reference = reference


class State(NamedTuple):
    """Gated DeltaNet's state; m, k~ and v of w places for the cache and C for the block, empty where m = -inf."""

    S_BHKV: Tensor
    past_BWD: Tensor
    m_BHX: Tensor
    k_BHXK: Tensor
    v_BHXV: Tensor
    position: int


class Mixer(RecurrentMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 4
        window: int = 64  # w
        block: int = 256  # C
        evict: str = "betae"  # or "recency"
        gate_logit: float = -4.0  # g at the start
        conv: int = 4  # taps of the convolution; 0 where the backbone has one
        gate: bool = True  # swish output gate
        A: Sequence[float] = (0.0, 16.0)  # decays start as in `impls.gated_delta_net`
        dt: Sequence[float] = (1e-3, 1e-1)

        def __post_init__(self):
            if self.evict not in ("betae", "recency"):
                raise ValueError(f"evict={self.evict!r} is neither betae nor recency")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.trunk = Trunk(d_model, "gdn", cfg.heads, cfg.conv, cfg.gate, cfg.A, cfg.dt)
        self.window, self.block, self.recency = cfg.window, cfg.block, cfg.evict == "recency"
        K = self.trunk.key // cfg.heads
        self.norm_q_K, self.norm_k_K = nn.Parameter(torch.ones(K)), nn.Parameter(torch.ones(K))
        self.null_H = nn.Parameter(torch.zeros(cfg.heads))
        self.gate_logit_H = nn.Parameter(torch.full((cfg.heads,), cfg.gate_logit))

    def project(self, x_BTD: Tensor, past_BWD: Tensor) -> tuple[Inputs, Tensor, Tensor, Tensor]:
        """Gated DeltaNet's inputs, q~ scaled, k~, and the gate_H11."""
        i = self.trunk.project(x_BTD, past_BWD, 0, unit=False)
        q, k = (rms_norm(z, w.shape, w.to(z.dtype), 1e-6) for z, w in ((i.q, self.norm_q_K), (i.k, self.norm_k_K)))
        gate_H11 = self.gate_logit_H.sigmoid()[:, None, None].to(q.dtype)
        return i._replace(q=ops.unit(i.q), k=ops.unit(i.k)), q * q.shape[-1] ** -0.5, k, gate_H11

    def score(self, i: Inputs, start: int, before_BHTV: Tensor | None) -> Tensor:
        """m_BHT by which tokens stay in the cache."""
        if self.recency or i.beta_BHT1 is None:
            return torch.arange(start, start + i.k.shape[2], device=i.k.device).to(i.log_decay).expand_as(i.log_decay)
        return importance(i.k, i.v, i.beta_BHT1[..., 0], i.log_decay, before_BHTV)

    def read(self, x_BTD: Tensor) -> tuple[Tensor, Inputs, Tensor, Tensor]:
        """y_BTD, the inputs, k~ and the state S_T."""
        i, q, k, gate_H11 = self.project(x_BTD, self.trunk.zeros(x_BTD.shape[0])[1])
        y_BHTV, S_BHKV = scan(i, None)
        score = partial(self.score, i, 0, None)
        y_BHTV = y_BHTV + gate_H11 * blocks(q, k, i.v, score, self.null_H, self.window, self.block)
        return self.trunk.finish(y_BHTV, i.gate_BTV), i, k, S_BHKV

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.read(x_BTD)[0]

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        y_BTD, i, k, S_BHKV = self.read(x_BTD)
        T, m_BHT = x_BTD.shape[1], self.score(i, 0, None)
        n = T - T % self.block
        old = largest(m_BHT[:, :, :n], self.window, k[:, :, :n], i.v[:, :, :n])
        slots = (torch.cat([a, b[:, :, n:]], dim=2) for a, b in zip(old, (m_BHT, k, i.v), strict=True))
        return y_BTD, State(S_BHKV, i.past_BWD, *self.room(*slots), T)

    def room(self, m_BHX: Tensor, k_BHXK: Tensor, v_BHXV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same with empty places up to w + C."""
        empty = self.window + self.block - m_BHX.shape[2]
        k_BHXK, v_BHXV = (pad(z, (0, 0, 0, empty)) for z in (k_BHXK, v_BHXV))
        return pad(m_BHX, (0, empty), value=float("-inf")), k_BHXK, v_BHXV

    def init_state(self, batch: int) -> State:
        S_BHKV, past_BWD = self.trunk.zeros(batch)
        none_BHXK, none_BHXV = S_BHKV.mT[:, :, :0], S_BHKV[:, :, :0]
        return State(S_BHKV, past_BWD, *self.room(none_BHXK[..., 0], none_BHXK, none_BHXV), 0)

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        i, q, k, gate_H11 = self.project(x_BD[:, None], state.past_BWD)
        before_BH1V = i.log_decay.exp()[..., None] * (i.k.to(state.S_BHKV.dtype) @ state.S_BHKV)
        y_BH1V, S_BHKV = scan(i, state.S_BHKV)
        new = (self.score(i, state.position, before_BH1V), k, i.v)
        at = self.window + state.position % self.block
        kept = (state.m_BHX, state.k_BHXK, state.v_BHXV)
        m, k, v = (torch.cat([z[:, :, :at], n, z[:, :, at + 1 :]], dim=2) for z, n in zip(kept, new, strict=True))
        s = logits(q[:, :, None], k[:, :, None], m[:, :, None])
        cache_BH1V = attention(v[:, :, None], s, self.null_H)[:, :, 0]
        if at + 1 == self.window + self.block:
            m, k, v = self.room(*largest(m, self.window, k, v))
        y_BD = self.trunk.finish(y_BH1V + gate_H11 * cache_BH1V, i.gate_BTV)[:, 0]
        return y_BD, State(S_BHKV, i.past_BWD, m, k, v, state.position + 1)
