"""How a check says what it measured: the largest error it saw, and how large it may be."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

EXACT = 1e-9  # in float64: a thousand times what sums of a few hundred terms round to


class Found(NamedTuple):
    """What a check measured where the property holds."""

    number: float | None  # at most `tolerance` where there is one
    tolerance: float | None
    text: str  # what the number is


class Violation(AssertionError):
    """The property does not hold; `number` says by how much, where that can be said."""

    def __init__(self, text: str, number: float | None = None, tolerance: float | None = None):
        super().__init__(text)
        self.number, self.tolerance = number, tolerance


class NotApplicable(Exception):
    """The property cannot be asked of this mechanism; the text says why."""


class Missing(Exception):
    """What the mechanism would be held against was not written; the text says where it belongs."""


class Gauge:
    """Keeps the largest distance of a check, and ends it at one beyond the tolerance."""

    def __init__(self, tolerance: float = EXACT, scale: float = 1.0):
        self.tolerance, self.scale, self.largest = tolerance, scale, 0.0

    def close(self, a: Tensor, b: Tensor, where: str) -> None:
        """a is within the tolerance of b, entry by entry."""
        if a.shape != b.shape:
            raise Violation(f"{where}: shape {tuple(a.shape)}, not {tuple(b.shape)}")
        self.small(distance(a, b, self.scale), f"{where} is not close")

    def small(self, error: float, where: str) -> None:
        """An error, whatever it is of, that may not be beyond the tolerance."""
        if not error <= self.tolerance:  # nan is not
            raise Violation(f"{where}: {error:.2g} > {self.tolerance:.2g}", error, self.tolerance)
        self.largest = max(self.largest, error)

    def found(self, text: str) -> Found:
        return Found(self.largest, self.tolerance, text)


def distance(a: Tensor, b: Tensor, scale: float = 1.0) -> float:
    """The largest |a - b| / (scale + |b|): relative above the scale, in units of it below; nan where not finite."""
    with torch.no_grad():
        return float(((a - b).abs() / (scale + b.abs())).max()) if a.numel() else 0.0
