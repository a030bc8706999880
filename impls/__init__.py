"""One module for each thing that is measured, found by file name: `build("gla", 128, {"heads": 4})`.

What a module is, the class that it defines says; there is no registry.

    class Mixer     a mechanism: it is trained, then measured by the suites      (impls.base)
    class Study     a controlled experiment that gives measurements of its own   (impls.study)
    class Method    changes a trained model, which the suites then measure       (impls.method)

Modules without any of them hold what several share.
"""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from impls.base import TokenMixer
    from impls.method import Method
    from impls.study import Study

Kind = Literal["mechanism", "study", "method"]
CLASSES: dict[str, Kind] = {"Mixer": "mechanism", "Study": "study", "Method": "method"}
FRAMES = {"__init__", "base", "study", "method"}  # the classes that the modules' own derive from


def names() -> list[str]:
    """Every mechanism, in alphabetical order."""
    return _of("mechanism")


def studies() -> list[str]:
    """Every study, in alphabetical order."""
    return _of("study")


def methods() -> list[str]:
    """Every method, in alphabetical order."""
    return _of("method")


def kind(name: str) -> Kind | None:
    """What the module of this name is; None where there is none, or where it only holds what others share."""
    path = Path(__file__).with_name(f"{name}.py")
    return _kind(path, path.stat().st_mtime_ns) if path.is_file() and name not in FRAMES else None


def config(name: str, args: dict[str, Any]) -> Any:
    """The frozen `Config` of these arguments. Raises TypeError for an unknown one, ValueError for a bad value."""
    return _class(name).Config(**args)


def build(name: str, d_model: int, args: dict[str, Any]) -> TokenMixer:
    """A mixer of width `d_model`; weights are drawn from torch's global generator, which the caller seeds."""
    return _class(name)(d_model, config(name, args))


def build_study(name: str, args: dict[str, Any], effort: float = 1.0) -> Study:
    """A study; `effort` in (0, 1] scales its steps and samples."""
    return _class(name)(config(name, args), effort)


def build_method(name: str, args: dict[str, Any], effort: float = 1.0) -> Method:
    """A method; `effort` in (0, 1] scales what it calibrates and heals with."""
    return _class(name)(config(name, args), effort)


def _of(wanted: Kind) -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if kind(path.stem) == wanted)


@cache
def _kind(path: Path, stamp: int) -> Kind | None:
    """By its text, without importing it. A broken module is taken for a mechanism: its runs fail and say why."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError):
        return "mechanism"
    defined = (node.name for node in body if isinstance(node, ast.ClassDef))
    return next((CLASSES[name] for name in defined if name in CLASSES), None)


def _class(name: str) -> Any:
    module = importlib.import_module(f"impls.{name}")
    return next(getattr(module, given) for given, what in CLASSES.items() if what == (kind(name) or "mechanism"))
