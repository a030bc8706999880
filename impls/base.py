"""The one interface that every mechanism implements.

Axis letters, used as name suffixes and as einsum indices alike:
B batch · T query time · S key time · D model width · H heads · K key width · V value width

Three bases, all final below them: `TokenMixer` (any causal map; right by default, slow to decode), `ScoreMixer`
(scores over a key–value cache) and `RecurrentMixer` (a state of fixed size). Position, packing and padding stay
outside: rows of one batch have one length, and a mixer that wants positions applies them itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from impls import kernels, ops


class TokenMixer(nn.Module, ABC):
    """A causal map x_BTD -> y_BTD: y[:, t] depends on x[:, :t+1] only."""

    @abstractmethod
    def forward(self, x_BTD: Tensor) -> Tensor:
        """Mix the tokens of each row; T >= 1 of any value."""

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Any]:
        """(y_BTD, state after T tokens). Here the state is the prefix itself."""
        return self(x_BTD), x_BTD

    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(y_BD, next state) for one more token. Here the prefix is replayed: slow, never wrong."""
        x_BTD = torch.cat([state, x_BD[:, None]], dim=1)
        return self(x_BTD)[:, -1], x_BTD

    def weights(self, x_BTD: Tensor) -> Tensor | None:
        """A_BHTS with head output = A @ values, where the paper defines one; else None."""
        return None

    def packed(self, x_BTD: Tensor, lengths: list[int]) -> Tensor:
        """y_BTD of rows that each hold documents of these lengths in turn: no document sees another.

        Raises ValueError when the lengths do not add up to T.
        """
        if sum(lengths) != x_BTD.shape[1] or min(lengths) < 1:
            raise ValueError(f"document lengths {lengths} do not add up to T={x_BTD.shape[1]}")
        return torch.cat([self(document) for document in x_BTD.split(lengths, dim=1)], dim=1)


class Cache(NamedTuple):
    """Keys and values of all tokens so far."""

    k_BHSK: Tensor
    v_BHSV: Tensor


class ScoreMixer(TokenMixer):
    """Multi-head attention whose head output is a weighted sum of the values, cached when decoding.

    A mechanism gives `attention` (the weights) and, where values need not pass through A, overrides `mix`.
    """

    rows = 64  # queries that `mix` takes at once

    def __init__(self, d_model: int, heads: int, *, rope: bool):
        super().__init__()
        self.heads, self.rope = heads, rope
        self.head_dim = ops.head_dim(d_model, heads)
        self.qkv = ops.linear(d_model, 3 * d_model)
        self.out = ops.linear(d_model, d_model)

    @abstractmethod
    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor, *gates: Tensor) -> Tensor:
        """A_BHTS of the last T of S positions: row t sees keys s <= t + S - T."""

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, *gates: Tensor) -> Tensor:
        """y_BHTV; the queries are the last T of the S positions. Some rows at a time, with the keys that they may see:
        half of all pairs are never made where T is many rows."""
        if kernels.usable(q_BHTK, k_BHSK, v_BHSV):
            whole_BHTV = self.fused(q_BHTK, k_BHSK, v_BHSV, *gates)
            if whole_BHTV is not None:
                return whole_BHTV
        T, S, y_BHTV = q_BHTK.shape[2], k_BHSK.shape[2], []
        for first in range(0, T, self.rows):
            last = min(first + self.rows, T)
            near = (z[:, :, first:last] if z.dim() > 2 else z for z in gates)
            seen = S - T + last
            A_BHTS = self.attention(q_BHTK[:, :, first:last], k_BHSK[:, :, :seen], *near)
            y_BHTV.append(A_BHTS @ v_BHSV[:, :, :seen])
        return torch.cat(y_BHTV, dim=2)

    def fused(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, *gates: Tensor) -> Tensor | None:
        """y_BHTV all at once, where `attend` has a kernel; asked only of tensors that kernels take."""
        return None

    def gates(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        """What `attention` and `mix` need of the query tokens beside q, such as a gate_BHT; nothing here."""
        return ()

    def project(self, x_BTD: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of tokens that stand at positions start, start + 1, …"""
        q_BHTK, k_BHTK, v_BHTV = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        if self.rope:
            q_BHTK, k_BHTK = ops.rope(q_BHTK, start), ops.rope(k_BHTK, start)
        return q_BHTK, k_BHTK, v_BHTV

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.out(ops.merge_heads(self.mix(*self.project(x_BTD), *self.gates(x_BTD))))

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Cache]:
        q_BHTK, k_BHTK, v_BHTV = self.project(x_BTD)
        y_BHTV = self.mix(q_BHTK, k_BHTK, v_BHTV, *self.gates(x_BTD))
        return self.out(ops.merge_heads(y_BHTV)), Cache(k_BHTK, v_BHTV)

    def step(self, x_BD: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        x_B1D = x_BD[:, None]
        q_BH1K, k_BH1K, v_BH1V = self.project(x_B1D, start=state.k_BHSK.shape[2])
        cache = Cache(torch.cat([state.k_BHSK, k_BH1K], dim=2), torch.cat([state.v_BHSV, v_BH1V], dim=2))
        return self.out(ops.merge_heads(self.mix(q_BH1K, *cache, *self.gates(x_B1D))))[:, 0], cache

    def weights(self, x_BTD: Tensor) -> Tensor | None:
        q_BHTK, k_BHTK, _ = self.project(x_BTD)
        return self.attention(q_BHTK, k_BHTK, *self.gates(x_BTD))


class RecurrentMixer(TokenMixer):
    """A mixer whose paper gives a recurrence over a state that does not grow: transcribe it as `step`.

    That is enough to be right. Where the final state has a closed form, `prefill` gives it, and with it `forward`.
    """

    @abstractmethod
    def init_state(self, batch: int) -> Any:
        """The state before the first token, on the device of the weights, sums in float32 or wider."""

    @abstractmethod
    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(y_BD, next state) by the paper's recurrence."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.prefill(x_BTD)[0]

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Any]:
        """(y_BTD, state after T tokens). Here `step`, folded: slow, never wrong."""
        state = self.init_state(x_BTD.shape[0])
        y_BTD = []
        for x_BD in x_BTD.unbind(1):
            y_BD, state = self.step(x_BD, state)
            y_BTD.append(y_BD)
        return torch.stack(y_BTD, dim=1), state
