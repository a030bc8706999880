"""Properties of a mechanism that hold exactly or not at all."""

from __future__ import annotations


def names() -> list[str]:
    return []
