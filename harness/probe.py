"""What the checks of `harness.checks` have in common: what a mixer is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from impls.base import ScoreMixer, TokenMixer

WIDTH = 192  # divisible by every usual number of heads, 12 among them
LENGTH = 24  # tokens of an input, and what `train_length` in a run's arguments stands for here
BATCH = 2
SCALES = (0.5, 1.0, 4.0, 12.0)
NUDGE = 0.02
TOLERANCE = 1e-9


class Finding(NamedTuple):
    """Whether the property holds, and the number that says so."""

    holds: bool
    detail: str


def inputs() -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    for scale in SCALES:
        yield scale * torch.randn(BATCH, LENGTH, WIDTH, generator=generator, dtype=torch.float64)


def weights(mixer: TokenMixer) -> list[Tensor]:
    found = [A_BHTS for x_BTD in inputs() if (A_BHTS := mixer.weights(x_BTD)) is not None]
    if not found:
        raise ValueError(f"{type(mixer).__module__} defines no attention weights")
    return found


def visible(mixer: TokenMixer) -> Tensor:
    """All weights of keys at or before their query, in one row."""
    visible_TS = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return torch.cat([A_BHTS[..., visible_TS].flatten() for A_BHTS in weights(mixer)])


def zeros(mixer: TokenMixer) -> tuple[int, str]:
    seen = visible(mixer)
    none = int((seen == 0).sum())
    return none, f"{none:,} of {seen.numel():,} visible weights are exactly 0"


def score_mixer(mixer: TokenMixer) -> ScoreMixer:
    if not isinstance(mixer, ScoreMixer):
        raise ValueError(f"{type(mixer).__module__} has no scores between queries and keys")
    return mixer


def state_sizes(mixer: TokenMixer) -> tuple[int, int]:
    """Numbers in the state of one row after LENGTH and after 4 × LENGTH tokens."""
    x_BTD = torch.cat([next(inputs())[:1]] * 4, dim=1)
    states = (mixer.prefill(x_BTD[:, :t])[1] for t in (LENGTH, 4 * LENGTH))
    short, long = (sum(leaf.numel() for leaf in tree_leaves(state) if isinstance(leaf, Tensor)) for state in states)
    return short, long


def state_maps(mixer: TokenMixer) -> Iterator[Tensor]:
    """M_BHKK of each input: the memory after a token is M times that before it, and what the token writes."""
    for x_BTD in inputs():
        _, state = mixer.prefill(x_BTD[:, :-1])
        name = next((name for name in getattr(state, "_fields", ()) if name.startswith("S")), None)
        if name is None:
            raise ValueError(f"{type(mixer).__module__} keeps no memory that keys write to")
        S_BHKV = getattr(state, name)

        def after(S_BHKV: Tensor, x_BD: Tensor = x_BTD[:, -1], old: Any = state, name: str = name) -> Tensor:
            return getattr(mixer.step(x_BD, old._replace(**{name: S_BHKV}))[1], name)[..., 0]

        base_BHK, columns = after(torch.zeros_like(S_BHKV)), []
        for k in range(S_BHKV.shape[2]):
            unit_BHKV = torch.zeros_like(S_BHKV)
            unit_BHKV[:, :, k, 0] = 1
            columns.append(after(unit_BHKV) - base_BHK)
        yield torch.stack(columns, dim=-1)


def distance(a: Tensor, b: Tensor) -> float:
    """Largest difference, in units of the larger tensor's largest entry where that exceeds one."""
    return float((a - b).abs().max() / max(1.0, float(a.abs().max()), float(b.abs().max())))


def is_zero(error: float, what: str) -> Finding:
    return Finding(error <= TOLERANCE, f"{what}: {error:.2g}")
