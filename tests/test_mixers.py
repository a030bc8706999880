"""Every property of `harness.proofs`, of every mechanism in every setting that a paper runs."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import impls
from harness.proofs.cases import cases_by_impl
from harness.proofs.properties import PROPERTIES, prove

ASKED = [
    pytest.param(case, property, id=f"{case}-{property.name}")
    for cases in cases_by_impl().values()
    for property in PROPERTIES
    if property.name != "identities"  # they are tests of their own
    for case in (cases[:1] if property.once else cases)
]
FOLDER = Path(impls.__file__).parent
MAY_IMPORT = (
    "torch",
    "impls.ops",
    "impls.base",
    "impls.parts",
    "impls.convs",
    "impls.solvers",
    "impls.decays",
    "impls.kernels",
    "entmax",
)
MODULE_LINES = 200


@pytest.mark.parametrize(("case", "property"), ASKED)
def test_proof(case, property):
    result = prove(case, property)
    if result.status == "missing":
        pytest.skip(result.text)
    assert result.status in ("ok", "exempt", "not applicable"), result.text


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
