"""2Mamba and 2Mamba-E. Mongaras and Larson 2026, "2Mamba2Furious: Linear in Complexity, Competitive in Accuracy",
arXiv:2602.17363.

    L_ts = exp(a_{s+1} + ... + a_t),   a_t = -softplus(W_a x_t)         one number a head
    y_t  = sum_{s<=t} f(q_t . k_s / sqrt(K)) L_ts v_s / sum_{s<=t} f(q_t . k_s / sqrt(K)) L_ts      Algorithm 5
    f(s) = s^2 (2Mamba) or exp(s) (2Mamba-E)

The square is an inner product of K(K+1)/2 channels, so that 2Mamba has a state of fixed size (Algorithm 6). Up to
ALONE tokens are taken together as in Algorithm 5, longer inputs carry that state. 2Mamba-E has none and keeps its keys.
q, k and v come from one projection and pass a causal convolution of width 2 with bias and no activation.

Differs from the paper: a row whose squares are all 0 gives 0, not the plain sum of the values of the released code
(gmongaras/2Mamba2Furious). Both forget half at each token at the start; `forget` starts it elsewhere, by a learned bias
of a that the paper does not have.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from impls import ops
from impls.base import RecurrentMixer, TokenMixer
from impls.convs import conv_weight, short_conv
from impls.parts import forget_bias, second_order, with_one

ALONE, CHUNK = 256, 64  # up to 256 tokens pairs cost less than the state of a head of width 32, 528 channels
TINY = 1e-30  # smaller than any sum of squares that float32 resolves


def reference(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, scale: float, power: str) -> Tensor:
    """y_BHTV by Algorithm 5, all pairs at once: decays as sums over s+1..t, and exp shifted by the row's maximum."""
    after_TS = torch.ones(q.shape[2], q.shape[2], dtype=q.dtype, device=q.device).tril(-1)
    since_BHTS = torch.ones_like(after_TS).tril() @ (log_decay[..., None] * after_TS)
    s_BHTS = ops.scores(q, k, scale)
    if power == "exp":
        return ops.causal_softmax(s_BHTS + since_BHTS).to(v.dtype) @ v
    A_BHTS = s_BHTS.square() * since_BHTS.exp().tril()
    return (A_BHTS @ v) / A_BHTS.sum(dim=-1, keepdim=True).clamp_min(TINY)


def since(sum_BHT: Tensor, sum_BHS: Tensor) -> Tensor:
    """a_{s+1} + ... + a_t for s <= t, of running sums in float64: there a difference keeps the small terms."""
    return (sum_BHT[..., :, None] - sum_BHS[..., None, :]).clamp(max=0)


def square_scan(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """(y_BHTV, S_T) of y_t = sum_{s<=t} (q_t . k_s)^2 L_ts v_s with S over `second_order` channels.

    S costs as much as all else where one chunk holds everything, and is None then unless it is to be kept.
    """
    with ops.no_autocast(q):
        T = q.shape[2]
        size = ops.chunk_size(T, ALONE if T <= ALONE else CHUNK)
        q, k, v, a = (ops.chunked(ops.wide(z), size) for z in (q, k, v, log_decay[..., None]))
        sum_BHNC = a.squeeze(-1).double().cumsum(dim=-1)
        y = ((q @ k.mT).square() * since(sum_BHNC, sum_BHNC).to(q.dtype).exp().tril()) @ v
        if state is not None or keep or q.shape[2] > 1:
            to_end, from_start = (z.to(q.dtype).exp()[..., None] for z in (sum_BHNC[..., -1:] - sum_BHNC, sum_BHNC))
            write = (second_order(k) * to_end).mT @ v
            starts, state = ops.carry(from_start[..., -1:, :], write, state, torch.mul)
            y = y + (second_order(q) * from_start) @ starts
        return y.flatten(2, 3)[:, :, :T], state


def ratio(y_BHTV: Tensor) -> Tensor:
    """What was read of the values over what was read of the ones, in the last column; 0 where that is nothing."""
    return y_BHTV[..., :-1] / y_BHTV[..., -1:].clamp_min(TINY)


def exponential(q: Tensor, k: Tensor, a_BHS: Tensor, scale: float) -> Tensor:
    """A_BHTS of 2Mamba-E; the queries are the last T of the S positions."""
    sum_BHS = a_BHS.double().cumsum(dim=-1)
    since_BHTS = since(sum_BHS[..., -q.shape[2] :], sum_BHS).to(a_BHS.dtype)
    return ops.causal_softmax(ops.scores(q, k, scale) + since_BHTS).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, scale: float, power: str) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV and log_decay_BHT <= 0; power is "2" or "exp"."""
    if power == "exp":
        return exponential(q, k, log_decay, scale) @ v
    return ratio(square_scan(q * scale, k, with_one(v), log_decay, None, keep=False)[0]).to(v.dtype)


attend.reference = reference


class State(NamedTuple):
    """2Mamba: the decayed sum over K(K+1)/2 channels; 2Mamba-E: (k, v, a) so far. None at first. Inputs to convolve."""

    memory: Any
    past_BWD: Tensor


class Mixer(TokenMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 8
        power: str = "2"  # or "exp"
        conv: int = 2  # taps of the convolution; 0 where the backbone has one
        forget: float = 0.5  # 1 - exp(a) at the start

        def __post_init__(self):
            if self.power not in ("2", "exp"):
                raise ValueError(f'power={self.power!r} is neither "2" nor "exp"')

    def __new__(cls, d_model: int = 0, cfg: Config | None = None):
        """The layer of cfg.power, by which the state has a fixed size or grows; copies come without arguments."""
        if cls is Mixer and cfg is not None:
            cls = Exponential if cfg.power == "exp" else Squared
        return super().__new__(cls)  # pyright: ignore[reportArgumentType]

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.heads, self.past = cfg.heads, max(cfg.conv - 1, 0)
        self.scale = ops.head_dim(d_model, cfg.heads) ** -0.5
        self.inner = ops.linear(d_model, 3 * d_model + cfg.heads)
        self.conv_DW = conv_weight(3 * d_model, cfg.conv)
        self.conv_bias_D = nn.Parameter(torch.zeros(3 * d_model)) if cfg.conv else None
        self.a_bias_H = forget_bias(cfg.heads, cfg.forget)
        self.out = ops.linear(d_model, d_model)

    @abstractmethod
    def read(self, q: Tensor, k: Tensor, v: Tensor, a_BHT: Tensor, memory: Any, keep: bool) -> tuple[Tensor, Any]:
        """(y_BHTV, memory after these tokens if it is to be kept); memory is None before the first."""

    def run(self, x_BTD: Tensor, state: State, keep: bool = True) -> tuple[Tensor, State]:
        D = x_BTD.shape[-1]
        qkv, a_BTH = self.inner(x_BTD).split([3 * D, self.heads], dim=-1)
        qkv, past_BWD = short_conv(qkv, self.conv_DW, state.past_BWD)
        qkv = qkv if self.conv_bias_D is None else qkv + self.conv_bias_D
        q, k, v = (ops.split_heads(z, self.heads) for z in qkv.chunk(3, dim=-1))
        a_BTH = ops.wide(a_BTH) if self.a_bias_H is None else ops.wide(a_BTH) + self.a_bias_H
        y_BHTV, memory = self.read(q, k, v, -softplus(a_BTH).mT, state.memory, keep)
        return self.out(ops.merge_heads(y_BHTV.to(x_BTD.dtype))), State(memory, past_BWD)

    def init_state(self, batch: int) -> State:
        return State(None, self.out.weight.new_zeros(batch, self.past, 3 * self.out.in_features))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.run(x_BTD, self.init_state(x_BTD.shape[0]), keep=False)[0]

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        return self.run(x_BTD, self.init_state(x_BTD.shape[0]))

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        y_B1D, state = self.run(x_BD[:, None], state)
        return y_B1D[:, 0], state


class Squared(Mixer, RecurrentMixer):
    def read(self, q: Tensor, k: Tensor, v: Tensor, a_BHT: Tensor, memory: Any, keep: bool) -> tuple[Tensor, Any]:
        y_BHTV, S_BHKV = square_scan(q * self.scale, k, with_one(v), a_BHT, memory, keep)
        return ratio(y_BHTV), S_BHKV


class Exponential(Mixer):
    def read(self, q: Tensor, k: Tensor, v: Tensor, a_BHT: Tensor, memory: Any, keep: bool) -> tuple[Tensor, Any]:
        now = (k, v, a_BHT)
        k, v, a_BHS = (torch.cat(z, dim=2) for z in zip(memory, now, strict=True)) if memory else now
        return exponential(q, k, a_BHS, self.scale) @ v, (k, v, a_BHS)
