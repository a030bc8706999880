"""Softmax attention as a sum of recurrent networks. Mongaras and Larson 2025, "On the Expressiveness of Softmax
Attention: A Recurrent Neural Network Perspective", arXiv:2507.23632.

    exp(s_ts) = sum_n s_ts^n / n!,    s_ts = q_t . k_s / sqrt(K)                                                  (1)
    s_ts^n = <q_t^(n), k_s^(n)> / K^(n/2),    x^(n) the n-fold Kronecker power of x                               (2)
    H_n,t = H_n,t-1 + k_t^(n) v_t^T,    u_t = sum_n H_n,t^T q_t^(n) / (n! K^(n/2))                                (3)
    y_t = u_t / G_t,    softmax: G_t = sum_{s<=t} exp(s_ts)                                                       (4)

Linear attention keeps the orders 0 and 1 of (3). In place of G_t, as in the ablations of the released code
(gmongaras/On-the-Expressiveness-…, GPT_Trainer/LlamaDecoderLayer.py), whatever the orders that are kept:

    norm   |u_t|                 count   the number of keys            gate   1 / sigmoid(w . q_t + b)
    for count and gate no score counts for more than 5, there as here

Measured. `series`: how far (4) is from itself if the recurrence (3) is cut at order N, for drawn q, k and v. `lookup`,
`lookup-orders`: one head is trained to give the value of one of n keys, n in PAIRS, with all orders and with those up
to N; there are more keys than the head is wide.

Differs from the paper: the ablations are of a task that takes seconds, not of language models of 300M parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from impls import study
from impls.adam import Adam
from impls.study import Cell, Metric, Row, generator

ORDERS = (1, 2, 4, 8)
DENOMINATORS = ("softmax", "norm", "count", "gate")
CLAMP = 5.0  # of the scores, where nothing divides by their exponentials
KEYS, VALUES, WIDTH, PAIRS = 64, 16, 8, (8, 16, 32)
STEPS, BATCH, LR, TESTED = 400, 64, 0.03, 4096
ROWS, TIME, HEAD = 64, 32, 3  # of `series`: the state of order 8 has HEAD^8 rows


def series(s: Tensor, order: int | None) -> Tensor:
    """exp(s), or its Taylor series at 0 up to `order`; elementwise."""
    if order is None:
        return s.exp()
    total = torch.ones_like(s)
    for n in range(order, 0, -1):
        total = 1 + total * s / n
    return total


def recurrence(q_BTK: Tensor, k_BTK: Tensor, v_BTV: Tensor, order: int) -> Tensor:
    """u_BTV of (3) with the orders 0 to `order`, one token at a time over states of K^n rows."""
    K = q_BTK.shape[-1]
    states = [v_BTV.new_zeros(len(v_BTV), K**n, v_BTV.shape[-1]) for n in range(order + 1)]
    power = lambda z_BN, x_BK: torch.einsum("bn,bk->bnk", z_BN, x_BK).flatten(1)  # noqa: E731
    u_BTV = torch.zeros_like(v_BTV)
    for t in range(v_BTV.shape[1]):
        q_BN = k_BN = torch.ones_like(q_BTK[:, 0, :1])
        for n, state_BNV in enumerate(states):
            if n:
                q_BN, k_BN = power(q_BN, q_BTK[:, t]), power(k_BN, k_BTK[:, t])
            state_BNV += torch.einsum("bn,bv->bnv", k_BN, v_BTV[:, t])
            u_BTV[:, t] += torch.einsum("bnv,bn->bv", state_BNV, q_BN) / (math.factorial(n) * K ** (n / 2))
    return u_BTV


def attend(
    q_BK: Tensor, k_BSK: Tensor, v_BSV: Tensor, order: int | None, denominator: str, gate_B: Tensor | None = None
) -> Tensor:
    """y_BV of one query a row, by (4) with a denominator of DENOMINATORS; the gate is a logit."""
    s_BS = torch.einsum("bk,bsk->bs", q_BK, k_BSK) * q_BK.shape[-1] ** -0.5
    if denominator == "softmax":
        shift_B1 = s_BS.logsumexp(dim=-1, keepdim=True)
        w_BS = (s_BS - shift_B1).exp() if order is None else series(s_BS, order) * (-shift_B1).exp()
    elif denominator == "norm":  # does not see a common factor of the weights
        w_BS = (s_BS - s_BS.detach().amax(dim=-1, keepdim=True)).exp() if order is None else series(s_BS, order)
    else:
        w_BS = series(s_BS.clamp(max=CLAMP), order)
    u_BV = torch.einsum("bs,bsv->bv", w_BS, v_BSV)
    if denominator == "norm":
        return u_BV / u_BV.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    if denominator == "count":
        return u_BV / s_BS.shape[-1]
    return u_BV if gate_B is None else u_BV * gate_B.sigmoid()[:, None]


@dataclass
class Lookup:
    """Vectors of the keys as query and as key, of the values, a map to the values' logits, and a gate."""

    q_XK: Tensor
    k_XK: Tensor
    v_YV: Tensor
    out_VY: Tensor
    gate_K1: Tensor
    bias_1: Tensor

    @classmethod
    def drawn(cls, draws: torch.Generator, device: str) -> Lookup:
        """The start of a training: normal vectors, an open gate."""
        shapes = ((KEYS, WIDTH), (KEYS, WIDTH), (VALUES, VALUES), (VALUES, VALUES), (WIDTH, 1), (1,))
        scales = (1.0, 1.0, VALUES**-0.5, VALUES**-0.5, 0.0, 0.0)
        made = (torch.randn(shape, generator=draws) * scale for shape, scale in zip(shapes, scales, strict=True))
        return cls(*(z.to(device).requires_grad_() for z in made))

    def logits(self, asked: Asked, order: int | None, denominator: str) -> Tensor:
        """logits_BY for the value of the key that is asked for."""
        q_BK = self.q_XK[asked.key_B]
        gate_B = (q_BK @ self.gate_K1)[:, 0] + self.bias_1 if denominator == "gate" else None
        k_BSK, v_BSV = self.k_XK[asked.keys_BS], self.v_YV[asked.values_BS]
        return attend(q_BK, k_BSK, v_BSV, order, denominator, gate_B) @ self.out_VY


class Asked(NamedTuple):
    """Keys without repetition and their values, a row a question; one of the keys, and its value."""

    keys_BS: Tensor
    values_BS: Tensor
    key_B: Tensor
    value_B: Tensor


def questions(rows: int, pairs: int, draws: torch.Generator, device: str) -> Asked:
    keys_BS = torch.rand(rows, KEYS, generator=draws).argsort(dim=-1)[:, :pairs]
    values_BS = torch.randint(VALUES, (rows, pairs), generator=draws)
    place_B1 = torch.randint(pairs, (rows, 1), generator=draws)
    asked = keys_BS, values_BS, *(z_BS.gather(1, place_B1)[:, 0] for z_BS in (keys_BS, values_BS))
    return Asked(*(z.to(device) for z in asked))


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        denominator: str = "softmax"

        def __post_init__(self):
            if self.denominator not in DENOMINATORS:
                raise ValueError(f"denominator={self.denominator!r} is none of {', '.join(DENOMINATORS)}")

    METRICS: ClassVar = {
        "distance": Metric(unit="log2", better="lower", summary="of outputs from softmax attention's, over its norm"),
        "nats": Metric(unit="nats", better="lower", chance=math.log(VALUES), summary="a value looked up"),
        "excess": Metric(unit="nats", better="lower", summary="over the same model with every order"),
        "accuracy": Metric(unit="fraction", better="higher", chance=1 / VALUES, summary="of the values looked up"),
    }
    AXES: ClassVar = {"series": "highest order", "lookup-orders": "highest order"}

    def cells(self) -> list[Cell]:
        return [
            *(("series", order, "distance") for order in ORDERS),
            *(("lookup", None, name) for name in ("nats", "accuracy")),
            *(("lookup-orders", order, name) for order in ORDERS for name in ("nats", "excess")),
        ]

    def parts(self) -> list[str]:
        return ["series", "lookup"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        return self.series(seed, device) if part == "series" else self.lookup(seed, device)

    def series(self, seed: int, device: str) -> Iterator[Row]:
        """On normal queries, keys and values, in float64; the scores have deviation 1."""
        draws, rows = generator(seed, "series"), self.scaled(ROWS, 2)
        q, k, v = (torch.randn(rows, TIME, HEAD, generator=draws, dtype=torch.float64).to(device) for _ in range(3))
        e_BTS = (q @ k.mT * HEAD**-0.5).exp().tril()
        y_BTV = e_BTS @ v / (denominator_BT1 := e_BTS.sum(dim=-1, keepdim=True))
        for order in ORDERS:
            apart_B = (recurrence(q, k, v, order) / denominator_BT1 - y_BTV).flatten(1).norm(dim=-1)
            share_B = apart_B / y_BTV.flatten(1).norm(dim=-1)
            yield Row("series", order, "distance", float(share_B.median().log2()), rows)

    def lookup(self, seed: int, device: str) -> Iterator[Row]:
        (whole, accuracy), n = self.trained(None, seed, device), len(PAIRS) * self.scaled(TESTED, 64)
        yield Row("lookup", None, "nats", whole, n)
        yield Row("lookup", None, "accuracy", accuracy, n)
        for order in ORDERS:
            nats, _ = self.trained(order, seed, device)
            yield Row("lookup-orders", order, "nats", nats, n)
            yield Row("lookup-orders", order, "excess", nats - whole, n)

    def trained(self, order: int | None, seed: int, device: str) -> tuple[float, float]:
        """(nats, accuracy) of a lookup learnt with these orders; the start and all questions are those of the seed."""
        how, steps = (order, self.config.denominator), self.scaled(STEPS, 4)
        model, draws = Lookup.drawn(generator(seed, "start"), device), generator(seed, "train")
        adam = Adam(list(vars(model).values()), LR, steps)
        for step in range(steps):
            asked = questions(BATCH, PAIRS[step % len(PAIRS)], draws, device)
            adam.step(cross_entropy(model.logits(asked, *how), asked.value_B))
        nats, right, test = 0.0, 0.0, generator(seed, "test")
        with torch.no_grad():
            for pairs in PAIRS:
                asked = questions(self.scaled(TESTED, 64), pairs, test, device)
                logits_BY = model.logits(asked, *how)
                nats += float(cross_entropy(logits_BY, asked.value_B)) / len(PAIRS)
                right += float((logits_BY.argmax(dim=-1) == asked.value_B).double().mean()) / len(PAIRS)
        return nats, right
