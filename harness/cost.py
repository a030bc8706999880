"""What a model costs, counted on the model itself and never declared: parameters, FLOPs, bytes of decoding state.

Counting FLOPs loads torch's compiler, 1.3 seconds, so a training process counts its parameters and no more.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from harness.model import Shape, build
from harness.tasks import REFERENCE

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


def parameters(shape: Shape) -> int:
    """Numbers that training changes, tied ones once."""
    return sum(p.numel() for p in build(shape, seed=0).parameters())


def flops_per_token(shape: Shape, length: int) -> float:
    """FLOPs of a forward pass over a row of `length` tokens, for each of them.

    Matrix products, convolutions and attention are counted, a multiply-add as two; elementwise work and triangular
    solves are not.
    """
    from torch.utils.flop_counter import FlopCounterMode

    model = build(shape, seed=0).eval()
    # The counter knows nothing of a CPU's fused attention; the plain kernel is made of products that it counts.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, length, dtype=torch.long))
    return counter.get_total_flops() / length


def state_bytes(shape: Shape, length: int) -> int:
    """Bytes that decoding one row carries from token `length` to the next."""
    with torch.no_grad():
        _, state = build(shape, seed=0).eval().prefill(torch.zeros(1, length, dtype=torch.long))
    return sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))
