"""`attend` and `attend.reference` against vectors of published reference code, with their own checker and tolerances.

The vectors lie in a folder beside the checkout, `shared/oracles`; without it these tests are skipped, and the
equations of `tests/equations` still hold every mechanism that has one.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings

import pytest
import torch

import impls
from tests.conftest import SHARED

ORACLES = SHARED / "oracles"
FOLDERS = {path.name for path in ORACLES.iterdir() if path.is_dir()} if ORACLES.is_dir() else set()

pytestmark = pytest.mark.skipif(not FOLDERS, reason=f"no reference vectors at {ORACLES}")


def checker():
    spec = importlib.util.spec_from_file_location("oracle_check", ORACLES / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("form", ["attend", "reference"])
@pytest.mark.parametrize("name", impls.names())
def test_operator_gives_the_reference_vectors(name, form, dtype):
    if name not in FOLDERS:
        pytest.skip(f"no reference vectors for {name}")
    attend = importlib.import_module(f"impls.{name}").attend
    run_case, faults = checker().run_case, []
    files = sorted((ORACLES / name).glob("*.safetensors"))
    assert files
    for path in files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows, _ = run_case(attend if form == "attend" else attend.reference, path, dtype, True)
        assert rows, f"{path.stem}: nothing compared"
        faults += [f"{path.stem} {what}: {error:.1e} > {tol:.1e}" for what, _, error, tol, good in rows if not good]
    assert not faults, "; ".join(faults)
