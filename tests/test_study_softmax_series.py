"""The study of softmax attention as a sum of recurrences: its equations by hand, and order 1 against order 8."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from impls import softmax_series as series


def measured(effort: float, part: str, seed: int = 0, **config) -> dict:
    study = series.Study(series.Study.Config(**config), effort)
    return {row.cell: row.value for row in study.measure(part, seed, "cpu")}


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_series_is_that_of_the_exponential():
    s = torch.tensor([0.0, 2.0, -1.0], dtype=torch.float64)
    assert torch.allclose(series.series(s, 3), torch.tensor([1, 1 + 2 + 2 + 8 / 6, 1 - 1 + 0.5 - 1 / 6]).double())
    assert torch.equal(series.series(s, None), s.exp())
    assert float((series.series(s, 20) - s.exp()).abs().max()) < 1e-12


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_recurrence_gives_the_polynomial_of_scores(order):
    q, k, v = drawn(2, 7, 3), drawn(3, 7, 3)[:2] - 0.3, drawn(2, 7, 5)
    parallel = series.series(q @ k.mT * 3**-0.5, order).tril() @ v
    assert torch.allclose(series.recurrence(q, k, v, order), parallel, rtol=1e-12, atol=1e-12)


def test_each_denominator_is_what_it_is_called():
    q, k, v = drawn(4, 8), drawn(4, 6, 8), drawn(4, 6, 3)
    s = (q[:, None] @ k.mT)[:, 0] * 8**-0.5
    plain = torch.einsum("bs,bsv->bv", s.softmax(-1), v)
    assert torch.allclose(series.attend(q, k, v, None, "softmax"), plain)
    assert torch.allclose(series.attend(q, k, v, None, "norm"), normalize(plain, dim=-1))
    count = torch.einsum("bs,bsv->bv", s.clamp(max=5).exp(), v) / 6
    assert torch.allclose(series.attend(q, k, v, None, "count"), count)
    assert torch.allclose(series.attend(q, k, v, None, "gate", torch.zeros(4).double()), count * 6 / 2)


@pytest.mark.parametrize("denominator", series.DENOMINATORS)
@pytest.mark.parametrize("order", [None, 1, 8])
def test_large_scores_stay_finite(denominator, order):
    q, k, v = 20 * drawn(4, 8).float(), 20 * drawn(4, 6, 8).float(), drawn(4, 6, 3).float()
    assert series.attend(q, k, v, order, denominator, torch.zeros(4)).isfinite().all()


def test_cut_later_it_is_closer_to_softmax():
    found = [measured(0.25, "series")["series", order, "distance"] for order in series.ORDERS]
    assert found == sorted(found, reverse=True)
    assert found[0] > -1.5
    assert found[-1] < -5


@pytest.mark.parametrize("denominator", ["softmax", "norm"])
def test_a_head_of_order_one_looks_up_worse_than_one_of_order_eight(denominator):
    found = measured(0.6, "lookup", denominator=denominator)
    assert found["lookup", None, "nats"] < 0.2 < math.log(series.VALUES)
    assert found["lookup", None, "accuracy"] > 0.95
    excess = [found["lookup-orders", order, "excess"] for order in series.ORDERS]
    assert excess[0] > 0.5 > 0.1 > abs(excess[-1])


def test_it_measures_its_cells_and_the_same_again():
    study = series.Study(series.Study.Config(denominator="gate"), 0.01)
    rows = [row for part in study.parts() for row in study.measure(part, 3, "cpu")]
    assert sorted(map(str, study.cells())) == sorted(str(row.cell) for row in rows)
    assert rows == [row for part in study.parts() for row in study.measure(part, 3, "cpu")]
    assert rows != [row for part in study.parts() for row in study.measure(part, 4, "cpu")]
    assert {row.n for row in rows if row.task != "series"} == {3 * 64}  # questions with 8, 16 and 32 keys


def test_an_unknown_denominator_is_refused():
    with pytest.raises(ValueError, match="'sum' is none of softmax, norm, count, gate"):
        series.Study.Config(denominator="sum")
