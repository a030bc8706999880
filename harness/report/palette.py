"""One colour, dash and shape for each mechanism, the same on every page.

Two sets of eight colours, for white and for dark paper: each stands out from its paper (contrast at least 3), and
the closest two stay apart under simulated colour blindness (Machado, Oliveira & Fernandes 2009). Dash and shape say
the same once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LIGHT = ("#1c222b", "#d77909", "#3041e2", "#008763", "#900974", "#2c8fdd", "#722213", "#5e6900")
DARK = ("#e7effc", "#f87214", "#4c70ff", "#35ae8f", "#c257ae", "#6fc3fc", "#dd3a2c", "#dcd34b")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (7, 3), (2, 2), (7, 2, 2, 2))

INK, MUTED, GRID, RULE = "#3c4350", "#5b6370", "#e4e6ea", "#7b828e"
DARK_INK = {INK: "#c9ced8", MUTED: "#a4abb8", GRID: "#2d323b", RULE: "#8d94a1"}


@dataclass(frozen=True)
class Style:
    """How one mechanism is drawn; `index` numbers its colour."""

    index: int
    colour: str
    shape: str
    dash: tuple[int, ...]


def styles(impls: Sequence[str]) -> dict[str, Style]:
    """A style for each mechanism by its place in the list, so that one added at the end changes no other."""
    n = len(LIGHT)
    return {
        impl: Style(i % n, LIGHT[i % n], SHAPES[(i + i // n) % n], DASHES[(i // n) % len(DASHES)])
        for i, impl in enumerate(impls)
    }


def dark_rules() -> list[tuple[str, str]]:
    """(colour in a picture, colour in its place on dark paper)."""
    return [*zip(LIGHT, DARK, strict=True), *DARK_INK.items()]
