"""What the tests of methods share: a small base, text to calibrate on, and what every installed model must do."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from harness.model import Shape, build


def base(layers: int = 2) -> Any:
    """A model in float64 whose weights are far from their start, so that its four heads and its layers differ."""
    shape = Shape(impl="softmax", args={"heads": 4}, vocab=50, width=32, layers=layers, mlp=24, conv=4)
    model: Any = build(shape, seed=0).double().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for layer in model.layers:
            layer.mixer.qkv.weight *= 3  # attention that is not nearly uniform
    return model


def calibration(batches: int = 2, length: int = 40) -> list[tuple[Tensor, Tensor]]:
    """Pairs of inputs_BT and the tokens after them."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(50, (batches, 3, length + 1), generator=generator)
    return [(ids_BT[:, :-1], ids_BT[:, 1:]) for ids_BT in rows]


def made(impl: Any, model: Any, seed: int = 0, **args: Any) -> tuple[Any, dict[str, Any]]:
    """(the changed model, what was chosen) of a method's module; the base is left as it was."""
    method = impl.Method(impl.Method.Config(**args))
    choices = method.choose(model, calibration(), seed)
    return method.install(copy.deepcopy(model), choices), choices


@torch.no_grad()
def assert_causal_and_decodes(model: Any, length: int = 40) -> None:
    """Prefixes give what the whole row gives, and so do prefill and steps."""
    ids_BT = calibration(length=length)[0][0]
    whole_BTV = model(ids_BT)
    for prefix in (1, 2, 7, 23, length - 1):
        torch.testing.assert_close(model(ids_BT[:, :prefix]), whole_BTV[:, :prefix], rtol=1e-9, atol=1e-9)
    for prefix in (1, 9, 30):
        logits_BTV, state = model.prefill(ids_BT[:, :prefix])
        torch.testing.assert_close(logits_BTV, whole_BTV[:, :prefix], rtol=1e-9, atol=1e-9)
        for t in range(prefix, length):
            logits_BV, state = model.step(ids_BT[:, t], state)
            torch.testing.assert_close(logits_BV, whole_BTV[:, t], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def difference(model: Any, other: Any, length: int = 40) -> float:
    """Largest difference of two models' logits."""
    ids_BT = calibration(length=length)[0][0]
    return (model(ids_BT) - other(ids_BT)).abs().max().item()
