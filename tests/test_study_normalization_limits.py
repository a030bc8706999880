"""The study of what a normaliser can tell apart: by hand, against drawn selections, ReLU, and on two models' heads."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from harness.studies import told
from harness.study import fingerprint
from impls import normalization_limits as limits
from impls.study import generator
from tests.conftest import SHARED

RECORD = {"run": "", "seed": 0, "effort": 1.0, "versions": {}, "threads": 1, "hardware": {}, "device": "cpu"}
RECORD |= {"impl": "normalization_limits"}
STORIES = SHARED / "models" / "stories260k"


def measured(effort: float, **config) -> dict:
    study = limits.Study(limits.Study.Config(**config), effort)
    rows = list(study.measure("heads", 0, "cpu"))
    assert sorted(map(str, study.cells())) == sorted(str(row.cell) for row in rows)
    return {row.cell: row.value for row in rows}


def separable(*place: float) -> float:
    """Of the two largest of the weights 0.5, 0.3, 0.2 of tokens on a line."""
    a_RL = torch.tensor([[0.5, 0.3, 0.2]])
    in_RL = limits.chosen(a_RL, 2, "top", generator(0))
    assert in_RL.tolist() == [[True, True, False]]
    return float(limits.separable(a_RL, torch.tensor([place])[..., None], in_RL))


def test_separable_tokens_by_hand():
    assert separable(1.0, 1.0, -1.0) == 1  # sum 0.8: 0.3 and 0.5 from it, the other token 1.0
    assert separable(1.0, -1.0, 1.0) == 0  # sum 0.2: 0.3 and 0.5 from it, the other token 0.0
    assert separable(1.0, 1.0, 1.0) == 1  # sum 0.8: 0.3 and 0.5 from it, the other token 0.6
    assert separable(1.0, 0.0, 0.2) == 0.5  # sum 0.5: 0.0 and 0.5 from it, the other token 0.46


def test_the_distance_to_the_rest_by_hand():
    a_RL, x_RLD = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    in_RL = torch.tensor([[True, False, False]])
    assert limits.far(a_RL, x_RLD, in_RL).item() == pytest.approx((0.25 + 0.09) ** 0.5 + (0.25 + 0.04) ** 0.5)


@pytest.mark.parametrize("T", [0.1, 1.0, 3.0])
def test_the_jacobian_of_two_equal_scores(T):
    assert limits.jacobian_norm(torch.zeros(1, 2), "softmax", T).item() == pytest.approx(1 / (2 * T))


@pytest.mark.parametrize("normaliser", limits.NORMALISERS)
def test_the_jacobian_is_that_of_automatic_differentiation(normaliser):
    l_L = torch.tensor([0.3, -0.2, 1.0, 0.5], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda l: limits.weights(l[None], normaliser, 0.7)[0][0], l_L)  # noqa: E741
    wanted = torch.linalg.matrix_norm(jacobian, ord=2)  # pyright: ignore[reportArgumentType]
    assert limits.jacobian_norm(l_L[None], normaliser, 0.7).item() == pytest.approx(wanted.item())


def test_more_selected_tokens_stand_out_less_and_drawn_ones_less_still():
    top, random = measured(0.5), measured(0.5, select="random")
    falls = [top["selection", count, "separable"] for count in limits.SELECTED[1:]]
    assert falls == sorted(falls, reverse=True)
    assert falls[0] > 0.9 > 0.8 > falls[-1]
    assert all(
        random["selection", n, "separable"] < top["selection", n, "separable"] - 0.1 for n in limits.SELECTED[1:]
    )
    assert top["selection", 1, "farther"] > top["selection", 32, "farther"] > 0
    assert all(abs(random["selection", n, "farther"]) < 0.5 for n in limits.SELECTED)


def test_softmax_grows_steep_as_it_cools_and_relu_does_not():
    softmax, relu = measured(0.5), measured(0.5, normaliser="relu")
    norms = [softmax["temperature", inverse, "largest_norm"] for inverse in limits.INVERSES]
    assert all(0.8 < after - before < 2 for before, after in pairwise(norms))
    assert len({round(relu["temperature", inverse, "largest_norm"], 6) for inverse in limits.INVERSES}) == 1
    assert softmax["temperature", 32, "mean_norm"] < norms[-1] - 1  # a sharp row has no gradient
    assert all(softmax["length", length, "outside"] == 0 for length in limits.LENGTHS)
    assert relu["length", 64, "outside"] > 0.1  # where the bound is not one


def test_the_heads_of_a_model_trained_here():
    found = measured(0.3, source="trained")
    assert found["selection", 2, "separable"] > found["selection", 16, "separable"]
    assert found["temperature", 32, "largest_norm"] - found["temperature", 4, "largest_norm"] == pytest.approx(
        3, abs=0.3
    )
    assert measured(0.03, source="trained") == measured(0.03, source="trained")


@pytest.mark.skipif(not STORIES.is_dir(), reason=f"no model at {STORIES}")
def test_the_heads_of_a_model_in_a_folder():
    found = measured(0.1, source=str(STORIES))
    assert found["selection", 2, "separable"] > found["selection", 8, "separable"]
    assert found["temperature", 32, "largest_norm"] - found["temperature", 4, "largest_norm"] == pytest.approx(
        3, abs=0.3
    )
    assert all(found["length", length, "outside"] == 0 for length in limits.LENGTHS)


def test_the_files_of_a_model_are_those_of_the_study(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    study = limits.Study(limits.Study.Config(source=str(tmp_path)), 1.0)
    assert study.files() == [str(tmp_path / "config.json")]
    assert list(told("normalization_limits", {"source": str(tmp_path)}).files) == study.files()
    before = fingerprint(RECORD, study.files())
    assert before == fingerprint(RECORD, study.files())
    (tmp_path / "config.json").write_text("{ }")
    assert before != fingerprint(RECORD, study.files())
    assert limits.Study(limits.Study.Config(), 1.0).files() == []


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"source": "org/model"}, "neither drawn nor trained nor a folder here; fetch a model of the Hub"),
        ({"normaliser": "sigmoid"}, "'sigmoid' is none of softmax, relu"),
        ({"normaliser": "relu", "source": "trained"}, "for drawn scores"),
        ({"select": "bottom"}, "'bottom' is none of top, random"),
    ],
)
def test_a_bad_argument_is_refused(config, fault):
    with pytest.raises(ValueError, match=fault):
        limits.Study.Config(**config)
