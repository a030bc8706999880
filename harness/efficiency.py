"""A model and the softmax reference put to the same work in turns: training steps, rows read, tokens written.

`harness.suites.efficiency` says what is made of it. Axis letters: `impls.base`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from harness.fit import Fit
from harness.model import LM
from harness.peak import peak_bytes
from harness.tasks import Batch, shift
from harness.timing import Clock, Rounds, Work, in_turns


class Pair(NamedTuple):
    """The same work by two models: how many tokens it is of, and, ours first, the bytes that each holds."""

    ours: Work
    theirs: Work
    tokens: int
    held: tuple[int, int] | None = None


Prepare = Callable[[int], Pair]  # of a length, in tokens; both sides have been run once


class Limits(NamedTuple):
    """How far measuring goes."""

    rounds: int  # at most, of each length
    fewest: int  # at least
    seconds: float
    bytes: float


class Found(NamedTuple):
    """What came of one length: rounds, or the reason why there are none."""

    length: int
    pair: Pair | None
    rounds: Rounds | None
    reason: str = ""


def over_lengths(prepare: Prepare, lengths: tuple[int, ...], limits: Limits, clock: Clock) -> Iterator[Found]:
    """Every length in ascending order, for as long as time and memory reach.

    A length is not begun where the length before it foretells that they do not: time does not fall, and memory
    grows with the square at most.
    """
    prepare(lengths[0])  # loads what is loaded once
    left, slowest, most, before, reason = limits.seconds, 0.0, 0, lengths[0], ""
    for length in lengths:
        if not reason and (limits.fewest + 1) * slowest > left:
            reason = f"more than its share of time, {limits.seconds:.2g} s"
        if not reason and most * (length / before) ** 2 > limits.bytes:
            reason = f"might hold more than {limits.bytes / 1e9:.3g} GB"
        pair, found = None, []
        if not reason:
            start = clock()
            try:
                pair = prepare(length)
                for round_ in islice(in_turns(pair.ours, pair.theirs, clock), limits.rounds):
                    found.append(round_)
                    spent = clock() - start
                    if spent + sum(round_) > left and len(found) >= limits.fewest:
                        break
                    if spent > left:  # not even the fewest rounds
                        reason = f"more than its share of time, {limits.seconds:.2g} s"
                        break
            except torch.OutOfMemoryError:
                reason = "out of memory"
            left -= clock() - start
        if reason or pair is None:
            yield Found(length, None, None, reason)
            continue
        yield Found(length, pair, Rounds(*zip(*found, strict=True)))
        slowest, before = sum(found[-1]), length
        most = max(pair.held or (0,))


class Training:
    """Optimizer steps of copies of both models, at learning rate 0, so that they stay what they are.

    It is also the task that they train on: as many random rows of a length as `tokens` hold, one at least.
    """

    def __init__(self, ours: LM, theirs: LM, settings: Any, tokens: int, device: str):
        self.vocab, self.tokens, self.device = ours.shape.vocab, tokens, device
        lasting = settings.model_copy(update={"lr": 0.0, "steps": 10**9, "valid_every": 10**9})
        task: Any = self
        self.fits = [Fit(copy.deepcopy(model), task, lasting, 0, device) for model in (ours, theirs)]
        self.rows: Batch | None = None

    def batch(self, step: int) -> Batch:
        """The same rows at each step of a length."""
        assert self.rows is not None
        return self.rows

    def prepare(self, length: int) -> Pair:
        count = max(1, self.tokens // length)
        self.rows = shift(random_ids(self.vocab, count, length + 1))
        first, second = (lambda fit=fit: step(fit) for fit in self.fits)
        held = peak_bytes(first, self.device), peak_bytes(second, self.device)
        return Pair(first, second, count * length, held)


def step(fit: Fit) -> None:
    """One more step of a training."""
    before = fit.steps_done
    with torch.enable_grad():
        fit.run(until=lambda done: done > before, after=lambda point: None)


def reading(ours: LM, theirs: LM, device: str) -> Prepare:
    """One row read for the logits of its last token, its state kept."""

    def prepare(length: int) -> Pair:
        ids_BT = torch.from_numpy(random_ids(ours.shape.vocab, 1, length)).to(device)
        first, second = (lambda model=model: model.prefill(ids_BT, last=1) for model in (ours, theirs))
        warm(first, second)
        return Pair(first, second, length)

    return prepare


def writing(ours: LM, theirs: LM, tokens: int, device: str) -> Prepare:
    """`tokens` more tokens after a row, one after the other; `held` is the state after that row."""

    def prepare(length: int) -> Pair:
        ids_BT = torch.from_numpy(random_ids(ours.shape.vocab, 1, length + tokens)).to(device)
        states = [(model, model.prefill(ids_BT[:, :length], last=1)[1]) for model in (ours, theirs)]
        first, second = (lambda m=m, state=state: write(m, state, ids_BT[:, length:]) for m, state in states)
        warm(first, second)
        return Pair(first, second, tokens, (state_bytes(states[0][1]), state_bytes(states[1][1])))

    return prepare


def warm(*works: Work) -> None:
    """Do each once, for what is loaded and allocated on the way."""
    for work in works:
        work()


def write(model: LM, state: Any, ids_BT: Tensor) -> None:
    """Tokens one after the other from a state, which stays as it is."""
    for ids_B in ids_BT.unbind(1):
        _, state = model.step(ids_B, state)


def state_bytes(state: Any) -> int:
    """Bytes of the tensors in a state."""
    return sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))


def random_ids(vocab: int, rows: int, length: int) -> np.ndarray:
    """ids_BT, the same each time."""
    return np.random.default_rng(0).integers(vocab, size=(rows, length))
