"""What follows from the equations of a mechanism: the tests in `tests/test_identities*.py` that use its module.

They are run as they stand, by pytest in this process: one statement of each, read by both.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from harness.proofs.cases import Case
from harness.proofs.gauge import Found, Missing, Violation

ROOT = Path(__file__).parents[2]
FILES = "tests/test_identities*.py"
SHOWN = 3  # names of identities in the answer


def identities(case: Case) -> Found:
    """What follows from its equations and must hold whatever its inputs: limits, sums of weights, other mechanisms."""
    wanted = [test for test, modules in tests().items() if case.impl in modules]
    if not wanted:
        raise Missing(f"no identity is stated: add a test that uses it to a file {FILES}")
    outcomes = Outcomes()
    arguments = [f"{ROOT / test}" for test in wanted]
    arguments += ["-c", "/dev/null", "--rootdir", str(ROOT), "-p", "no:cacheprovider", "-p", "no:xdist"]
    import pytest  # half a second that only this proof needs

    with redirect_stdout(io.StringIO()) as told, redirect_stderr(told):
        code = pytest.main(arguments, plugins=[outcomes])
    if outcomes.failed:
        test, why = next(iter(outcomes.failed.items()))
        raise Violation(f"{len(outcomes.failed)} of {outcomes.passed + len(outcomes.failed)} fail, first {test}: {why}")
    if code or not outcomes.passed:
        raise Violation(f"pytest ended with code {int(code)}: {' '.join(told.getvalue().split())[-200:]}")
    names = [test.partition("::test_")[2].replace("_", " ") for test in wanted]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return Found(outcomes.passed, None, f"cases hold: {'; '.join(names[:SHOWN])}{more}")


class Outcomes:
    """A pytest plugin that counts what passed and keeps what failed."""

    def __init__(self):
        self.passed, self.failed = 0, {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[report.nodeid.rpartition("::")[2]] = " ".join(str(getattr(crash, "message", "")).split())[:200]
        elif report.when == "call" and report.passed:
            self.passed += 1


@cache
def tests() -> dict[str, frozenset[str]]:
    """By `file::test`, the modules of `impls` that it uses, itself or through what its file defines."""
    return {
        f"{path.relative_to(ROOT)}::{name}": modules
        for path in sorted(ROOT.glob(FILES))
        for name, modules in _used(ast.parse(path.read_text(encoding="utf-8")))
    }


def _used(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    imported = {
        alias.asname or alias.name: alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "impls"
        for alias in node.names
    }
    names = {
        target: {leaf.id for leaf in ast.walk(node) if isinstance(leaf, ast.Name)}
        | {leaf.arg for leaf in ast.walk(node) if isinstance(leaf, ast.arg)}
        for node in tree.body
        for target in _defined(node)
    }
    for test in (name for name in names if name.startswith("test_")):
        seen, waiting = set(), [test]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(names.get(name, ()))
        yield test, frozenset(imported[name] for name in seen & imported.keys())


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)]
