"""Two-pass softmax: the pair of floats, exactness where others overflow, and the passes that are counted and timed."""

from __future__ import annotations

import numpy as np
import pytest

from impls.two_pass_kernels import FORMS, LANES, exp_pair, power, traffic, two_pass
from impls.two_pass_softmax import Study, accuracy

SHIFTED = ("two-pass", "recomputing", "reloading")


@pytest.mark.parametrize("x", [0.0, 1.0, -1.0, 88.0, -87.0, 1000.0, -1000.0, 1e5])
def test_an_exponential_is_mantissa_and_exponent(x: float):
    mantissa, exponent = exp_pair(np.float32(x))
    assert 0.7 < mantissa < 1.42  # within half a power of two of 1
    assert np.log(float(mantissa)) + float(exponent) * np.log(2) == pytest.approx(x, abs=1e-4, rel=1e-6)


def test_powers_of_two_by_their_bits():
    assert [float(power(np.float32(n))) for n in (0, 1, -3, 127, -126)] == [1, 2, 1 / 8, 2.0**127, 2.0**-126]
    assert float(power(np.float32(-127))) == float(power(np.float32(-1e9))) == 0


@pytest.mark.parametrize("form", SHIFTED)
@pytest.mark.parametrize("size", [1, 3, LANES, LANES + 1, 5 * LANES - 1])
def test_softmax_of_any_size(form: str, size: int):
    x = np.random.default_rng(size).normal(0, 3, size).astype(np.float32)
    error, lost = accuracy(FORMS[form], x)
    assert error < 1e-6
    assert lost == 0


def test_softmax_by_hand():
    y = np.empty(3, np.float32)
    two_pass(np.log([1, 2, 5]).astype(np.float32), y)
    np.testing.assert_allclose(y, [1 / 8, 2 / 8, 5 / 8], rtol=1e-6)
    two_pass(np.array([1e4, 1e4, -1e4], np.float32), y)
    np.testing.assert_array_equal(y, [0.5, 0.5, 0])


def test_what_overflows_without_a_shift_is_exact_in_two_passes():
    rng = np.random.default_rng(0)
    for shift in (1e4, -1e4, 1e6, -1e6):
        x = (shift + rng.normal(0, 2, 1000)).astype(np.float32)
        assert all(accuracy(FORMS[form], x)[0] < 1e-5 for form in SHIFTED)
        assert accuracy(FORMS["unshifted"], x) == (1.0, 1.0)


@pytest.mark.parametrize(("form", "floats"), [("two-pass", 3), ("recomputing", 4), ("reloading", 5)])
@pytest.mark.parametrize("size", [3, LANES + 1])
def test_passes_are_counted_in_the_source_that_is_compiled(form: str, floats: int, size: int):
    x = np.random.default_rng(size).normal(0, 3, size).astype(np.float32)
    counted, compiled = np.empty_like(x), np.empty_like(x)
    assert traffic(FORMS[form], x, counted) == floats
    FORMS[form](x, compiled)
    np.testing.assert_allclose(counted, compiled, rtol=1e-5)


def test_the_study_measures_every_cell_and_the_passes_of_its_form(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("impls.two_pass_softmax.KIB", (16, 1024))
    for form, floats in (("two-pass", 3), ("recomputing", 4), ("unshifted", None)):
        study = Study(Study.Config(form=form), 0.05)
        rows = list(study.run(0))
        assert sorted(map(str, study.cells())) == sorted(str(row.cell) for row in rows)
        value = {row.cell: row.value for row in rows}
        assert value.get(("memory", None, "traffic")) == floats
        assert value["time", 16, "growth"] == 1
        assert value["time", 1024, "relative"] > 0
    with pytest.raises(ValueError, match="form='one-pass' is none of"):
        Study.Config(form="one-pass")
