"""`tests/vectors.json` holds what the scalar loops of `tests/equations` gave when they were written.

That mechanisms equal their loops and these vectors is proved in `tests/test_mixers.py`; here, that the loops still give
what is stored, so that neither side can change unseen.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from harness.proofs import vectors
from harness.proofs.operator import equations

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("equations/[a-z]*.py"))
CASES = [(name, case) for name in NAMES if hasattr(equations(name), "cases") for case in vectors.cases(name)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_equations_give_what_is_stored(name, case):
    stored = vectors.read()[name][case]
    inputs = vectors.cases(name)[case]
    assert {n: vectors.plain(z) for n, z in inputs.items()} == stored["inputs"], f"run {vectors.COMMAND}"
    y = equations(name).attend(**inputs)
    assert_close(y, torch.tensor(stored["y"], dtype=torch.float64), rtol=1e-12, atol=1e-13)


def test_every_stored_vector_is_of_a_case():
    assert {(name, case) for name, stored in vectors.read().items() for case in stored} == set(CASES)
