"""The study of long prompts: its limits and gradients by other means, and tokens whose limit is not linear."""

from __future__ import annotations

import pytest
import torch

from impls import large_prompt as prompt
from impls.study import generator


def measured(effort: float, part: str, **config) -> dict:
    study = prompt.Study(prompt.Study.Config(**config), effort)
    return {row.cell: row.value for row in study.measure(part, 0, "cpu")}


def test_a_slope_is_per_doubling():
    assert prompt.slope((4, 8, 16), (1.0, 0.5, 0.0)) == pytest.approx(-0.5)
    assert prompt.slope((1, 10, 100), (3.0, 3.0, 3.0)) == pytest.approx(0)


@pytest.mark.parametrize(("law", "limit"), [("gaussian", lambda Uz, G: G @ Uz), ("signs", lambda Uz, G: Uz.tanh())])
def test_a_very_long_prompt_gives_the_limit_of_its_law(law, limit):
    study = prompt.Study(prompt.Study.Config(tokens=law))
    x_BLD = study.tokens(1, 400_000, generator(0, law))
    Uz = torch.tensor([0.6, -0.3, 0.5, 0.2])
    found = prompt.attended(x_BLD, Uz[None])[1][0]
    assert float((found - limit(Uz, study.covariance_DD)).abs().max()) < 0.02


@pytest.mark.parametrize("law", prompt.TOKENS)
def test_tokens_have_the_covariance_they_are_said_to_have(law):
    study = prompt.Study(prompt.Study.Config(tokens=law))
    x_LD = study.tokens(1, 100_000, generator(0, law))[0]
    assert float((x_LD.T @ x_LD / len(x_LD) - study.covariance_DD).abs().max()) < 0.02


def test_gradients_are_those_of_automatic_differentiation():
    study = prompt.Study(prompt.Study.Config())
    x, b, z = (t.double() for t in study.prompts(3, 9, generator(0, "x"), "cpu"))
    G, at = study.covariance_DD.double(), torch.randn(17, generator=generator(0, "at")).double().requires_grad_()
    U, u = at[:-1].view(4, 4), at[-1]
    finite = (u * (prompt.attended(x, z @ U.T)[1] * b).sum(-1) - (b * z).sum(-1)).square() / 2
    endless = (u * (b * (z @ U.T @ G)).sum(-1) - (b * z).sum(-1)).square() / 2
    for loss_B, found in (
        (finite, prompt.regression(x, b, z, at)),
        (endless, prompt.regression_limit(G, b, z, at)),
    ):
        wanted = torch.stack([torch.autograd.grad(loss, at, retain_graph=True)[0] for loss in loss_B])
        assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_the_loss_of_endless_prompts_is_the_mean_of_their_prompts_losses():
    study, at_P = prompt.Study(prompt.Study.Config()), torch.randn(17, generator=generator(0, "at"))
    _, b, z = study.prompts(200_000, 1, generator(0, "x"), "cpu")
    found = (at_P[-1] * (b * (z @ at_P[:-1].view(4, 4).T @ study.covariance_DD)).sum(-1) - (b * z).sum(-1)).square() / 2
    assert prompt.loss_limit(study.covariance_DD, at_P) == pytest.approx(found.mean().item(), rel=0.03)


def test_gaussian_tokens_have_the_rate_and_signs_have_not():
    gaussian, signs = measured(0.4, "layer"), measured(0.4, "layer", tokens="signs")
    for name in prompt.OBJECTS:
        assert gaussian[name, None, "slope"] == pytest.approx(-0.5, abs=0.1)
        assert signs[name, None, "slope"] > -0.3
    assert gaussian["output", 8192, "error"] < signs["output", 8192, "error"] - 1


def test_the_rate_lasts_through_training_and_training_itself_comes_closer():
    found = measured(0.2, "training")
    assert all(found["training", step, "slope"] == pytest.approx(-0.5, abs=0.15) for step in prompt.WATCHED)
    assert 0 > found["training", 2, "loss"] > found["training", 8, "loss"] > -1 > found["training", 32, "loss"]
    gaps = measured(0.1, "transfer")
    assert gaps["transfer", 1024, "gap"] < gaps["transfer", 16, "gap"] - 1


def test_it_measures_its_cells_and_the_same_again():
    study = prompt.Study(prompt.Study.Config(), 0.01)
    rows = [row for part in study.parts() for row in study.measure(part, 3, "cpu")]
    assert sorted(map(str, study.cells())) == sorted(str(row.cell) for row in rows)
    assert rows == [row for part in study.parts() for row in study.measure(part, 3, "cpu")]


def test_unknown_tokens_are_refused():
    with pytest.raises(ValueError, match="'cauchy' is none of gaussian, signs"):
        prompt.Study.Config(tokens="cauchy")
