"""What a model costs, counted and never declared: parameters, FLOPs for a token, bytes of decoding state.

Counting builds the model on torch's meta device, which has shapes and no numbers, so it is quick at any size.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from harness.model import LM, Shape

REFERENCE = "softmax"  # the mechanism whose parameters are the budget
TOLERANCE = 0.01  # of the budget


@dataclasses.dataclass(frozen=True)
class Match:
    """A shape fitted to the budget of its task."""

    shape: Shape
    parameters: int
    reference_parameters: int

    @property
    def within_budget(self) -> bool:
        return abs(self.parameters - self.reference_parameters) <= TOLERANCE * self.reference_parameters


def match(shape: Shape, heads: int) -> Match:
    """The shape with the MLP whose width brings its parameters nearest to the softmax reference's.

    `shape.mlp` is the reference's width; `heads` its heads. Depends on this run and the profile alone.
    """
    reference = parameters(dataclasses.replace(shape, impl=REFERENCE, args={"heads": heads}))
    narrow, wider = parameters(dataclasses.replace(shape, mlp=1)), parameters(dataclasses.replace(shape, mlp=2))
    width = max(1, 1 + round((reference - narrow) / (wider - narrow)))
    fitted = dataclasses.replace(shape, mlp=width)
    return Match(fitted, parameters(fitted), reference)


def skeleton(shape: Shape) -> LM:
    """The model with shapes and no numbers."""
    with torch.device("meta"):
        return LM(shape)


def parameters(shape: Shape) -> int:
    """Numbers that training changes, tied ones once."""
    return sum(p.numel() for p in skeleton(shape).parameters())


def flops_per_token(shape: Shape, length: int) -> float:
    """FLOPs of a forward pass over `length` tokens, for each of them.

    Matrix products, convolutions and fused attention are counted, a multiply-add as two; elementwise work and
    triangular solves are not.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        skeleton(shape)(torch.zeros(1, length, dtype=torch.long, device="meta"))
    return counter.get_total_flops() / length


def state_bytes(shape: Shape, length: int) -> int:
    """Bytes that decoding carries from token to token, for one row, after `length` tokens."""
    with torch.no_grad():
        _, state = skeleton(shape).prefill(torch.zeros(1, length, dtype=torch.long, device="meta"))
    return sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))


def costs(shape: Shape, length: int) -> dict[str, Any]:
    """Both counts at one length; None where a mechanism computes with numbers, which the meta device has not."""
    counted: dict[str, Any] = {}
    for name, count in (("flops_per_token", flops_per_token), ("state_bytes", state_bytes)):
        try:
            counted[name] = count(shape, length)
        except (NotImplementedError, RuntimeError):
            counted[name] = None
    return counted
