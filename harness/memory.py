"""What is done where a device has too little memory for a step: the same rows in more passes, half as many in each.

Gradients of all passes are added up before the optimizer moves, each divided by the scored tokens of the whole batch:
the numbers stay those of the whole batch but for rounding. A mechanism that draws random numbers while it trains draws
those that it would have drawn with that many rows in a pass from the start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from harness.model import LM

T = TypeVar("T")


class Memory:
    """How many rows of a batch one pass takes, and each time that this had to be halved, here or elsewhere."""

    def __init__(self, model: LM, rows: int | None, device: str, rank: int | None = None):
        self.model, self.rows, self.device = model, rows, device
        self.where = {} if rank is None else {"rank": rank}  # of the process, where several train
        # {"step", "rows"} and "rank" where several train: from this step on, so many rows in a pass
        self.halved: list[dict[str, int]] = []

    def spread(self, step: int, batch: int, work: Callable[[int], T]) -> T:
        """`work(rows in a pass)` for the `batch` rows of a step; out of memory, its gradients go and it starts anew.

        Raises torch.OutOfMemoryError where one row is too much.
        """
        while True:
            rows = max(1, min(self.rows or batch, batch))
            drawn = self._drawn()
            try:
                return work(rows)
            except torch.OutOfMemoryError as error:
                if rows == 1:
                    raise torch.OutOfMemoryError(f"one row alone, at step {step}: {said(error)}") from None
            # only here: while an exception is handled, its traceback keeps what the failed pass had computed
            self._halve(step, rows, drawn)

    def state(self) -> dict[str, Any]:
        """What `restore` needs, so that a resumed run takes as many rows as it would have taken."""
        return {"rows": self.rows, "halved": self.halved}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved `state`."""
        self.rows, self.halved = state["rows"], state["halved"]

    def learn(self, halved: Iterable[dict[str, int]]) -> None:
        """Take up what had to be halved in other processes; what is known already is not noted twice."""
        for each in halved:
            if each not in self.halved:
                self.halved = [*self.halved, each]

    def _halve(self, step: int, rows: int, drawn: list[torch.Tensor]) -> None:
        self.model.zero_grad(set_to_none=True)
        torch.set_rng_state(drawn[0])
        if self.device.startswith("cuda"):
            torch.cuda.set_rng_state(drawn[1], self.device)
            torch.cuda.empty_cache()
        self.rows = (rows + 1) // 2
        self.halved = [*self.halved, {"step": step, "rows": self.rows, **self.where}]
        print(f"out of memory at step {step}: from here on {self.rows} rows in a pass", file=sys.stderr, flush=True)

    def _drawn(self) -> list[torch.Tensor]:
        """Where the random numbers are."""
        gpu = [torch.cuda.get_rng_state(self.device)] if self.device.startswith("cuda") else []
        return [torch.get_rng_state(), *gpu]


def said(error: torch.OutOfMemoryError) -> str:
    """The first sentences of what the allocator says: what was asked for, without the advice that follows."""
    return ". ".join(str(error).split(". ")[:2]).strip()
