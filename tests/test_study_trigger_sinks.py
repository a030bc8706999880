"""Trigger-conditional averaging: its rows, its forms of attention, and that the sink goes with softmax."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impls.study import generator
from impls.trigger_sinks import Study, answer, rows, statistics, weights


def found(effort: float, part: str, **args: Any) -> dict[str, float]:
    study = Study(Study.Config(**args), effort)
    return {row.metric: row.value for row in study.run(0) if row.task == part}


def test_rows_are_the_mean_of_what_came_before_the_trigger():
    x_BTD, y_BTD, trigger_B = rows(generator(0), 50, length=8, width=6)
    for x_TD, y_TD, j in zip(x_BTD, y_BTD, trigger_B.tolist(), strict=True):
        assert x_TD[0].tolist() == [1, 0, 0, 0, 0, 0]
        assert x_TD[j, :2].tolist() == [0, 1]
        assert x_TD[j, -1] == 0
        torch.testing.assert_close(y_TD[j], x_TD[1 : j + 1].mean(0))
        assert not y_TD[torch.arange(8) != j].any()
    assert sorted(set(trigger_B.tolist())) == [2, 3, 4, 5, 6, 7]


def test_weights_by_hand():
    scores = torch.tensor([[0.0, 9.0, 9.0], [1.0, -1.0, 9.0], [2.0, 0.0, 4.0]])
    relu = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 2.0]])
    torch.testing.assert_close(weights(scores, "relu"), relu)
    softmax = weights(scores, "softmax")
    torch.testing.assert_close(softmax.sum(-1), torch.ones(3))
    torch.testing.assert_close(softmax[1, 0], torch.tensor(2.0).sigmoid())
    assert not softmax.triu(1).any()


def test_statistics_of_a_planted_sink():
    _, wanted_BTD, trigger_B = rows(generator(0), 20, length=6, width=6)
    A_BLHTS = torch.zeros(20, 1, 2, 6, 6)
    A_BLHTS[:, :, 0, :, 0] = 0.1  # little weight, all of it on the first token
    A_BLHTS[:, :, 1] = torch.eye(6)
    made = statistics(wanted_BTD / 2, A_BLHTS, wanted_BTD, trigger_B)
    assert made == pytest.approx({
        "first_token_mass": 0.05, "first_token_mass_normalised": 0.5, "sink_rate": 0.5, "strongest": 1.0,
        "error": 0.25, "default_norm": 0.0,
    })  # fmt: skip


def test_models_of_several_layers_read_what_the_ones_before_have_added():
    x_BTD = torch.randn(2, 4, 3, generator=generator(0))
    one = torch.randn(4, 2, 3, 3, generator=generator(1))
    first, _ = answer(x_BTD, [one], "relu")
    both, A_BLHTS = answer(x_BTD, [one, one], "relu")
    torch.testing.assert_close(both, first + answer(x_BTD + first, [one], "relu")[0])
    assert A_BLHTS.shape == (2, 2, 2, 4, 4)


@pytest.mark.parametrize("part", ["l1h1", "l2h2"])
def test_softmax_has_a_sink_and_relu_has_none(part: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Study, "parts", lambda self: [part])
    softmax, relu = (found(0.4, part, attention=attention) for attention in ("softmax", "relu"))
    assert max(softmax["error"], relu["error"]) < 0.1
    assert softmax["strongest"] > 0.7
    assert softmax["sink_rate"] >= 0.5
    assert relu["strongest"] < 0.1
    assert relu["sink_rate"] == 0


def test_equal_seeds_give_equal_rows_of_every_cell():
    study = Study(Study.Config(), 0.005)
    first = list(study.run(3))
    assert first == list(study.run(3))
    assert first != list(study.run(4))
    assert [row.cell for row in first] == study.cells()
    with pytest.raises(ValueError, match="'gelu' is none of softmax, relu"):
        Study.Config(attention="gelu")
