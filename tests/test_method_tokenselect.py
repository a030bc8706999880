"""Token selection: the keys that win the votes are read, places are compact, a choice is kept while queries agree."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from impls import tokenselect
from impls.softmax import Mixer
from tests.methods import assert_causal_and_decodes, base, difference, made

FEW = {"first": 2, "local": 4, "k": 3}


def layer(select: str = "soft", heads: int = 2, **args) -> tokenselect.Selecting:
    cfg = tokenselect.Method.Config(**{**FEW, "reuse": 2.0, "select": select, **args})
    return tokenselect.Selecting(Mixer(8 * heads, Mixer.Config(heads=heads)).double(), cfg, seed=0)


def keys(winners: dict[int, float], S: int, heads: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, k): the last of S queries gives these keys a product of so much in every head, the others 0."""
    q_BHTK, k_BHSK = torch.zeros(1, heads, S, 8).double(), torch.zeros(1, heads, S, 8).double()
    q_BHTK[..., 0] = 1
    for place, product in winners.items():
        k_BHSK[:, :, place, 0] = product
    return q_BHTK, k_BHSK


def test_the_keys_that_win_are_read_with_the_first_and_the_last():
    q, k = keys({5: 4.0, 9: 6.0, 12: 5.0, 1: 9.0, 18: 9.0}, S=20)
    top_BTk = layer().vote(q, k)
    assert sorted(top_BTk[0, -1].tolist()) == [5, 9, 12]
    assert layer().places(20, 20, top_BTk)[0, -1].tolist() == [0, 1, 5, 9, 12, 16, 17, 18, 19]


def test_nothing_before_there_are_candidates_and_all_while_they_fit():
    q, k = keys({}, S=20)
    top_BTk = layer().vote(q, k)
    assert top_BTk[0, 5].tolist() == [-1] * 3
    assert sorted(top_BTk[0, 8].tolist()) == [2, 3, 4]
    assert layer().places(20, 20, top_BTk)[0, 1].tolist() == [-1] * 7 + [0, 1]


def test_a_soft_vote_gives_each_head_one_voice_and_a_raw_one_follows_the_loudest():
    """Head 0 shouts for 5, a little less for 6, 7 and 8; head 1 wants 12 quietly. Three seats."""
    q, k = keys({}, S=20)
    k[:, 0, [5, 6, 7, 8], 0] = torch.tensor([60.0, 40, 40, 40]).double()
    k[:, 1, 12, 0] = 6.0
    assert 12 in layer("soft").vote(q, k)[0, -1]
    assert 12 not in layer("raw").vote(q, k)[0, -1]


def test_places_are_compact_so_that_far_keys_are_as_near_as_they_rank():
    """Filler between the keys read changes nothing, as it does with full attention."""
    torch.manual_seed(0)
    few = layer()
    q, k = torch.randn(1, 2, 30, 8).double(), torch.randn(1, 2, 30, 8).double()
    k[:, :, 6:26] = 0
    q[:, :, -1, :], k[:, :, 3:6] = 1.0, 1.0
    A_few = few.weigh(q[:, :, -1:], k, few.vote(q[:, :, -1:], k))
    near = torch.cat([k[:, :, :6], k[:, :, 26:]], dim=2)
    A_near = few.weigh(q[:, :, -1:], near, few.vote(q[:, :, -1:], near))
    assert sorted(A_few[0, 0, 0].nonzero().flatten().tolist()) == [0, 1, 3, 4, 5, 26, 27, 28, 29]
    torch.testing.assert_close(A_few[..., A_few[0, 0, 0] > 0], A_near[..., A_near[0, 0, 0] > 0])


def test_a_selection_is_kept_while_queries_point_one_way_and_made_anew_when_they_turn():
    few = layer(reuse=0.9)
    q, _ = keys({}, S=30)
    q[:, :, 20:] = 0
    q[:, :, 20:, 1] = 1
    asked_T = few.asked(q)[0].tolist()
    assert asked_T[:10] == list(range(10))  # up to 2 + 4 + 3 there is nothing to choose
    assert asked_T[10:20] == [9] * 10
    assert asked_T[20:] == [20] * 10
    assert layer(reuse=2.0).asked(q)[0].tolist() == list(range(30))


def test_all_keys_are_the_base():
    model = base()
    assert difference(made(tokenselect, model, first=0, local=1, k=40, reuse=2.0)[0], model) < 1e-9
    assert difference(made(tokenselect, model, **FEW)[0], model) > 1e-2


@pytest.mark.parametrize("select", tokenselect.SELECTIONS)
@pytest.mark.parametrize("reuse", [0.3, 2.0])
def test_the_selecting_model_is_causal_and_decodes(select: str, reuse: float):
    model, choices = made(tokenselect, base(), **FEW, select=select, reuse=reuse)
    assert_causal_and_decodes(model)
    assert (choices["measured"]["selections_reused"] > 0) == (reuse < 1)


def test_votes_hold_more_of_the_weight_than_chance_or_a_window():
    model = base()
    held = {
        select: made(tokenselect, model, **FEW, select=select, reuse=2.0)[1]["measured"]
        for select in ("soft", "random", "window")
    }
    assert held["soft"]["weight_kept"] > held["random"]["weight_kept"] + 0.05
    assert held["soft"]["weight_kept"] > held["window"]["weight_kept"] + 0.05
    assert held["soft"]["keys_read"] == held["window"]["keys_read"] == held["random"]["keys_read"]
    assert held["window"]["work"] == held["window"]["keys_read"]
    votes = sum(max(0, t - 6) / 2 / t for t in range(1, 41)) / 40  # a product with each key between the first and last
    assert abs(held["soft"]["work"] - held["soft"]["keys_read"] - votes) < 1e-6


def test_weights_are_what_is_read():
    model, _ = made(tokenselect, base(), **FEW)
    mixer = model.layers[0].mixer
    x_BTD = torch.randn(2, 30, 32, generator=torch.Generator().manual_seed(0)).double()
    A_BHTS = mixer.weights(x_BTD)
    assert (A_BHTS > 0).sum(dim=-1).max() == 9
    torch.testing.assert_close(A_BHTS.sum(dim=-1), torch.ones(2, 4, 30).double())
    y_BHTV = A_BHTS @ mixer.project(x_BTD)[2]
    torch.testing.assert_close(mixer.out(y_BHTV.transpose(1, 2).flatten(2)), mixer(x_BTD))


def test_the_draw_depends_on_the_seed():
    model = base()
    one, other, again = (made(tokenselect, model, seed, **FEW, select="random")[0] for seed in (0, 1, 0))
    assert difference(one, again) == 0 < difference(one, other)


def test_a_bad_budget_is_refused():
    with pytest.raises(ValueError, match="local 1 or more"):
        tokenselect.Method.Config(local=0)
    assert dataclasses.asdict(tokenselect.Method.Config())["reuse"] == 0.9
