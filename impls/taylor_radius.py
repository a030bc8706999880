"""How far the Taylor series of cross-entropy converges. Sao 2026, "Ghosts of Softmax: Complex Singularities That Limit
Safe Step Sizes in Cross-Entropy", arXiv:2603.13552.

A step of length tau moves the logits from z to z + a tau (linearised), the loss holds log F(tau),

    F(tau) = sum_k exp(z_k + a_k tau),  whose complex zeros are where the series of log F around 0 ends              (1)
    two classes, delta = z_1 - z_0, D = |a_1 - a_0|: the radius is rho* = sqrt(delta^2 + pi^2) / D                   (2)
    more classes: the radius is at least rho_a = pi / D,  D = max_k a_k - min_k a_k                                  (3)

The radius is found from the coefficients c_n of F' / F by the root test, min |c_n|^(-1/(n+1)) over the last of them,
and compared with a rule: `radius`, eq. 3; `gap`, pi over the spread of z, which knows no direction; `raw`, 1.

    binary      mean of the radius over eq. 2 (`ratio`)
    multiclass  ten classes: mean of the radius over the rule's (`ratio`), and share of draws where that is less than
                0.98, for the root test is a hundredth too small (`below`)

z is N(0, 4), a is N(0, 1) times a scale that is log-uniform in 0.1 … 10.

Differs from the paper: logits and directions are drawn here; they are not those of a network in training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from impls import study
from impls.study import Cell, Metric, Row

RULES = ("radius", "gap", "raw")
TERMS = 120
SLACK = 0.98  # twice what the root test of so many terms is off


def spread(z_C: Tensor) -> float:
    """max - min."""
    return float(z_C.max() - z_C.min())


def radius(z_C: Tensor, a_C: Tensor) -> float:
    """Of the series of log F around 0; both float64.

    Powers are taken in units of rho_a, so that nothing under- or overflows; rounding makes 1.3 rho_a and more unsure.
    """
    step = math.pi / spread(a_C)
    b_C = (a_C - a_C.mean()) * step  # what all classes share adds a linear term alone
    n_N1 = torch.arange(TERMS + 1, dtype=torch.float64)[:, None]
    f = ((z_C.softmax(-1) * b_C**n_N1).sum(-1) / torch.lgamma(n_N1[:, 0] + 1).exp()).tolist()  # of F
    c: list[float] = []  # of F' / F, by the division of series
    for n in range(TERMS):
        c.append((n + 1) * f[n + 1] - sum(known * f[n - i] for i, known in enumerate(c)))
    return step * min(abs(c[n]) ** (-1 / (n + 1)) if c[n] else math.inf for n in range(TERMS // 2, TERMS))


def closed(z_C: Tensor, a_C: Tensor) -> float:
    """rho* of eq. 2, two classes."""
    return math.hypot(spread(z_C), math.pi) / spread(a_C)


def measured_by(rule: str, z_C: Tensor, a_C: Tensor) -> float:
    """The length that the rule calls safe."""
    return 1.0 if rule == "raw" else math.pi / spread(a_C if rule == "radius" else z_C)


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        rule: str = "radius"
        classes: int = 10
        draws: int = 200

        def __post_init__(self):
            if self.rule not in RULES:
                raise ValueError(f"rule={self.rule!r} is none of {', '.join(RULES)}")
            if self.classes < 2:
                raise ValueError(f"classes={self.classes} must be at least 2")

    METRICS: ClassVar = {
        "ratio": Metric(unit="1", better="none", summary="radius of the series over the closed form, or the rule's"),
        "below": Metric(unit="share", better="lower", summary="draws whose radius is smaller than the rule's"),
    }

    def cells(self) -> list[Cell]:
        return [("binary", None, "ratio"), ("multiclass", None, "ratio"), ("multiclass", None, "below")]

    def parts(self) -> list[str]:
        return ["binary", "multiclass"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        generator, draws = study.generator(seed, part), self.scaled(self.config.draws, 8)
        ratios = []
        for _ in range(draws):
            shape = (2, 2 if part == "binary" else self.config.classes)
            z_C, a_C = torch.randn(shape, generator=generator, dtype=torch.float64)
            z_C, a_C = 2 * z_C, a_C * 10 ** (2 * torch.rand((), generator=generator, dtype=torch.float64) - 1)
            limit = closed(z_C, a_C) if part == "binary" else measured_by(self.config.rule, z_C, a_C)
            ratios.append(radius(z_C, a_C) / limit)
        yield Row(part, None, "ratio", sum(ratios) / draws, draws)
        if part == "multiclass":
            yield Row(part, None, "below", sum(ratio < SLACK for ratio in ratios) / draws, draws)
