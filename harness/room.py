"""Whether what is asked of a model fits into its window."""

from __future__ import annotations


class Misfit(ValueError):
    """A question that a window cannot hold."""


def crowded(budget: int, window: int) -> str | None:
    """Why a generation of `budget` tokens leaves no room for a prompt; None where it does."""
    if 0 < budget < window:
        return None
    return f"it writes up to {budget} tokens, which leaves no room for a prompt in a window of {window}"


def refuse_budget(budget: int, window: int) -> None:
    """Raises Misfit when a generation of `budget` tokens leaves no room for a prompt."""
    if why := crowded(budget, window):
        raise Misfit(why)
