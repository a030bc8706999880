"""Does the length of a step over the Taylor radius tell whether it fails? Sao 2026, "Ghosts of Softmax: Complex
Singularities That Limit Safe Step Sizes in Cross-Entropy", arXiv:2603.13552; after piyush314/ghosts-of-softmax.

A step tau v is measured by its rule (`impls.study_parts`, eqs. 1 and 2): r = tau / rho_a, where rho_a = pi T / D_a is a
lower bound on how far the Taylor series of the loss converges. One step from trained networks, on the digits of
scikit-learn, T = 1 unless said:

    steps at 100 r  six architectures, down the gradient, down its signs, and in random directions: share in which the
                    loss more than doubles (`failed`), and in which a tenth of the digits is lost (`collapsed`)
    onset           of the same steps, where the loss has doubled: median r (`median`), deviation of log10 r (`spread`),
                    and share in which that is not on the grid, so that neither knows of it (`beyond`)
    temperature     the same down the gradient of MLPs that were trained at six temperatures

Differs from the paper: smaller networks, others in part; no ResNet-18; a third of the digits is measured on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from impls import study
from impls.study import Cell, Metric, Row
from impls.study_parts import NETWORKS, RULES, Tangent, digits, network, safe, train, unit

PERCENT = (12, 25, 50, 90, 200, 400, 800, 1600)
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # the released code's


def directions(model: nn.Module, x: Tensor, y: Tensor, temperature: float, random: int) -> list[Tangent]:
    """Down the gradient, down its signs, and random ones, all of length 1."""
    weights = dict(model.named_parameters())
    gradients = torch.autograd.grad(cross_entropy(model(x) / temperature, y), list(weights.values()))
    down = dict(zip(weights, (-g for g in gradients), strict=True))
    made = [down, {name: g.sign() for name, g in down.items()}]
    made += [{name: torch.randn_like(g) for name, g in down.items()} for _ in range(random)]
    return [unit(v)[0] for v in made]


@torch.no_grad()
def after(model: nn.Module, x: Tensor, y: Tensor, v: Tangent, tau: float, temperature: float = 1.0) -> Tensor:
    """(loss, accuracy) behind a step tau v."""
    stepped = {name: weight + tau * v[name] for name, weight in model.named_parameters()}
    z_BC = functional_call(model, stepped, (x,))
    return torch.stack([cross_entropy(z_BC / temperature, y), (z_BC.argmax(-1) == y).float().mean()])


def onset(model: nn.Module, x: Tensor, y: Tensor, v: Tangent, temperature: float = 1.0) -> float:
    """tau at which the loss has doubled, between two points of a grid from rho_a / 4 to 64 rho_a; else NaN."""
    taus = [safe("radius", model, x, v, temperature) * 2 ** (k / 2) for k in range(-4, 13)]
    losses = torch.stack([after(model, x, y, v, tau, temperature)[0] for tau in [0.0, *taus]])
    logs = (losses[1:] / losses[0]).log2().nan_to_num(nan=torch.inf).clamp(-20, 20).tolist()
    crossed = next((k for k, log in enumerate(logs) if log >= 1), None)
    if not crossed:  # none, or the first
        return math.nan
    share = (1 - logs[crossed - 1]) / (logs[crossed] - logs[crossed - 1])
    return taus[crossed - 1] * (taus[crossed] / taus[crossed - 1]) ** share


def summed(task: str, ratios: list[float]) -> Iterator[Row]:
    """Median and spread of the onsets on the grid, and the share of the others."""
    kept = [ratio for ratio in ratios if math.isfinite(ratio)]
    found = torch.tensor(kept or [math.nan], dtype=torch.float64)
    yield Row(task, None, "median", float(found.median()), len(found))
    yield Row(task, None, "spread", float(found.log10().std()) if len(kept) > 1 else math.nan, len(found))
    yield Row(task, None, "beyond", 1 - len(kept) / len(ratios), len(ratios))


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        rule: str = "radius"
        steps: int = 120  # of training; this and lr as released
        lr: float = 1e-2
        random: int = 2  # random directions
        networks: int = 3  # of each temperature

        def __post_init__(self):
            if self.rule not in RULES:
                raise ValueError(f"rule={self.rule!r} is none of {', '.join(RULES)}")

    METRICS: ClassVar = {
        "failed": Metric(unit="share", better="lower", summary="steps behind which the loss has more than doubled"),
        "collapsed": Metric(unit="share", better="lower", summary="steps behind which a tenth of the digits is lost"),
        "median": Metric(unit="rule", better="none", summary="step at which the loss has doubled"),
        "spread": Metric(unit="decades", better="lower", summary="deviation of log10 of that step"),
        "beyond": Metric(unit="share", better="lower", summary="steps that have none on the grid"),
    }
    AXES: ClassVar = {"steps": "percent of the rule's step"}

    def cells(self) -> list[Cell]:
        return [
            *(("steps", percent, metric) for percent in PERCENT for metric in ("failed", "collapsed")),
            *((task, None, metric) for task in ("onset", "temperature") for metric in ("median", "spread", "beyond")),
        ]

    def parts(self) -> list[str]:
        return ["steps", "temperature"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        return self.steps(device) if part == "steps" else self.temperature(device)

    def trained(self, name: str, device: str, temperature: float = 1.0) -> nn.Module:
        x, y, _, _ = digits(device)
        model = network(name).to(device)
        train(model, x, y, self.scaled(self.config.steps, 20), self.config.lr, temperature)
        return model

    def steps(self, device: str) -> Iterator[Row]:
        x, y = (z[::3] for z in digits(device)[:2])
        onsets, tried = [], {percent: [] for percent in PERCENT}
        for name in NETWORKS:
            model = self.trained(name, device)
            for v in directions(model, x, y, 1.0, self.config.random):
                length, (loss, accuracy) = safe(self.config.rule, model, x, v), after(model, x, y, v, 0.0)
                onsets.append(onset(model, x, y, v) / length)
                for percent in PERCENT:
                    ends = after(model, x, y, v, percent / 100 * length)
                    tried[percent].append((not ends[0] <= 2 * loss, bool(ends[1] < accuracy - 0.1)))
        for percent, ends in tried.items():
            for metric, found in zip(("failed", "collapsed"), zip(*ends, strict=True), strict=True):
                yield Row("steps", percent, metric, sum(found) / len(found), len(found))
        yield from summed("onset", onsets)

    def temperature(self, device: str) -> Iterator[Row]:
        x, y = (z[::3] for z in digits(device)[:2])
        onsets = []
        for temperature in TEMPERATURES * self.config.networks:
            model = self.trained("mlp", device, temperature)
            v = directions(model, x, y, temperature, 0)[0]
            onsets.append(onset(model, x, y, v, temperature) / safe(self.config.rule, model, x, v, temperature))
        yield from summed("temperature", onsets)
