"""Trigger-conditional averaging with real vectors. Ran-Milo 2026, "Attention Sinks Are Provably Necessary in Softmax
Transformers", arXiv:2603.11487; as released in YuvMilo/sinks-are-provably-necessary, utils/data.py and utils/models.py.

A row has `length` vectors of `width` numbers: flags of the first token and of the trigger, u in U(-1, 1), a constant.

    x_0 = (1, 0, 0, 0),  x_t = (0, 0, u_t, 1),  x_j = (0, 1, u_j, 0) at the trigger j, uniform in 2 … length - 1     (1)
    y_j = mean of x_1 … x_j,  y_t = 0 at every other t                                                               (2)
    f(x)_t = sum_h W_O^h sum_{s<=t} A^h_ts W_V^h x_s,   l^h_ts = (W_Q^h x_t) . (W_K^h x_s)                           (3)
    A_ts = softmax_s(l_ts)  or  relu(l_ts) / max(t, 1)                                                               (4)

Models of one layer answer f(x); models of several add each layer to what they read, x + f(x), and what they have
added in all is their answer. Every head is as wide as the model. Measured on rows that training did not draw:

    first_token_mass  mean A_t0 over heads, layers and the t > 0 without the trigger; `_normalised` of rows brought to 1
    sink_rate         share of heads whose `first_token_mass_normalised` exceeds 0.3, the bound of arXiv:2410.10781
    strongest         `first_token_mass_normalised` of the head that has most
    error             squared error of the answer at the trigger over that of the answer 0
    default_norm      root mean square of the answer where it must be 0, over that of y_j

Differs from the paper: weights start from N(0, 1 / (4 width)) instead of N(0, 0.02^2), and the learning rate is
higher, so that seconds are enough; a fixed number of steps instead of a stop by the largest error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from impls import study
from impls.study import Cell, Metric, Row

ATTENTIONS = ("softmax", "relu")
MODELS = {"l1h1": (1, 1), "l1h4": (1, 4), "l2h2": (2, 2), "l4h4": (4, 4)}  # layers, heads
SINK = 0.3


def rows(
    generator: torch.Generator, batch: int, length: int, width: int, earliest: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """(x_BTD, y_BTD, trigger_B) of eqs. 1 and 2; no trigger before `earliest`."""
    x_BTD = torch.zeros(batch, length, width)
    x_BTD[:, 0, 0] = 1
    x_BTD[:, 1:, 2:-1] = 2 * torch.rand(batch, length - 1, width - 3, generator=generator) - 1
    x_BTD[:, 1:, -1] = 1
    trigger_B = torch.randint(earliest, length, (batch,), generator=generator)
    at = (torch.arange(batch), trigger_B)
    x_BTD[(*at, 1)] = 1
    x_BTD[(*at, -1)] = 0
    y_BTD = torch.zeros_like(x_BTD)
    y_BTD[at] = x_BTD[:, 1:].cumsum(1)[at[0], trigger_B - 1] / trigger_B[:, None]
    return x_BTD, y_BTD, trigger_B


def weights(scores_BHTS: Tensor, attention: str) -> Tensor:
    """A_BHTS of eq. 4 over the visible keys."""
    T = scores_BHTS.shape[-1]
    hidden_TS = torch.ones(T, T, dtype=torch.bool, device=scores_BHTS.device).triu(1)
    if attention == "softmax":
        return scores_BHTS.masked_fill(hidden_TS, -torch.inf).softmax(-1)
    divisor_T1 = torch.arange(T, device=scores_BHTS.device).clamp(min=1)[:, None]
    return scores_BHTS.relu().masked_fill(hidden_TS, 0.0) / divisor_T1


def answer(x_BTD: Tensor, layers: list[Tensor], attention: str) -> tuple[Tensor, Tensor]:
    """(what all layers add to x, A_BLHTS); a layer is W_4HDE: queries, keys, values, output."""
    y_BTD, seen, residual = torch.zeros_like(x_BTD), [], len(layers) > 1
    for W_4HDE in layers:
        q_BHTE, k_BHTE, v_BHTE = torch.einsum("btd,chde->cbhte", x_BTD + y_BTD if residual else x_BTD, W_4HDE[:3])
        A_BHTS = weights(q_BHTE @ k_BHTE.transpose(-1, -2), attention)
        y_BTD = y_BTD + torch.einsum("bhte,hed->btd", A_BHTS @ v_BHTE, W_4HDE[3])
        seen.append(A_BHTS)
    return y_BTD, torch.stack(seen, 1)


def statistics(y_BTD: Tensor, A_BLHTS: Tensor, wanted_BTD: Tensor, trigger_B: Tensor) -> dict[str, float]:
    """Everything that is measured, by name."""
    T = y_BTD.shape[1]
    answer_BT = torch.arange(T, device=y_BTD.device) == trigger_B[:, None]
    quiet_BT = ~answer_BT
    quiet_BT[:, 0] = False
    row_BLHT = A_BLHTS.sum(-1).clamp(min=torch.finfo(A_BLHTS.dtype).tiny)
    raw_LH = A_BLHTS[..., 0].movedim(-1, 1)[quiet_BT].mean(0)
    normalised_LH = (A_BLHTS[..., 0] / row_BLHT).movedim(-1, 1)[quiet_BT].mean(0)
    size = wanted_BTD[answer_BT].square().mean()
    return {
        "first_token_mass": float(raw_LH.mean()),
        "first_token_mass_normalised": float(normalised_LH.mean()),
        "sink_rate": float((normalised_LH > SINK).double().mean()),
        "strongest": float(normalised_LH.max()),
        "error": float((y_BTD - wanted_BTD)[answer_BT].square().mean() / size),
        "default_norm": float((y_BTD[quiet_BT].square().mean() / size).sqrt()),
    }


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        attention: str = "softmax"  # or "relu"
        length: int = 16
        width: int = 16
        steps: int = 600  # the released code: up to 50,000
        batch: int = 64  # the released code: 128
        lr: float = 4e-3  # the released code: 1e-3, 1e-4 for several layers

        def __post_init__(self):
            if self.attention not in ATTENTIONS:
                raise ValueError(f"attention={self.attention!r} is none of {', '.join(ATTENTIONS)}")
            if self.length < 3 or self.width < 4:
                raise ValueError(f"length={self.length} must be at least 3, width={self.width} at least 4")

    METRICS: ClassVar = {
        "first_token_mass": Metric(unit="weight", better="none", summary="mean weight on the first token, quiet rows"),
        "first_token_mass_normalised": Metric(unit="weight", better="none", summary="the same of rows brought to 1"),
        "sink_rate": Metric(unit="share", better="none", summary="heads whose normalised mean exceeds 0.3"),
        "strongest": Metric(unit="weight", better="none", summary="normalised mean of the head that has most"),
        "error": Metric(unit="share", better="lower", chance=1.0, summary="squared error there; 1 for answer 0"),
        "default_norm": Metric(unit="ratio", better="lower", summary="size of the answer where it must be 0"),
    }

    def cells(self) -> list[Cell]:
        return [(name, None, metric) for name in MODELS for metric in self.METRICS]

    def parts(self) -> list[str]:
        return list(MODELS)

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        cfg = self.config
        depth, heads = MODELS[part]
        generator = study.generator(seed, part, "training")
        shape = (4, heads, cfg.width, cfg.width)
        start = [torch.randn(shape, generator=generator) / (2 * cfg.width**0.5) for _ in range(depth)]
        layers = [W_4HDE.to(device).requires_grad_() for W_4HDE in start]
        steps = self.scaled(cfg.steps)
        optimizer = torch.optim.Adam(layers, lr=cfg.lr, betas=(0.9, 0.95))
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = cfg.lr * min(1.0, 2 * (1 - step / steps))  # falls in the second half
            x_BTD, y_BTD, _ = (z.to(device) for z in rows(generator, cfg.batch, cfg.length, cfg.width))
            loss = (answer(x_BTD, layers, cfg.attention)[0] - y_BTD).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        fresh = study.generator(seed, part, "evaluation")
        x_BTD, wanted_BTD, trigger_B = (z.to(device) for z in rows(fresh, 256, cfg.length, cfg.width))
        with torch.no_grad():
            found = statistics(*answer(x_BTD, layers, cfg.attention), wanted_BTD, trigger_B)
        for metric, value in found.items():
            yield Row(part, None, metric, value, n=depth * heads if metric == "sink_rate" else len(x_BTD))
