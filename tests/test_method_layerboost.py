"""Layer-aware reduction: the layer that matters is spared, windows do not grow, healing brings the model back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import log_softmax

from impls import layerboost
from tests.methods import assert_causal_and_decodes, base, calibration, difference, made

ORDERS: tuple[Any, ...] = ("sensitivity", "reverse")


def lame(quiet: int):
    """(a model of two layers whose layer `quiet` writes next to nothing, rows that it predicts well)."""
    model = base()
    with torch.no_grad():
        model.layers[quiet].mixer.out.weight *= 1e-3
        rows = [(inputs_BT, model(inputs_BT).argmax(dim=-1)) for inputs_BT, _ in calibration()]
    return model, rows


@pytest.mark.parametrize("quiet", [0, 1])
def test_the_layer_that_matters_keeps_its_attention(quiet: int):
    model, rows = lame(quiet)
    rises = layerboost.sensitivity(model, rows)
    assert rises[1 - quiet] > 10 * abs(rises[quiet])
    for order, spared in zip(ORDERS, (1 - quiet, quiet), strict=True):
        method = layerboost.Method(layerboost.Method.Config(full=0.5, window=3, order=order))
        windows = method.choose(model, rows, 0)["windows"]
        assert windows[spared] is None
        assert windows[1 - spared] == 3


def test_sensitivity_leaves_the_model_as_it_was():
    model, rows = lame(0)
    before = copy.deepcopy(model)
    layerboost.sensitivity(model, rows)
    assert difference(model, before) == 0


def test_sparing_the_sensitive_costs_less_than_sparing_the_other():
    model, rows = lame(0)
    lost: dict[Any, float] = {}
    for order in ORDERS:
        method = layerboost.Method(layerboost.Method.Config(full=0.5, removed=0.5, order=order))
        changed = method.install(copy.deepcopy(model), method.choose(model, rows, 0))
        lost[order] = layerboost.loss(changed, rows) - layerboost.loss(model, rows)
    assert lost["sensitivity"] < 0.1 * lost["reverse"]


def test_a_window_sees_the_last_tokens_alone_and_keeps_no_more():
    model, _ = made(layerboost, base(layers=1), full=0.0, window=5)
    ids_BT = calibration()[0][0]
    A_BHTS = model.layers[0].mixer.weights(torch.randn(1, 12, 32).double())
    assert (A_BHTS > 0).sum(dim=-1)[0, 0].tolist() == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5]
    assert (A_BHTS[0, 0, -1, -5:] > 0).all()
    state = model.prefill(ids_BT)[1]
    assert model.step(ids_BT[:, 0], state)[1][0].mixer.k_BHSK.shape[2] == 5


def test_uniform_windows_read_as_much():
    model = base()
    _, mixed = made(layerboost, model, full=0.5, window=4)
    _, uniform = made(layerboost, model, full=0.5, window=4, uniform=True)
    assert len(set(uniform["windows"])) == 1
    assert mixed["keys_read"] <= uniform["keys_read"] < mixed["keys_read"] + 0.05
    assert layerboost.pairs(40, None) == 820
    assert layerboost.pairs(40, 4) == 1 + 2 + 3 + 37 * 4


def test_all_layers_kept_are_the_base_bit_for_bit():
    model = base()
    assert difference(made(layerboost, model, full=1.0)[0], model) == 0
    assert difference(made(layerboost, model, full=0.0, window=40)[0], model) < 1e-9


@pytest.mark.parametrize(
    "args", [{"full": 0.5, "window": 5}, {"full": 0.5, "removed": 0.5}, {"full": 0.0, "removed": 0.5, "window": 5}]
)
def test_the_reduced_model_is_causal_and_decodes(args: dict):
    assert_causal_and_decodes(made(layerboost, base(), **args)[0])


def divergence(model, base_model) -> float:
    """KL(p_base || p_model) of a token."""
    with torch.no_grad():
        wanted, found = (log_softmax(m(calibration()[0][0]), dim=-1) for m in (base_model, model))
    return (wanted.exp() * (wanted - found)).sum(dim=-1).mean().item()


def test_healing_brings_the_model_nearer_to_its_base_and_no_steps_change_nothing():
    model = base()
    method = layerboost.Method(layerboost.Method.Config(full=0.5, removed=0.5, heal=40, lr=1e-2))
    changed = method.install(copy.deepcopy(model), method.choose(model, calibration(), 0))
    before, embedding = divergence(changed, model), changed.embedding.weight.clone()
    once = copy.deepcopy(changed)
    for healed in (changed, once):
        method.heal(healed, model, calibration(), 0)
    assert divergence(changed, model) < 0.8 * before
    assert difference(changed, once) == 0
    assert torch.equal(changed.embedding.weight, embedding)
    unhealed = copy.deepcopy(changed)
    layerboost.Method(layerboost.Method.Config(heal=0)).heal(unhealed, model, calibration(), 0)
    assert difference(unhealed, changed) == 0


def test_a_random_choice_depends_on_the_seed():
    model = base()
    drawn = [made(layerboost, model, seed, order="random")[1]["windows"] for seed in range(8)]
    assert drawn[0] == made(layerboost, model, 0, order="random")[1]["windows"]
    assert len({str(windows) for windows in drawn}) == 2


def test_impossible_shares_are_refused():
    with pytest.raises(ValueError, match="are shares"):
        layerboost.Method.Config(full=0.8, removed=0.4)
    with pytest.raises(ValueError, match="window 1 or more"):
        layerboost.Method.Config(window=0)
