"""Costs are counted: parameters against the reference's, FLOPs by hand, state that grows only where it must."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import impls
from harness import cost
from harness.config import load_profile, profile_names
from harness.model import Shape, build, shape_of
from harness.tasks import ModelSettings
from impls.base import RecurrentMixer

SETTINGS = ModelSettings(width=64, layers=2, heads=2, mlp=128)
SOFTMAX = shape_of("softmax", {}, SETTINGS, vocab=256)


def test_parameters_are_those_of_the_model():
    D, M, V, L = 64, 128, 256, 2
    layer = 2 * D + 4 * D + 3 * D * D + D * D + 3 * D * M
    assert cost.parameters(SOFTMAX) == V * D + L * layer + D


def test_counting_leaves_the_random_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    cost.match(SOFTMAX, 2)
    cost.flops_per_token(SOFTMAX, 8)
    cost.state_bytes(SOFTMAX, 8)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_reference_matches_itself():
    matched = cost.match(SOFTMAX, heads=2)
    assert matched.shape == SOFTMAX
    assert matched.parameters == matched.reference_parameters
    assert matched.within_budget


@pytest.mark.parametrize("impl", impls.names())
def test_every_mechanism_fits_the_budget(impl: str):
    matched = cost.match(shape_of(impl, {}, SETTINGS, vocab=256), heads=2)
    assert matched.within_budget
    assert matched.parameters == sum(p.numel() for p in build(matched.shape, 1).parameters())
    assert matched.reference_parameters == cost.parameters(SOFTMAX)


@pytest.mark.parametrize("profile", profile_names())
def test_the_mechanisms_of_the_papers_fit_the_budget_of_every_profile(profile: str):
    for name, settings in load_profile(profile).tasks.items():
        if settings.model.width > 512:
            continue  # the same arithmetic, minutes of building
        for impl in ("linear_attention", "retnet", "gla", "delta_net", "gated_delta_net", "sigmoid", "softpick"):
            matched = cost.match(shape_of(impl, {}, settings.model, 512), settings.model.heads)
            assert matched.within_budget, f"{profile} {name} {impl}: {matched}"


def test_the_nearest_width_is_chosen():
    matched = cost.match(shape_of("gated_delta_net", {}, SETTINGS, vocab=256), heads=2)
    for other in (-1, 1):
        near = dataclasses.replace(matched.shape, mlp=matched.shape.mlp + other)
        assert abs(cost.parameters(near) - matched.reference_parameters) >= abs(
            matched.parameters - matched.reference_parameters
        )


def test_a_mixer_too_large_for_the_budget_is_marked():
    tight = ModelSettings(width=64, layers=1, heads=2, mlp=4)
    matched = cost.match(shape_of("retnet", {}, tight, vocab=64), heads=2)
    assert matched.shape.mlp == 1
    assert not matched.within_budget


def test_flops_of_softmax_are_those_counted_by_hand():
    T, D, M, V, L, W = 32, 64, 128, 256, 2, 4
    projections = 2 * (3 * D * D + D * D) + 2 * 3 * D * M
    attention = 2 * 2 * D * T  # scores and weighted values of T keys, all heads together
    assert cost.flops_per_token(SOFTMAX, T) == L * (projections + attention + 2 * D * W) + 2 * D * V


def test_flops_grow_with_length_for_softmax_and_not_for_a_chunked_recurrence():
    linear = shape_of("linear_attention", {}, SETTINGS, vocab=256)
    assert cost.flops_per_token(SOFTMAX, 512) > cost.flops_per_token(SOFTMAX, 128)
    assert cost.flops_per_token(linear, 512) == pytest.approx(cost.flops_per_token(linear, 128), rel=1e-3)


@pytest.mark.parametrize("impl", impls.names())
def test_a_recurrent_state_does_not_grow(impl: str):
    shape = shape_of(impl, {}, SETTINGS, vocab=256)
    recurrent = isinstance(impls.build(impl, 64, shape.args), RecurrentMixer)
    grows = cost.state_bytes(shape, 96) > cost.state_bytes(shape, 48)
    assert grows is not recurrent


def test_state_bytes_of_softmax_are_keys_values_and_the_convolutions_past():
    T, D, L = 40, 64, 2
    assert cost.state_bytes(SOFTMAX, T) == 4 * L * (2 * T * D + 3 * D)


def test_a_shape_says_everything():
    assert {field.name for field in dataclasses.fields(Shape)} == {
        "impl", "args", "vocab", "width", "layers", "mlp", "conv", "alone", "method",
    }  # fmt: skip
