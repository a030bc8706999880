"""Head pruning: importance is the gradient of a mask, the heads that matter stay, and what is cut is gone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import impls
from impls import sixteen_heads
from tests.methods import assert_causal_and_decodes, base, calibration, difference, made


def loss_with(model: Any, xi_LH: Tensor, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """Total loss with each head's output times its xi."""
    hooks = [
        layer.mixer.out.register_forward_pre_hook(lambda _, args, xi_H=xi_H: (args[0] * xi_H.repeat_interleave(8),))
        for layer, xi_H in zip(model.layers, xi_LH, strict=True)
    ]
    try:
        return cross_entropy(model(inputs_BT).flatten(0, 1), targets_BT.flatten(), reduction="sum")
    finally:
        for hook in hooks:
            hook.remove()


def test_importance_is_the_gradient_of_a_head_mask():
    """With one row of one token the mean of |d/dxi| over tokens is |d/dxi| itself."""
    model = base()
    inputs_BT, targets_BT = (z[:1, :1] for z in calibration()[0])
    xi_LH = torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
    (grad_LH,) = torch.autograd.grad(loss_with(model, xi_LH, inputs_BT, targets_BT), xi_LH)
    expected = grad_LH.abs() / grad_LH.norm(dim=1, keepdim=True)
    found = torch.stack(sixteen_heads.importance(model, [(inputs_BT, targets_BT)]))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_head_that_alone_is_read_is_the_one_that_stays():
    model = base()
    with torch.no_grad():
        for layer, head in ((0, 2), (1, 3)):
            others = torch.arange(32) // 8 != head
            model.layers[layer].mixer.out.weight[:, others] *= 1e-3
    pruned, choices = made(sixteen_heads, model, keep=0.25)
    assert choices["kept"] == [[2], [3]]
    worst, other = made(sixteen_heads, model, keep=0.25, order="reverse")
    assert 2 not in other["kept"][0]
    assert 3 not in other["kept"][1]
    assert difference(pruned, model) < 0.1 * difference(worst, model)


def test_importance_costs_less_than_chance_and_the_reverse_most():
    """Of heads that write little and much. The mean over draws; not every draw, for a draw may be lucky."""
    model = base()
    inputs_BT, _ = calibration()[0]
    with torch.no_grad():
        for layer, loudness in zip(model.layers, ([0.1, 1.0, 0.03, 0.3], [0.3, 0.1, 1.0, 0.03]), strict=True):
            layer.mixer.out.weight *= torch.tensor(loudness).repeat_interleave(8)
        targets_BT = model(inputs_BT).argmax(dim=-1)  # a text that this model is good at

    def loss(**args) -> float:
        method = sixteen_heads.Method(sixteen_heads.Method.Config(keep=0.5, **args))
        losses = []
        for seed in range(8 if args["order"] == "random" else 1):
            choices = method.choose(model, [(inputs_BT, targets_BT)], seed)
            with torch.no_grad():
                logits_BTV = method.install(copy.deepcopy(model), choices)(inputs_BT)
            losses.append(cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten()).item())
        return sum(losses) / len(losses)

    assert loss(order="importance") < loss(order="random") < loss(order="reverse")


def test_prune_takes_the_least_important_and_leaves_a_head_in_every_layer():
    scores = [[0.1, 0.9, 0.2], [0.3, 0.5, 0.4]]
    assert sixteen_heads.prune(scores, 0, [0, 1], 1) == [[0, 1, 2], [0, 1, 2]]
    assert sixteen_heads.prune(scores, 2, [0, 1], 1) == [[1], [0, 1, 2]]
    assert sixteen_heads.prune(scores, 3, [0, 1], 1) == [[1], [1, 2]]
    assert sixteen_heads.prune(scores, 6, [0, 1], 1) == [[1], [1]]
    assert sixteen_heads.prune(scores, 6, [1], 2) == [[0, 1, 2], [1, 2]]


def test_a_cut_head_is_a_head_of_mask_zero_and_takes_its_weights_along():
    model = base()
    pruned, choices = made(sixteen_heads, model, keep=0.5)
    xi_LH = torch.zeros(2, 4, dtype=torch.float64)
    for layer, kept in enumerate(choices["kept"]):
        xi_LH[layer, kept] = 1
    inputs_BT, targets_BT = calibration()[0]
    with torch.no_grad():
        expected = loss_with(model, xi_LH, inputs_BT, targets_BT)
        found = cross_entropy(pruned(inputs_BT).flatten(0, 1), targets_BT.flatten(), reduction="sum")
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weights = [sum(p.numel() for layer in m.layers for p in layer.mixer.parameters()) for m in (model, pruned)]
    assert weights[1] * 2 == weights[0]
    assert pruned.prefill(inputs_BT)[1][0].mixer.k_BHSK.shape[1] == len(choices["kept"][0])


def test_one_layer_down_to_a_head():
    model = base()
    _, first = made(sixteen_heads, model, keep=0.0, layer=0)
    _, last = made(sixteen_heads, model, keep=0.0, layer=-1)
    assert [len(kept) for kept in first["kept"]] == [1, 4]
    assert [len(kept) for kept in last["kept"]] == [4, 1]
    with pytest.raises(ValueError, match="layer=2 of a model of 2"):
        made(sixteen_heads, model, layer=2)


def test_all_heads_are_the_base_bit_for_bit():
    model = base()
    assert difference(made(sixteen_heads, model, keep=1.0)[0], model) == 0


@pytest.mark.parametrize("order", ["importance", "random"])
def test_the_pruned_model_is_causal_and_decodes(order: str):
    assert_causal_and_decodes(made(sixteen_heads, base(), keep=0.5, order=order)[0])


def test_choices_depend_on_the_seed_only_where_they_are_drawn():
    model = base()
    chosen = [made(sixteen_heads, model, seed, keep=0.5)[1]["kept"] for seed in (0, 1)]
    drawn = [made(sixteen_heads, model, seed, keep=0.5, order="random")[1]["kept"] for seed in (0, 1, 0)]
    assert chosen[0] == chosen[1]
    assert drawn[0] != drawn[1]
    assert drawn[0] == drawn[2]


def test_another_mechanism_is_refused():
    model = base()
    model.layers[1].mixer = impls.build("retnet", 32, {"heads": 2})
    with pytest.raises(ValueError, match="layer 1 of the base is retnet; this method changes softmax attention"):
        made(sixteen_heads, model)
