"""Giving each layer of a trained model the attention that it needs. Souibgui et al. 2026, "LayerBoost: Layer-Aware
Attention Reduction for Efficient LLMs", arXiv:2604.22050.

    sensitivity of layer l = loss of the model whose layer l has no attention − loss of the model
    most sensitive: softmax attention as it was · next: softmax over the last `window` tokens · least: no attention
    healing: min E KL(p_base || p_model) over low-rank changes of every projection, W + B A  (arXiv:2106.09685)

Known in part only: thresholds, the window's length and the weights of the healing's losses are not public. Here the
shares of layers of each kind are given, and the divergence of the next token is all that is minimised. Differs from
the paper: sensitivity is the loss on calibration text, not the score of a benchmark. Where a layer has no attention its
norm and convolution are left unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, log_softmax

from impls.base import TokenMixer
from impls.method import Method as Base
from impls.method import Metric
from impls.rewired import Calibration, Window, softmax_layers

PROBE = 8  # batches that sensitivity is measured on
Factors = dict[str, tuple[Tensor, Tensor]]


class Nothing(TokenMixer):
    """No attention: the residual goes by."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return torch.zeros_like(x_BTD)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, None]:
        return self(x_BTD), None

    def step(self, x_BD: Tensor, state: None) -> tuple[Tensor, None]:
        return self(x_BD), None


@torch.no_grad()
def loss(model: Any, calibration: Calibration) -> float:
    """Nats per scored token."""
    total, tokens = 0.0, 0
    for inputs_BT, targets_BT in calibration:
        total += cross_entropy(model(inputs_BT).flatten(0, 1), targets_BT.flatten(), reduction="sum").item()
        tokens += int((targets_BT >= 0).sum())
    return total / tokens


def sensitivity(model: Any, calibration: Calibration) -> list[float]:
    """What the loss rises by without each layer's attention, one at a time."""
    whole, rises = loss(model, calibration), []
    for layer, (_, mixer) in zip(model.layers, list(softmax_layers(model)), strict=True):
        layer.mixer = Nothing()
        rises.append(loss(model, calibration) - whole)
        layer.mixer = mixer
    return rises


def low_rank(model: nn.Module, rank: int, seed: int) -> Factors:
    """B of zeros and A drawn, by the name of each projection W that is to be W + B A."""
    found: Factors = {}
    generator = torch.Generator().manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            out, into = module.weight.shape
            B_OR, A_RI = torch.zeros(out, rank), torch.randn(rank, into, generator=generator) * into**-0.5
            found[f"{name}.weight"] = (B_OR.to(module.weight), A_RI.to(module.weight))
    return found


def changed(model: nn.Module, factors: Factors) -> dict[str, Tensor]:
    """W + B A by name."""
    return {name: model.get_parameter(name).detach() + B @ A for name, (B, A) in factors.items()}


class Method(Base):
    BATCHES = 64
    METRICS: ClassVar = {
        "layers_full": Metric(unit="layers", better="lower", summary="whose attention is as it was"),
        "layers_window": Metric(unit="layers", better="none", summary="whose attention sees a window"),
        "layers_without": Metric(unit="layers", better="none", summary="without attention"),
        "keys_read": Metric(unit="share", better="lower", summary="of the base's query–key pairs at training length"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config:
        full: float = 0.5  # share of the layers that keeps softmax attention
        removed: float = 0.0  # share that loses it; the rest has a window
        window: int = 16
        order: Literal["sensitivity", "random", "reverse"] = "sensitivity"  # which layers are spared
        uniform: bool = False  # instead, one window in all layers, as long as reads as many keys
        heal: int = 60  # steps of distillation, a batch each
        rank: int = 8
        lr: float = 3e-3

        def __post_init__(self):
            if min(self.full, self.removed, self.heal) < 0 or self.full + self.removed > 1 or self.window < 1:
                raise ValueError(f"{self}: full and removed are shares, heal is 0 or more, window 1 or more")

    def choose(self, model: Any, calibration: Calibration, seed: int) -> dict[str, Any]:
        rises = sensitivity(model, calibration[:PROBE])
        order = sorted(range(len(rises)), key=lambda layer: (-rises[layer], layer))  # most sensitive first
        if self.config.order == "random":
            order = torch.randperm(len(rises), generator=torch.Generator().manual_seed(seed)).tolist()
        if self.config.order == "reverse":
            order.reverse()
        full = round(self.config.full * len(rises))
        removed = min(round(self.config.removed * len(rises)), len(rises) - full)
        kinds = [None] * full + [self.config.window] * (len(rises) - full - removed) + [0] * removed
        windows: list[int | None] = [window for _, window in sorted(zip(order, kinds, strict=True))]
        T = max(inputs_BT.shape[1] for inputs_BT, _ in calibration)
        read = sum(pairs(T, window) for window in windows)
        if self.config.uniform:
            fair = next(w for w in range(T + 1) if len(rises) * pairs(T, w) >= read)
            windows[:], read = [fair] * len(rises), len(rises) * pairs(T, fair)
        return {"windows": windows, "sensitivity": rises, "keys_read": read / (len(rises) * pairs(T, None))}

    def install(self, model: Any, choices: dict[str, Any]) -> Any:
        for (layer, mixer), window in zip(list(softmax_layers(model)), choices["windows"], strict=True):
            if window is not None:
                model.layers[layer].mixer = Window(mixer, window) if window else Nothing()
        return model

    def heal(self, model: Any, base: Any, calibration: Calibration, seed: int) -> None:
        """Distil the base into low-rank changes and write them into the model; learning rate falling to 0."""
        if not self.config.heal:
            return
        from torch.optim import Adam  # not at the top: it loads torch's compiler

        steps = self.scaled(self.config.heal)
        changes = low_rank(model, self.config.rank, seed)
        optimizer = Adam([z.requires_grad_() for pair in changes.values() for z in pair])
        for step in range(steps):
            inputs_BT, _ = calibration[step % len(calibration)]
            optimizer.param_groups[0]["lr"] = self.config.lr * (1 - step / steps)
            with torch.no_grad():
                wanted_BTV = log_softmax(base(inputs_BT), dim=-1)
            found_BTV = log_softmax(functional_call(model, changed(model, changes), (inputs_BT,)), dim=-1)
            optimizer.zero_grad()
            (wanted_BTV.exp() * (wanted_BTV - found_BTV)).sum(dim=-1).mean().backward()
            optimizer.step()
        with torch.no_grad():
            for name, weight in changed(model, changes).items():
                model.get_parameter(name).copy_(weight)

    def report(self, choices: dict[str, Any]) -> dict[str, float]:
        windows = choices["windows"]
        full, without = windows.count(None), windows.count(0)
        return dict(
            zip(self.METRICS, (full, len(windows) - full - without, without, choices["keys_read"]), strict=True)
        )


def pairs(T: int, window: int | None) -> int:
    """Query–key pairs of a row of T tokens; without a window each token sees all before it."""
    return sum(min(t, T if window is None else window) for t in range(1, T + 1))
