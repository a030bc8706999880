"""The source files a result depends on: what its step imports, followed through the project.

They are inputs of the step's rule, so that editing a mechanism retrains its runs and nothing else. Imports are read
from the text, those inside functions too; what is imported by a name made at run time is given as a further module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("harness", "impls")

SETTLED = {  # never an input of training and evaluation, nor is what it imports
    "harness.errors": "words and exit codes",
    "harness.arguments": "reads command lines; their values are in the rule's wildcards and params",
    "harness.files": "writes what it is given",
    "harness.closed": "checks settings; their values are in the run's name",
    "harness.yamlio": "reads settings; their values are in the run's name",
    "harness.config": "holds settings; their values are in the run's name or in the rule's params",
    "harness.spec": "holds settings; their values are in the run's name",
    "harness.equations": "sets what the site shows",
    "harness.runs": "makes the run's name",
    "harness.metrics": "names and units, no numbers",
    "harness.sources": "makes the corpus; its outcome is in the manifest",
    "harness.duplicates": "makes the corpus; its outcome is in the manifest",
    "harness.lock": "decides when, not what",
    "harness.log": "says when",
    "harness.parent": "decides when, not what",
    "harness.held": "decides when, not what",
    "harness.device": "chooses a device, which the record names",
    "harness.provenance": "stamps the record",
    "harness.progress": "shows progress",
}


def job(*modules: str) -> list[str]:
    """Files behind the numbers of these modules: all they import but for `SETTLED`. Paths relative to the project."""
    return list(_paths(modules, frozenset(SETTLED)))


def whole(*modules: str) -> list[str]:
    """Files behind these modules, without exception."""
    return list(_paths(modules, frozenset()))


@cache
def _paths(modules: tuple[str, ...], stop: frozenset[str]) -> tuple[str, ...]:
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in stop:
            found.add(name)
            waiting.extend(imports(name))
    files = (path for name in found if (path := _file(name)) and path.stat().st_size)
    return tuple(sorted(str(path.relative_to(ROOT)) for path in files))


@cache
def imports(module: str) -> frozenset[str]:
    """Modules of the project that this one imports; a missing module or a broken file imports nothing."""
    path = _file(module)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8")) if path else ast.Module([], [])
    except SyntaxError:
        return frozenset()
    names = {name for statement in _statements(tree) for name in _named(statement)}
    parents = {".".join(name.split(".")[:end]) for name in names | {module} for end in range(1, name.count(".") + 1)}
    return frozenset(name for name in names | parents if name.split(".")[0] in PACKAGES and _file(name))


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """All statements below a block but those for type checkers alone; no expressions, of which files mostly consist."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        if part == "body" and _for_checkers(block):
            continue
        for statement in getattr(block, part, ()):
            yield statement
            yield from _statements(statement)


def _for_checkers(node: ast.AST) -> bool:
    """Whether a block is there for type checkers alone: `if TYPE_CHECKING:`, which nothing runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
