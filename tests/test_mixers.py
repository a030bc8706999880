"""The contract of `tests/contract.py`, for every mechanism and every setting that a paper runs."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import impls
from tests import contract
from tests.cases import Case, build, cases_by_impl, nudged, width
from tests.configs import config_is_closed_and_alive

CASES = [case for cases in cases_by_impl().values() for case in cases]
FOLDER = Path(impls.__file__).parent
MAY_IMPORT = ("torch", "impls.ops", "impls.base", "impls.parts", "impls.kernels", "entmax")
MODULE_LINES = 200
LONG = {"hola": 330, "nats_l": 140}  # tokens until a field about blocks of tokens shows

pytestmark = pytest.mark.usefixtures("exact")


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_contract(case: Case, check):
    check(nudged(case))


@pytest.mark.parametrize("name", impls.names())
def test_config_is_closed_and_alive(name):
    d_model = width(build(Case(name, ())))
    config_is_closed_and_alive(importlib.import_module(f"impls.{name}").Mixer, d_model, LONG.get(name, 12))


@pytest.mark.parametrize("name", impls.names())
def test_an_impossible_number_of_heads_is_refused_in_a_sentence(name):
    if "heads" in impls.config(name, {}).__dataclass_fields__:
        with pytest.raises(ValueError, match="heads=5"):
            impls.build(name, 32, {"heads": 5})


@pytest.mark.parametrize("name", impls.names())
def test_module_keeps_to_itself(name):
    """Imports torch, the standard library and what mechanisms share; fits a few screens; says where it is from."""
    source = (FOLDER / f"{name}.py").read_text()
    for imported in imports(source):
        root = imported.split(".")[0]
        assert root in sys.stdlib_module_names or imported.startswith(MAY_IMPORT), f"{name} imports {imported}"
    assert len(source.splitlines()) <= MODULE_LINES
    module = importlib.import_module(f"impls.{name}")
    text = module.__doc__ or ""
    assert re.search(r"arXiv:\d{4}\.\d{4,5}", text), f"{name} cites no arXiv id"
    assert "Differs from" in text, f"{name} does not say where it differs from its source"
    assert callable(module.attend.reference)


def imports(source: str) -> list[str]:
    """Full names: `from impls import ops` is impls.ops."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = node.module == "impls"
            found += [f"impls.{alias.name}" for alias in node.names] if whole else [node.module or ""]
    return found
