"""Block skipping: predicted blocks are computed, dissimilar ones always, and negligible values are not read."""

from __future__ import annotations

import pytest
import torch

from impls import ops, spargeattn
from impls.softmax import Mixer
from tests.methods import assert_causal_and_decodes, base, difference, made


def layer(select: str = "predicted", block: int = 4) -> spargeattn.Sparse:
    mixer = Mixer(8, Mixer.Config(heads=1)).double()
    return spargeattn.Sparse(mixer, block, select, 0, spargeattn.everything(mixer))


def at(similar: float = -1.0, mass: float = 1.0, gap: float = -1e9) -> spargeattn.Thresholds:
    return spargeattn.Thresholds(*(torch.tensor([value]) for value in (similar, mass, gap)))


def blocks(products: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, k) whose last query has these scores with all four keys of each block."""
    q_BHTK, k_BHSK = torch.zeros(1, 1, 1, 8).double(), torch.zeros(1, 1, 4 * len(products), 8).double()
    q_BHTK[..., 0] = 8**0.5
    k_BHSK[0, 0, :, 0] = torch.tensor(products).repeat_interleave(4)
    return q_BHTK, k_BHSK


def test_the_blocks_that_are_predicted_to_weigh_are_computed_and_the_own_one():
    q, k = blocks([1.0, 9.0, 2.0, 8.5, 0.0])
    assert layer().computed(q, k, at(mass=0.65))[0, 0, 0].tolist() == [False, True, False, False, True]
    assert layer().computed(q, k, at(mass=0.9995))[0, 0, 0].tolist() == [False, True, False, True, True]
    assert layer().computed(q, k, at(mass=0.1))[0, 0, 0].tolist() == [False, True, False, False, True]  # one at least
    assert layer().computed(q, k, at())[0, 0, 0].tolist() == [True] * 5


def test_a_block_of_unlike_keys_is_computed_whatever_its_mean_says():
    q, k = blocks([1.0, 9.0, 2.0, 0.0])
    k[0, 0, 8:12] = torch.tensor([[9.0, -9.0, 9.0, -9.0]]).mT * torch.eye(8).double()[0]  # mean 0, keys opposed
    assert layer().computed(q, k, at(similar=0.5, mass=0.9))[0, 0, 0].tolist() == [False, True, True, True]
    assert layer().computed(q, k, at(similar=-1.0, mass=0.9))[0, 0, 0].tolist() == [False, True, False, True]


def test_values_far_below_the_highest_score_so_far_are_not_read_but_count_in_the_sum():
    q, k = blocks([5.0, 1.0, 4.0])
    A_BHTS, computed, read = layer().filtered(q, k, at(gap=-3.0))
    assert computed.all()
    assert read[0, 0, 0].tolist() == [True, False, True]
    whole_S = ops.causal_softmax(ops.scores(q, k, 8**-0.5))[0, 0, 0]
    torch.testing.assert_close(A_BHTS[0, 0, 0], whole_S * torch.tensor([1.0, 0, 1]).repeat_interleave(4))
    q, k = blocks([1.0, 5.0, 4.0])  # online: a low block that comes first is not known to be low
    assert layer().filtered(q, k, at(gap=-3.0))[2].all()


def test_no_error_allowed_is_the_base():
    model = base()
    exact, choices = made(spargeattn, model, block=4, error=0.0, error_values=0.0)
    assert choices["measured"] == {"scores_skipped": 0, "values_skipped": 0, "output_error": pytest.approx(0, abs=1e-9)}
    assert difference(exact, model) < 1e-9


def test_the_error_stays_within_its_bounds_and_more_of_it_skips_more():
    model = base()
    found = [
        made(spargeattn, model, block=4, error=error, error_values=error + 0.02)[1]["measured"]
        for error in (0.02, 0.05, 0.2)
    ]
    assert all(one["output_error"] <= bound for one, bound in zip(found, (0.04, 0.07, 0.22), strict=True))
    assert 0 < found[0]["values_skipped"] < found[1]["values_skipped"] < found[2]["values_skipped"]
    assert 0 < found[2]["scores_skipped"] < found[2]["values_skipped"]


@pytest.mark.parametrize("select", ["random", "window"])
def test_other_blocks_than_the_predicted_cost_more_at_equal_work(select: str):
    model = base()
    args = {"block": 4, "error": 0.2, "error_values": 0.2}
    predicted, other = (made(spargeattn, model, **args, select=name)[1]["measured"] for name in ("predicted", select))
    assert other["scores_skipped"] == pytest.approx(predicted["scores_skipped"], abs=1e-6)
    assert other["output_error"] > 1.3 * predicted["output_error"]


@pytest.mark.parametrize("select", spargeattn.SELECTIONS)
def test_the_skipping_model_is_causal_and_decodes(select: str):
    model, choices = made(spargeattn, base(), block=4, error=0.2, error_values=0.3, select=select)
    assert choices["measured"]["scores_skipped"] > 0
    assert_causal_and_decodes(model)


def test_the_draw_depends_on_the_seed():
    model, args = base(), {"block": 4, "error": 0.2, "error_values": 0.3, "select": "random"}
    one, other, again = (made(spargeattn, model, seed, **args)[0] for seed in (0, 1, 0))
    assert difference(one, again) == 0 < difference(one, other)
