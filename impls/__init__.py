"""One module a mechanism, found by file name: `build("gla", 128, {"heads": 4})`.

The mechanisms of `papers/` are the modules here that define `class Mixer`; there is no registry.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from impls.base import TokenMixer

NOT_MECHANISMS = {"__init__", "base", "ops", "parts", "solvers", "decays"}


def names() -> list[str]:
    """Every mechanism, in alphabetical order."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_MECHANISMS)


def config(name: str, args: dict[str, Any]) -> Any:
    """The frozen `Mixer.Config` of these arguments. Raises TypeError for an unknown one, ValueError for a bad value."""
    return importlib.import_module(f"impls.{name}").Mixer.Config(**args)


def build(name: str, d_model: int, args: dict[str, Any]) -> TokenMixer:
    """A mixer of width `d_model`; weights are drawn from torch's global generator, which the caller seeds."""
    return importlib.import_module(f"impls.{name}").Mixer(d_model, config(name, args))
