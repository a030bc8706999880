"""What a model costs, counted on the model itself and never declared: parameters, FLOPs, bytes of decoding state.

Counting FLOPs loads torch's compiler, 1.3 seconds, so a training process counts its parameters and no more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from harness.loss import total_nll
from harness.model import LM, Shape, build
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


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one token of a row of `length` costs; a multiply-add is two FLOPs."""

    length: int
    parameters: int
    flops_training: float  # forward and backward, the loss among it
    flops_per_token: float  # forward, as in prefill
    flops_decoding: int  # of one more token after `length`
    state_bytes: int  # that decoding one row carries on after `length` tokens


def measure(shape: Shape, length: int) -> Cost:
    """All costs of a model, by running it."""
    size, state = parameters(shape), state_bytes(shape, length)
    forward, training = flops_per_token(shape, length), training_flops(shape, length)
    return Cost(length, size, training, forward, decoding_flops(shape, length), state)


def flops_per_token(shape: Shape, length: int) -> float:
    """FLOPs of a forward pass over a row of `length` tokens, for each of them.

    Matrix products, convolutions and attention are counted; elementwise work and triangular solves are not.
    """

    def forward(model: LM, ids_BT: Tensor) -> int:
        with torch.no_grad():
            return _counted(lambda: model(ids_BT))

    return _run(forward, shape, length) / length


def training_flops(shape: Shape, length: int) -> float:
    """The same for a forward and a backward pass with the loss of every token."""

    def both(model: LM, ids_BT: Tensor) -> int:
        return _counted(lambda: total_nll(model.train(), ids_BT, ids_BT).backward())

    return _run(both, shape, length) / length


def decoding_flops(shape: Shape, length: int) -> int:
    """FLOPs of the token that follows `length` others."""

    def step(model: LM, ids_BT: Tensor) -> int:
        with torch.no_grad():
            _, state = model.prefill(ids_BT)
            return _counted(lambda: model.step(ids_BT[:, -1], state))

    return _run(step, shape, length)


def state_bytes(shape: Shape, length: int) -> int:
    """Bytes that decoding one row carries from token `length` to the next."""

    def held(model: LM, ids_BT: Tensor) -> int:
        with torch.no_grad():
            _, state = model.prefill(ids_BT)
        return sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))

    return _run(held, shape, length)


def _counted(work: Callable[[], object]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    # The counter knows nothing of a CPU's fused attention; the plain kernel is made of products that it counts.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def _run(work: Callable[[LM, Tensor], int], shape: Shape, length: int) -> int:
    """`work` on a model and a row of tokens on the meta device, where shapes are all there is and nothing is computed.

    A mechanism whose steps depend on values (it stops once it has converged) cannot run there, and runs on random
    tokens with real numbers instead.
    """
    for device in ("meta", "cpu"):
        ids_BT = torch.randint(shape.vocab, (1, length), generator=torch.Generator().manual_seed(0))
        try:
            return work(build(shape, seed=0).eval().to(device), ids_BT.to(device))
        except RuntimeError:
            if device == "cpu":
                raise
    raise AssertionError
