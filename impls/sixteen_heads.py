"""Pruning the heads of a trained model. Michel, Levy, Neubig 2019, "Are Sixteen Heads Really Better than One?",
arXiv:1905.10650.

    y   = sum_h xi_h O_h W_h,  xi_h in {0, 1}         O_h: what head h reads, W_h: its rows of the output projection
    I_h = E_x |dL/dxi_h| = E_x |<O_h, dL/dO_h>|       importance of a head, at xi = 1

Importances are taken of single tokens and divided by their root of squares in the layer, as in the authors' code
(pmichel31415/pytorch-pretrained-BERT); the heads of lowest importance go first, over all layers. A head that is gone
is cut out of the weights, so that parameters, work and cache shrink with it.

Differs from the paper: a causal language model and recall by next-token loss; every layer keeps `least` heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from impls.method import Method as Base
from impls.method import Metric
from impls.rewired import Calibration, softmax_layers
from impls.softmax import Mixer


def importance(model: Any, calibration: Calibration) -> list[Tensor]:
    """I_H of each layer, of norm 1 (0 where no head matters)."""
    heads = [mixer.heads for _, mixer in softmax_layers(model)]
    total = [torch.zeros(H, dtype=torch.float64) for H in heads]
    read: list[Tensor] = []
    hooks = [mixer.out.register_forward_pre_hook(lambda _, args: read.append(args[0])) for _, mixer in
             softmax_layers(model)]  # fmt: skip
    try:
        for inputs_BT, targets_BT in calibration:
            read.clear()
            with torch.enable_grad():
                loss = cross_entropy(model(inputs_BT).flatten(0, 1), targets_BT.flatten(), reduction="sum")
            for total_H, O_BTD, grad_BTD in zip(total, read, torch.autograd.grad(loss, read), strict=True):
                along_BTH = (O_BTD.detach() * grad_BTD).unflatten(-1, (len(total_H), -1)).sum(dim=-1)
                total_H += along_BTH.abs().sum(dim=(0, 1)).double().cpu()
    finally:
        for hook in hooks:
            hook.remove()
    return [total_H / (total_H.norm() + 1e-20) for total_H in total]


def prune(importance_LH: list[list[float]], cut: int, layers: list[int], least: int) -> list[list[int]]:
    """Heads that stay in each layer after `cut` of these layers have gone, those of lowest importance first."""
    kept = [list(range(len(of_layer))) for of_layer in importance_LH]
    order = sorted((importance_LH[layer][head], layer, head) for layer in layers for head in kept[layer])
    for _, layer, head in order:
        if cut > 0 and len(kept[layer]) > least:
            kept[layer].remove(head)
            cut -= 1
    return kept


def cut_out(mixer: Mixer, kept: list[int]) -> None:
    """Leave these heads alone in the weights of a layer."""
    if len(kept) == mixer.heads:
        return
    device, width = mixer.out.weight.device, mixer.heads * mixer.head_dim
    row_N = (torch.tensor(kept)[:, None] * mixer.head_dim + torch.arange(mixer.head_dim)).flatten().to(device)
    qkv_ND = mixer.qkv.weight[torch.cat([row_N, row_N + width, row_N + 2 * width])]
    for name, weight in (("qkv", qkv_ND), ("out", mixer.out.weight[:, row_N])):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=device, dtype=weight.dtype)
        layer.weight = nn.Parameter(weight.detach().clone())
        setattr(mixer, name, layer)
    mixer.heads = len(kept)


class Method(Base):
    METRICS: ClassVar = {
        "heads_kept": Metric(unit="heads", better="lower", summary="attention heads left, of all layers"),
        "share_kept": Metric(unit="share", better="lower", summary="of the heads of the base"),
        "fewest_in_a_layer": Metric(unit="heads", better="lower", summary="in the layer with fewest"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config:
        keep: float = 0.8  # share of the heads that stays
        order: Literal["importance", "random", "reverse"] = "importance"  # which goes first; the others are controls
        layer: int | None = None  # prune this layer alone; -1 is the last
        least: int = 1  # heads that every layer keeps

        def __post_init__(self):
            if not 0 <= self.keep <= 1 or self.least < 1:
                raise ValueError(f"keep={self.keep}, least={self.least}: keep is in [0, 1], least at least 1")
            if self.order not in ("importance", "random", "reverse"):
                raise ValueError(f"order={self.order!r} is not importance, random or reverse")

    def choose(self, model: Any, calibration: Calibration, seed: int) -> dict[str, Any]:
        scores_LH = [of_layer.tolist() for of_layer in importance(model, calibration)]
        layers = list(range(len(scores_LH)))
        if self.config.layer is not None:
            if not -len(layers) <= self.config.layer < len(layers):
                raise ValueError(f"layer={self.config.layer} of a model of {len(layers)}")
            layers = [layers[self.config.layer]]
        generator = torch.Generator().manual_seed(seed)
        by = {
            "importance": lambda scores: scores,
            "reverse": lambda scores: [-score for score in scores],
            "random": lambda scores: torch.rand(len(scores), generator=generator).tolist(),
        }[self.config.order]
        cut = round((1 - self.config.keep) * sum(len(scores_LH[layer]) for layer in layers))
        kept = prune([by(scores) for scores in scores_LH], cut, layers, self.config.least)
        return {"kept": kept, "importance": scores_LH}

    def install(self, model: Any, choices: dict[str, Any]) -> Any:
        for layer, mixer in list(softmax_layers(model)):
            cut_out(mixer, choices["kept"][layer])
        return model

    def report(self, choices: dict[str, Any]) -> dict[str, float]:
        left = [len(heads) for heads in choices["kept"]]
        had = sum(len(scores) for scores in choices["importance"])
        return {"heads_kept": sum(left), "share_kept": sum(left) / had, "fewest_in_a_layer": min(left)}
