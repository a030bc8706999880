"""When a sink emerges: the forms of attention, and that the sink moves with softmax, data and loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from impls.sink_emergence import LENGTH, PLACES, Study, weights

Found = dict[tuple[str, int], float]


def found(effort: float = 0.25, seed: int = 0, **args: Any) -> Found:
    study = Study(Study.Config(**args), effort)
    rows = list(study.run(seed))
    assert [row.cell for row in rows] == study.cells()
    return {(row.metric, row.length or 0): row.value for row in rows}


def test_weights_by_hand():
    q_THE, k_THE, bias = torch.ones(1, 1, 3, 1), torch.zeros(1, 1, 3, 1), torch.zeros(1, 1, 1)
    last = {
        name: weights(name, q_THE, k_THE, bias)[0, 0, 2]
        for name in ("softmax", "key_bias", "sigmoid", "sigmoid_normalised")
    }
    torch.testing.assert_close(last["softmax"], torch.full((3,), 1 / 3))
    torch.testing.assert_close(last["key_bias"], torch.full((3,), 1 / 4))
    torch.testing.assert_close(last["sigmoid"], torch.full((3,), 1 / 2))
    torch.testing.assert_close(last["sigmoid_normalised"], torch.full((3,), 1 / 3))


def test_the_anchor_changes_places_and_what_stands_before_is_not_scored():
    x_BTD, wanted_BTD, scored_BT = Study(Study.Config(anchor=4)).batch(torch.Generator().manual_seed(0), 64, "cpu")
    assert (x_BTD[:, 4, 0] == 1).all()
    assert not x_BTD[:, torch.arange(LENGTH) != 4, 0].any()
    assert not scored_BT[:, :4].any()
    assert scored_BT[:, 4:].all()
    assert not wanted_BTD[:, :6].any()
    assert wanted_BTD.any()


def test_a_sink_emerges_with_softmax_and_with_training_alone():
    softmax = found()
    assert softmax["first_token_mass", 1024] > 0.9
    assert softmax["sink_rate", 1024] > 0.9
    assert softmax["sink_rate", PLACES["steps"][0]] < 0.1
    relaxed = found(attention="sigmoid")
    assert relaxed["first_token_mass", 1024] < 0.5 * softmax["first_token_mass", 1024]


def test_the_sink_goes_where_data_and_loss_put_it():
    assert found(anchor=4)["anchor_mass", 1024] > 0.8
    assert found(anchor=4)["first_token_mass", 1024] < 0.05
    assert found(loss="trigger")["first_token_mass", 1024] < 0.4


def test_rows_have_their_own_places():
    assert {at for _, at in found(0.01, vary="rows")} == set(PLACES["rows"])
    assert found(0.01) == found(0.01) != found(0.01, seed=1)
    with pytest.raises(ValueError, match="vary='colour' is none of steps, rows"):
        Study.Config(vary="colour")
