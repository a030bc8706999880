"""Each named check, on mechanisms that have the property and on ones that lack it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from harness import checks
from impls.base import TokenMixer

HAVE = [
    ("causal", "softmax"),
    ("step_equals_forward", "softmax"),
    ("step_equals_forward", "delta_net"),
    ("state_constant_in_length", "linear_attention"),
    ("state_constant_in_length", "gated_delta_net"),
    ("state_grows_with_length", "softmax"),
    ("rows_sum_to_one", "softmax"),
    ("rows_need_not_sum_to_one", "sigmoid"),
    ("row_sums_within_unit", "softpick"),
    ("absolute_rows_sum_to_one", "softmax"),
    ("weights_not_negative", "sigmoid"),
    ("weights_exact_zeros", "softpick"),
    ("weights_no_zeros", "softmax"),
    ("zero_row_when_all_scores_negative", "softpick"),
    ("weights_depend_on_own_score", "sigmoid"),
    ("last_write_wins", "delta_net"),
    ("last_write_wins", "gated_delta_net"),
    ("softmax_of_length_one", "recurrent_softmax"),
    ("query_length_ignored", "linear_attention"),
    ("query_length_heeded", "softmax"),
    ("query_length_heeded", "mala"),
    ("slope_vanishes_at_full_weight", "softmax"),
    ("slope_vanishes_at_full_weight", "softmax_plus_one"),
    ("slope_kept_at_full_weight", "sa_softmax"),
    ("state_map_of_norm_one", "linear_attention"),
    ("state_map_of_norm_one", "delta_net"),
]
LACK = [
    ("state_constant_in_length", "softmax"),
    ("state_grows_with_length", "linear_attention"),
    ("rows_sum_to_one", "sigmoid"),
    ("rows_sum_to_one", "softpick"),
    ("rows_need_not_sum_to_one", "softmax"),
    ("row_sums_within_unit", "sigmoid"),
    ("absolute_rows_sum_to_one", "sigmoid"),
    ("weights_of_both_signs", "softmax"),
    ("weights_exact_zeros", "softmax"),
    ("weights_no_zeros", "softpick"),
    ("zero_row_when_all_scores_negative", "softmax"),
    ("weights_depend_on_own_score", "softmax"),
    ("weights_depend_on_own_score", "softpick"),
    ("softmax_of_length_one", "softmax"),
    ("query_length_ignored", "mala"),
    ("query_length_heeded", "linear_attention"),
    ("slope_vanishes_at_full_weight", "sa_softmax"),
    ("slope_kept_at_full_weight", "softmax"),
    ("state_map_of_norm_one", "vla"),
    ("state_map_of_norm_one", "gla"),
]


ARGS = {
    "sa_softmax": {"variant": "v1"},
    "sigmoid": {"n": 8},  # a length at which its weights are not small
    "recurrent_softmax": {"variant": "l2norm_noclamp", "clamp": None},
}


@pytest.mark.parametrize(("name", "impl"), HAVE)
def test_property_is_found(name, impl):
    assert checks.run(name, impl, ARGS.get(impl, {})).holds


@pytest.mark.parametrize(("name", "impl"), LACK)
def test_lack_of_a_property_is_found(name, impl):
    found = checks.run(name, impl, ARGS.get(impl, {}))
    assert not found.holds
    assert any(digit in found.detail for digit in "0123456789"), "the number that says so"


@pytest.mark.parametrize(
    ("name", "impl", "why"),
    [
        ("last_write_wins", "softmax", "no write strength"),
        ("rows_sum_to_one", "gla", "defines no attention weights"),
        ("zero_row_when_all_scores_negative", "gla", "no scores"),
        ("nothing", "softmax", "no check 'nothing'"),
        ("query_length_ignored", "gla", "a scale alone"),
        ("state_map_of_norm_one", "softmax", "no memory"),
    ],
)
def test_a_check_that_cannot_be_asked_says_why(name, impl, why):
    with pytest.raises(ValueError, match=why):
        checks.run(name, impl, {})


class Leaky(TokenMixer):
    """Adds the mean of the whole sequence."""

    def forward(self, x_BTD):
        return x_BTD + 1e-6 * x_BTD.mean(dim=1, keepdim=True)


class Forgetful(TokenMixer):
    """Decodes with a stale state."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x_BTD):
        return self.gain * x_BTD.cumsum(dim=1)

    def step(self, x_BD, state):
        return self.gain * (state.sum(dim=1) + 0.999 * x_BD), torch.cat([state, x_BD[:, None]], dim=1)


class Signed(TokenMixer):
    """Weights of both signs whose absolute values sum to one."""

    def forward(self, x_BTD):
        return x_BTD

    def weights(self, x_BTD):
        s_BHTS = (x_BTD @ x_BTD.mT)[:, None].tril()
        return s_BHTS / s_BHTS.abs().sum(-1, keepdim=True)


def test_faults_are_found():
    assert not checks.causal(Leaky()).holds
    with torch.no_grad():
        assert not checks.step_equals_forward(Forgetful().double()).holds
    assert checks.weights_of_both_signs(Signed()).holds
    assert checks.absolute_rows_sum_to_one(Signed()).holds
    assert not checks.weights_not_negative(Signed()).holds


def test_every_check_is_tried_and_says_what_it_asserts():
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for name in checks.names():
        assert checks.summary(name).endswith(".")
        assert f'"{name}"' in tests, "a check that no test asks of any mechanism"


def test_a_check_leaves_the_random_state_alone_and_repeats_itself():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = checks.run("rows_need_not_sum_to_one", "sigmoid", {})
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(6)
    assert checks.run("rows_need_not_sum_to_one", "sigmoid", {}) == first
