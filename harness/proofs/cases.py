"""The mechanisms and settings that are proved, and how a mixer is made ready for a check.

What is proved is what is run: each mechanism with its default arguments and with those of every run of every paper.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import impls
from harness import yamlio
from impls.base import TokenMixer

PAPERS = Path(__file__).parents[2] / "papers"
TRAIN_LENGTH = 64  # what an argument "train_length" becomes here
WIDTHS = (32, 48, 96, 64, 128)  # d_model: the first that suits the mechanism


class Case(NamedTuple):
    """A mechanism and its arguments."""

    impl: str
    args: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return "-".join([self.impl, *(f"{name}={value}" for name, value in self.args)])

    @property
    def setting(self) -> str:
        """The arguments in words; `default` where none is given."""
        return ", ".join(f"{name}={value}" for name, value in self.args) or "default"


@cache
def cases_by_impl() -> dict[str, list[Case]]:
    """Default arguments, and those of each run of each paper. Raises UserError for a file that is not YAML."""
    found = defaultdict(list, {name: [Case(name, ())] for name in impls.names()})
    for path in sorted(PAPERS.glob("*.yaml")):
        runs = (yamlio.read(path).value or {}).get("runs") or {}
        for run in runs.values() if isinstance(runs, dict) else ():
            if "impl" not in run:  # a model of the Hub
                continue
            args = {n: TRAIN_LENGTH if z == "train_length" else z for n, z in (run.get("args") or {}).items()}
            case = Case(run["impl"], tuple(sorted(args.items())))
            if case.impl in found and case not in found[case.impl]:
                found[case.impl].append(case)
    return found


def build(case: Case, seed: int = 0) -> TokenMixer:
    """The mixer at the smallest width that its arguments allow. Raises ValueError when none of `WIDTHS` suits."""
    why = ValueError("there is no width to try")
    for d_model in WIDTHS:
        torch.manual_seed(seed)
        try:
            mixer = impls.build(case.impl, d_model, dict(case.args))
        except ValueError as error:
            why = error
            continue
        mixer.tested_width = d_model  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        return mixer
    raise ValueError(f"no width of {', '.join(map(str, WIDTHS))} suits it: {why}")


def width(mixer: nn.Module) -> int:
    return mixer.tested_width  # pyright: ignore[reportReturnType]


def nudged(case: Case, dtype: torch.dtype = torch.float64) -> TokenMixer:
    return nudge(build(case)).to(dtype)


def nudge(mixer: TokenMixer, seed: int = 7) -> TokenMixer:
    """Noise on every parameter, in evaluation mode."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw)
    return mixer.eval()


def tokens(mixer: nn.Module, T: int, B: int = 2, seed: int = 0) -> Tensor:
    """x_BTD in the dtype of the weights."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, width(mixer), generator=draw, dtype=torch.float64).to(next(mixer.parameters()).dtype)
