"""The study of regression in context: predictors by hand, the pattern's meaning, one head and linear attention."""

from __future__ import annotations

import pytest
import torch

from impls import regression_heads as heads
from impls.study import generator


def measured(effort: float, seed: int = 0, **config) -> dict:
    study = heads.Study(heads.Study.Config(**config), effort)
    return {row.cell: row.value for row in study.measure("trained", seed, "cpu")}


def ideal(omega: float, *u: float) -> heads.Heads:
    """Heads that have the paper's pattern, with KQ = ± omega diag(I, 0)."""
    signs = torch.tensor([1.0 if value > 0 else -1.0 for value in u])
    m_HEE = omega * signs[:, None, None] * torch.diag(torch.tensor([1.0, 1, 1, 1, 1, 0]))
    return heads.Heads(m_HEE, torch.cat([torch.zeros(len(u), 5), torch.tensor(u)[:, None]], dim=1))


def test_predictors_of_one_dimension_by_hand():
    one = lambda *z: torch.tensor([z])  # noqa: E731
    p = heads.Prompts(one(1.0, 2.0, 3.0)[..., None], one(2.0, 4.0, 9.0), one(0.5), one(0.0)[:, 0])
    assert heads.descent(p).item() == pytest.approx(0.5 * ((1 - 2) * 2 + (3 - 2) * 9) / 3)
    assert heads.bayes(p).item() == pytest.approx(0.5 * (2 + 8 + 27) / (1 + 4 + 9 + heads.NOISE))


def test_attention_by_hand():
    p = heads.Prompts(torch.tensor([[[1.0], [0.0]]]), torch.tensor([[3.0, 5.0]]), torch.tensor([[2.0]]), torch.zeros(1))
    head = heads.Heads(torch.tensor([[[0.5, 7.0], [0.0, 7.0]]]), torch.tensor([[0.0, 2.0]]))
    e = torch.tensor(1.0).exp().item()  # scores 0.5 · 2 · (1, 0)
    assert heads.predict(p, head, "softmax").item() == pytest.approx(2 * (3 * e + 5) / (e + 1))
    assert heads.predict(p, head, "linear").item() == pytest.approx(2 * 3)
    assert heads.predict(p, head, "linear_mean").item() == pytest.approx(3)


def test_opposite_heads_are_a_debiased_step_and_one_head_is_not():
    p = heads.prompts(2000, 40, 5, generator(0, "test"), "cpu")
    step_B = heads.descent(p)

    def unexplained(yhat_B: torch.Tensor) -> float:
        left_B = yhat_B - step_B * (yhat_B @ step_B) / (step_B @ step_B)
        return float(left_B.square().sum() / yhat_B.square().sum())

    assert unexplained(heads.predict(p, ideal(0.1, 5.0, -5.0), "softmax")) < 0.01
    assert unexplained(heads.predict(p, ideal(0.1, 5.0), "softmax")) > 0.3


def test_patterns_of_ideal_and_of_drawn_weights():
    assert heads.patterns(ideal(0.3, 2.0, -1.5, -0.5)) == pytest.approx(
        {"kq_pattern": 1, "ov_pattern": 1, "ov_sum": 0}, abs=1e-6
    )
    assert heads.patterns(ideal(0.3, 2.0, 1.0))["ov_sum"] == 1
    draws = generator(0, "weights")
    found = heads.patterns(heads.Heads(torch.randn(200, 6, 6, generator=draws), torch.randn(200, 6, generator=draws)))
    assert found["kq_pattern"] < 0.1
    assert found["ov_pattern"] == pytest.approx(1 / 6, abs=0.05)


def test_four_heads_find_the_pattern_and_one_head_cannot():
    four, one = measured(0.4), measured(0.1, heads=1)
    assert four["weights", None, "ov_sum"] < 0.05 < 0.9 < one["weights", None, "ov_sum"]
    assert four["predictor", None, "unexplained"] < 0.03 < 0.1 < one["predictor", None, "unexplained"]
    assert four["risk", 40, "over_bayes"] < one["risk", 40, "over_bayes"] - 0.5
    assert four["weights", None, "kq_pattern"] > 0.8


def test_a_sum_over_the_prompt_does_not_survive_longer_prompts_and_a_mean_does():
    by_sum, by_mean = measured(0.1, attention="linear"), measured(0.1, attention="linear_mean")
    assert by_sum["risk", 320, "over_bayes"] > 50 > 3 > by_mean["risk", 320, "over_bayes"]


def test_it_measures_its_cells_and_the_same_again():
    study = heads.Study(heads.Study.Config(heads=2), 0.005)
    rows = [row for part in study.parts() for row in study.measure(part, 3, "cpu")]
    assert sorted(map(str, study.cells())) == sorted(str(row.cell) for row in rows)
    assert rows == [row for part in study.parts() for row in study.measure(part, 3, "cpu")]


@pytest.mark.parametrize(
    ("config", "fault"), [({"heads": 0}, "heads=0 is below 1"), ({"attention": "relu"}, "'relu' is none of softmax")]
)
def test_a_bad_argument_is_refused(config, fault):
    with pytest.raises(ValueError, match=fault):
        heads.Study.Config(**config)
