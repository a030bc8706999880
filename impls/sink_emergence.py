"""When does an attention sink emerge? Gu et al. 2024, "When Attention Sink Emerges in Language Models",
arXiv:2410.10781; forms of attention as in sail-sg/Attention-Sink, lit_gpt, on the task of arXiv:2603.11487
(`impls.trigger_sinks`, eqs. 1 and 2).

A layer of heads on its own answers with the mean of what came before at a trigger and with 0 elsewhere. l_ts are its
scores, s <= t; F is what the paper replaces softmax's exp by:

    softmax             A_ts = exp(l_ts) / sum_r exp(l_tr)                                                           (1)
    key_bias            A_ts = exp(l_ts) / (exp(q_t . k*) + sum_r exp(l_tr)), k* learned, its value 0                (2)
    sigmoid             A_ts = sigmoid(l_ts)                                                                         (3)
    sigmoid_normalised  A_ts = sigmoid(l_ts) / (sum_r sigmoid(l_tr) + 1e-8)                                          (4)

One thing varies, the rest stays: training steps (one training), or rows to train on. Measured on other rows, over
heads and the places where 0 is wanted, behind the anchor:

    sink_rate             share of heads, each in each row, whose mean weight on the first token exceeds 0.3
    sink_rate_normalised  the same of |A_ts| / (sum_r |A_tr| + 1e-8), the paper's proxy where rows do not sum to 1
    first_token_mass      mean weight on the first token; `anchor_mass` on the one token that is the same in every row
    error                 squared error where scored, over that of the answer 0

The anchor is the first token, or has changed places with the content at `anchor`; what stands before it is not scored.
`loss: trigger` scores the trigger alone, so that nothing asks for silence.

Differs from the paper: no language model; those of a laptop's size have no sinks within minutes of training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from impls import study
from impls.study import Cell, Metric, Row
from impls.trigger_sinks import SINK, rows

ATTENTIONS = ("softmax", "key_bias", "sigmoid", "sigmoid_normalised")
PLACES = {
    "steps": (16, 32, 64, 128, 256, 512, 1024),
    "rows": (4, 16, 64, 256, 1024),
}
LENGTH, WIDTH, HEADS, BATCH = 16, 16, 2, 64


def weights(attention: str, q_BHTE: Tensor, k_BHTE: Tensor, bias_H1E: Tensor) -> Tensor:
    """A_BHTS of eqs. 1 to 4."""
    l_BHTS, T = q_BHTE @ k_BHTE.mT, q_BHTE.shape[-2]
    hidden_TS = torch.ones(T, T, dtype=torch.bool, device=l_BHTS.device).triu(1)
    if attention.startswith("sigmoid"):
        A_BHTS = l_BHTS.sigmoid().masked_fill(hidden_TS, 0.0)
        return A_BHTS if attention == "sigmoid" else A_BHTS / (A_BHTS.sum(-1, keepdim=True) + 1e-8)
    l_BHTS = l_BHTS.masked_fill(hidden_TS, -torch.inf)
    if attention == "softmax":
        return l_BHTS.softmax(-1)
    return torch.cat([q_BHTE @ bias_H1E.mT, l_BHTS], -1).softmax(-1)[..., 1:]


def attend(x_BTD: Tensor, W_4HDE: Tensor, bias_H1E: Tensor, attention: str) -> tuple[Tensor, Tensor]:
    """(answer_BTD, A_BHTS)."""
    q_BHTE, k_BHTE, v_BHTE = torch.einsum("btd,chde->cbhte", x_BTD, W_4HDE[:3])
    A_BHTS = weights(attention, q_BHTE, k_BHTE, bias_H1E)
    return torch.einsum("bhte,hed->btd", A_BHTS @ v_BHTE, W_4HDE[3]), A_BHTS


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        attention: str = "softmax"
        vary: str = "steps"  # or "rows"
        anchor: int = 0
        loss: str = "all"  # or "trigger"
        steps: int = 512
        lr: float = 4e-3

        def __post_init__(self):
            if not 0 <= self.anchor <= LENGTH - 3:
                raise ValueError(f"anchor={self.anchor} is not in 0 … {LENGTH - 3}")
            for name, known in (("attention", ATTENTIONS), ("vary", tuple(PLACES)), ("loss", ("all", "trigger"))):
                if getattr(self, name) not in known:
                    raise ValueError(f"{name}={getattr(self, name)!r} is none of {', '.join(known)}")

    METRICS: ClassVar = {
        "sink_rate": Metric(
            unit="share", better="none", summary="heads of rows with a mean weight above 0.3 on the first token"
        ),
        "sink_rate_normalised": Metric(unit="share", better="none", summary="the same of rows that are brought to 1"),
        "first_token_mass": Metric(unit="weight", better="none", summary="mean weight on the first token"),
        "anchor_mass": Metric(unit="weight", better="none", summary="mean weight on the token all rows share"),
        "error": Metric(unit="share", better="lower", chance=1.0, summary="squared error over that of the answer 0"),
    }
    AXES: ClassVar = {"steps": "training steps", "rows": "rows to train on"}

    def cells(self) -> list[Cell]:
        return [(self.config.vary, at, metric) for at in PLACES[self.config.vary] for metric in self.METRICS]

    def parts(self) -> list[str]:
        return ["all"] if self.config.vary == "steps" else [f"at-{at}" for at in PLACES[self.config.vary]]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        cfg, vary = self.config, self.config.vary
        places = PLACES["steps"] if vary == "steps" else (int(part.removeprefix("at-")),)
        start, stream = study.generator(seed, "start"), study.generator(seed, "training")
        W_4HDE = torch.randn(4, HEADS, WIDTH, WIDTH, generator=start) / (2 * WIDTH**0.5)
        bias_H1E = 0.02 * torch.randn(HEADS, 1, WIDTH, generator=start)
        learned = [z.to(device).requires_grad_() for z in (W_4HDE, bias_H1E)]
        optimizer = torch.optim.Adam(learned, lr=cfg.lr, betas=(0.9, 0.95))
        kept = self.batch(stream, places[0], device) if vary == "rows" else None
        ends = [(self.scaled(at if vary == "steps" else cfg.steps), at) for at in places]
        for step in range(1, max(ends)[0] + 1):
            x_BTD, wanted_BTD, scored_BT = self.batch(stream, BATCH, device) if kept is None else kept
            if kept is not None:
                picked = torch.randint(len(x_BTD), (BATCH,), generator=stream)
                x_BTD, wanted_BTD, scored_BT = (z[picked.to(device)] for z in kept)
            errors_BT = (attend(x_BTD, learned[0], learned[1], cfg.attention)[0] - wanted_BTD).square().mean(-1)
            optimizer.zero_grad()
            (errors_BT * scored_BT).mean().backward()
            optimizer.step()
            for at in (at for end, at in ends if end == step):
                yield from self.seen(learned, at, seed, device)

    def batch(self, generator: torch.Generator, size: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
        """(x_BTD, answer_BTD, scored_BT)."""
        anchor, t_T = self.config.anchor, torch.arange(LENGTH)
        x_BTD, y_BTD, trigger_B = rows(generator, size, LENGTH, WIDTH, earliest=anchor + 2)
        x_BTD[:, [0, anchor]] = x_BTD[:, [anchor, 0]]
        at_BT = t_T == trigger_B[:, None]
        scored_BT = at_BT if self.config.loss == "trigger" else (t_T >= anchor).expand_as(at_BT)
        return x_BTD.to(device), y_BTD.to(device), scored_BT.to(device)

    @torch.no_grad()
    def seen(self, learned: list[Tensor], at: int, seed: int, device: str) -> Iterator[Row]:
        x_BTD, wanted_BTD, scored_BT = self.batch(study.generator(seed, "evaluation"), 128, device)
        y_BTD, A_BHTS = attend(x_BTD, learned[0], learned[1], self.config.attention)
        quiet_BT = (wanted_BTD == 0).all(-1) & (torch.arange(x_BTD.shape[1], device=device) > self.config.anchor)
        normalised_BHTS = A_BHTS / (A_BHTS.sum(-1, keepdim=True) + 1e-8)
        quiet_B1T = quiet_BT[:, None].float()  # equally many of each row
        mass_BH, proxy_BH = ((z[..., 0] * quiet_B1T).sum(-1) / quiet_B1T.sum(-1) for z in (A_BHTS, normalised_BHTS))
        found = {
            "sink_rate": (mass_BH > SINK).double().mean(),
            "sink_rate_normalised": (proxy_BH > SINK).double().mean(),
            "first_token_mass": mass_BH.mean(),
            "anchor_mass": A_BHTS[..., self.config.anchor].movedim(1, -1)[quiet_BT].mean(),
            "error": (y_BTD - wanted_BTD)[scored_BT].square().sum() / wanted_BTD[scored_BT].square().sum(),
        }
        for metric, value in found.items():
            n = mass_BH.numel() if metric.startswith("sink_rate") else len(x_BTD)
            yield Row(self.config.vary, at, metric, float(value), n)
