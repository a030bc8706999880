"""Small inputs for the equations, and the file of what they give: `python -m harness.proofs.vectors` writes it.

Inputs are drawn again each time, from a seed that is the mechanism's name; the file stores them beside the result, so
that a generator which draws otherwise is seen for what it is.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.files import read_json, write_atomic

ROOT = Path(__file__).parents[2]
EQUATIONS = "tests/equations"
STORE = ROOT / "tests" / "vectors.json"
COMMAND = "python -m harness.proofs.vectors"
STEP = 1e-5  # of the central difference: its error is of the order of STEP^2


@cache
def cases(name: str) -> dict[str, dict[str, Any]]:
    """By case, all arguments of `attend`. The mechanism must have equations."""
    sizes = importlib.import_module("tests.equations")
    B, H, T, K, V = sizes.B, sizes.H, sizes.T, sizes.K, sizes.V
    draw = torch.Generator().manual_seed(int.from_bytes(name.encode()) % 2**31)
    found = {}
    for case, further in importlib.import_module(f"tests.equations.{name}").cases(draw).items():
        shapes = {"q": (B, H, T, K), "k": (B, H, T, K), "v": (B, H, T, V)}
        qkv = {n: torch.randn(*shape, generator=draw, dtype=torch.float64) for n, shape in shapes.items()}
        found[case] = qkv | further
    return found


def direction(inputs: dict[str, Any]) -> dict[str, Tensor]:
    """A fixed direction in the space of all float inputs."""
    draw = torch.Generator().manual_seed(1)
    floats = {n: z for n, z in inputs.items() if isinstance(z, Tensor) and z.is_floating_point()}
    return {n: torch.randn(z.shape, generator=draw, dtype=z.dtype) for n, z in floats.items()}


def weight_of(y: Tensor) -> Tensor:
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)


def slope(attend: Callable[..., Tensor], inputs: dict[str, Any]) -> Tensor:
    """d/de of the weighted sum of y at inputs + e · direction, by a central difference."""
    along = direction(inputs)
    ends = []
    for sign in (1, -1):
        y = attend(**{n: z + sign * STEP * along[n] if n in along else z for n, z in inputs.items()})
        ends.append((y * weight_of(y)).sum())
    return (ends[0] - ends[1]) / (2 * STEP)


def plain(z: Any) -> Any:
    """As JSON has it."""
    return z.tolist() if isinstance(z, Tensor) else z


def has_equations(name: str) -> bool:
    return (ROOT / EQUATIONS / f"{name}.py").is_file()


@cache
def read() -> dict[str, Any]:
    """What is stored, by mechanism and case; nothing where the project stands without its tests."""
    return read_json(STORE) if STORE.is_file() else {}


def main() -> None:
    stored = {}
    for path in sorted((ROOT / EQUATIONS).glob("[a-z]*.py")):
        module = importlib.import_module(f"tests.equations.{path.stem}")
        if not hasattr(module, "cases"):
            continue
        stored[path.stem] = {
            case: {"inputs": {n: plain(z) for n, z in inputs.items()}, "y": plain(module.attend(**inputs))}
            for case, inputs in cases(path.stem).items()
        }
    write_atomic(STORE, json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
