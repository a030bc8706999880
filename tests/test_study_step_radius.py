"""The radius of a step: closed forms, one product against differences, and that other rules tell less."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from impls import step_control, step_radius, taylor_radius
from impls.study_parts import NETWORKS, digits, network, safe, slopes, unit


def values(study, seed: int = 0) -> dict[tuple[str, str, int | None], float]:
    rows = list(study.run(seed))
    assert sorted(map(str, study.cells())) == sorted(str(row.cell) for row in rows)
    return {(row.task, row.metric, row.length): row.value for row in rows}


@pytest.mark.parametrize(("delta", "slope"), [(0.0, 1.0), (1.0, 2.0), (3.0, 0.5), (-4.0, 3.0)])
def test_the_radius_of_two_classes_has_a_closed_form(delta: float, slope: float):
    z_C, a_C = torch.tensor([0.0, delta], dtype=torch.float64), torch.tensor([0.0, slope], dtype=torch.float64)
    wanted = math.sqrt(delta**2 + math.pi**2) / slope
    assert taylor_radius.closed(z_C, a_C) == pytest.approx(wanted)
    assert taylor_radius.radius(z_C, a_C) == pytest.approx(wanted, rel=0.02)
    assert taylor_radius.radius(z_C + 5, a_C - 7) == pytest.approx(wanted, rel=0.02)  # what is common drops out


def test_no_radius_is_below_the_bound_and_many_are_below_the_gap_of_logits():
    below = {
        rule: values(taylor_radius.Study(taylor_radius.Study.Config(rule=rule), 0.5))["multiclass", "below", None]
        for rule in taylor_radius.RULES
    }
    assert below["radius"] == 0
    assert min(below["gap"], below["raw"]) > 0.05


@pytest.mark.parametrize("name", NETWORKS)
def test_one_product_is_the_derivative_of_all_logits(name: str):
    torch.manual_seed(0)
    model, x = network(name).double().eval(), digits("cpu")[0][:7].double()
    v, norm = unit({name: torch.randn_like(weight) for name, weight in model.named_parameters()})
    assert norm > 0
    assert unit(v)[1] == pytest.approx(1)
    a_BC, step = slopes(model, x, v), 1e-6
    with torch.no_grad():
        before = model(x)
        for key, weight in model.named_parameters():
            weight += step * v[key]
        torch.testing.assert_close(a_BC, (model(x) - before) / step, rtol=1e-3, atol=1e-4)
    spreads_B = a_BC.amax(-1) - a_BC.amin(-1)
    assert safe("radius", model, x, v, 2.0) == pytest.approx(2 * math.pi / float(spreads_B.max()), rel=1e-3)


def test_the_onset_is_where_the_loss_has_doubled():
    torch.manual_seed(0)
    x, y, _, _ = digits("cpu")
    model = network("linear")
    v = step_radius.directions(model, x, y, 1.0, 0)[0]
    tau = step_radius.onset(model, x, y, v)
    before, behind = (float(step_radius.after(model, x, y, v, length)[0]) for length in (0.0, tau))
    assert behind / before == pytest.approx(2, rel=0.05)


def test_onsets_off_the_grid_are_counted():
    rows = {row.metric: row for row in step_radius.summed("onset", [1.0, 100.0, math.nan, math.nan])}
    assert rows["beyond"].value == 0.5
    assert rows["beyond"].n == 4
    assert rows["spread"].value == pytest.approx(math.sqrt(2))
    assert math.isnan({row.metric: row.value for row in step_radius.summed("onset", [math.nan])}["spread"])


def test_steps_fail_beyond_the_radius_alone_and_its_rule_spreads_least(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(step_radius, "NETWORKS", ("linear", "mlp-norm"))
    monkeypatch.setattr(step_radius, "PERCENT", (90, 1600))
    monkeypatch.setattr(step_radius, "TEMPERATURES", (0.5, 2.0))
    found = {
        rule: values(step_radius.Study(step_radius.Study.Config(rule=rule, networks=1), 0.3))
        for rule in step_radius.RULES
    }
    radius = found["radius"]
    assert radius["steps", "failed", 90] == 0
    assert radius["steps", "failed", 1600] == 1
    for other in ("gap", "raw"):
        assert found[other]["onset", "spread", None] > 1.5 * radius["onset", "spread", None]


def test_the_controller_survives_a_spike_that_clipping_does_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(step_control, "SPIKES", (4,))
    controlled, clipped, free = (
        values(step_control.Study(step_control.Study.Config(control=control), 0.3))["spike", "accuracy", 4]
        for control in ("radius", "clip", "none")
    )
    assert controlled > 0.8
    assert max(clipped, free) < 0.4


def test_a_controlled_step_is_no_longer_than_the_radius():
    torch.manual_seed(0)
    x, y, _, _ = digits("cpu")
    model = network("mlp")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e6)
    nn.functional.cross_entropy(model(x), y).backward()
    step_control.controlled("radius", model, optimizer, x)
    v, tau = unit({name: weight.detach() - before[name] for name, weight in model.named_parameters()})
    model.load_state_dict(before)
    assert tau == pytest.approx(safe("radius", model, x, v), rel=1e-3)
