"""Every mechanism equals its independent transcription in `tests/equations/<impl>.py`.

The transcription shares nothing with `impls` but the weights of the projections, so a bug that is wrong everywhere
alike (a missing 1/sqrt(K), exp for elu + 1) shows here. `tests/vectors.json` holds what the transcriptions gave when
they were written: neither side can change unseen.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from tests import vectors
from tests.cases import Case, cases_by_impl, nudged, width

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("equations/[a-z]*.py"))
equation = {name: importlib.import_module(f"tests.equations.{name}") for name in NAMES}
OPERATORS = [(name, case) for name in NAMES if hasattr(equation[name], "cases") for case in vectors.cases(name)]
LAYERS = [case for name in NAMES if hasattr(equation[name], "forward") for case in cases_by_impl()[name]]


@pytest.mark.parametrize(("name", "case"), OPERATORS)
@pytest.mark.parametrize("form", ["attend", "reference"])
def test_operator_equals_its_equations(name, case, form):
    attend = importlib.import_module(f"impls.{name}").attend
    check_operator(attend if form == "attend" else attend.reference, name, case)


def check_operator(attend, name: str, case: str) -> None:
    """Values, and the slope of one weighted sum of them along one direction in all float inputs at once."""
    inputs = vectors.cases(name)[case]
    assert_close(attend(**inputs), equation[name].attend(**inputs), rtol=1e-9, atol=1e-11)
    along = vectors.direction(inputs)
    moving = {n: z.clone().requires_grad_() if n in along else z for n, z in inputs.items()}
    y = attend(**moving)
    grads = torch.autograd.grad((y * vectors.weight_of(y)).sum(), [moving[n] for n in along], allow_unused=True)
    slope = sum((g * d).sum() for g, d in zip(grads, along.values(), strict=True) if g is not None)
    assert_close(slope, vectors.slope(equation[name].attend, inputs), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "case"), OPERATORS)
def test_equations_give_what_is_stored(name, case):
    stored = vectors.read()[name][case]
    inputs = vectors.cases(name)[case]
    assert {n: vectors.plain(z) for n, z in inputs.items()} == stored["inputs"], "run python -m tests.vectors"
    y = equation[name].attend(**inputs)
    assert_close(y, torch.tensor(stored["y"], dtype=torch.float64), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_layer_equals_its_equations(case: Case):
    check_layer(nudged(case), case.impl)


def check_layer(mixer: torch.nn.Module, name: str) -> None:
    x_BTD = torch.randn(2, 7, width(mixer), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with torch.no_grad():
        expected_BTD = torch.stack([equation[name].forward(mixer, x_TD) for x_TD in x_BTD])
        assert_close(mixer(x_BTD), expected_BTD, rtol=1e-9, atol=1e-11)
