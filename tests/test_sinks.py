"""Sinks: measures of weights known by hand, the implicit matrix, and the task on which softmax needs a sink."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness import cost, evaluate, model, sinks
from harness.errors import UserError
from harness.fit import Fit
from harness.report import heads
from harness.report.evidence import Cell as EvidenceCell
from harness.report.evidence import Run, Value
from harness.suites import Cell, Row
from harness.suites import sinks as lm_suite
from harness.suites import trigger as suite
from harness.tasks import IGNORE, trigger
from impls import ops, softmax

SETTINGS = trigger.Settings.model_validate(
    {
        "model": {"width": 32, "layers": 1, "heads": 2, "mlp": 64},
        "length": 32,
        "batch": 32,
        "steps": 200,
        "lr": 1e-2,
        "warmup": 20,
    }
)


def rows(*picked):
    return torch.tensor(picked, dtype=torch.bool)


ALL = rows([True, True, True])
LATER = rows([False, True, True])
SINK = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
FADED = torch.tensor([[0.1, 0, 0], [0.05, 0.05, 0], [0.025, 0.025, 0.05]])  # the same weights, a tenth as large
SIGNED = torch.tensor([[1.0, 0, 0], [-0.5, 0.5, 0], [-0.25, 0.25, 0.5]])
EMPTY = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0.5, 0.5]])
HEADS = torch.stack([SINK, FADED, SIGNED, EMPTY])[None]


def test_weights_that_are_no_numbers_have_no_measure():
    broken = HEADS.clone()
    broken[0, 1, 2, 1] = math.nan
    for values_BH in sinks.statistics(broken, LATER).values():
        assert np.isnan(values_BH[0]).tolist() == [False, True, False, False]


def test_first_token_mass_by_hand():
    mass = sinks.first_token_mass(HEADS, LATER)[0].tolist()
    assert mass == pytest.approx([0.375, 0.0375, -0.375, 0.0])
    assert sinks.first_token_mass(HEADS, ALL)[0].tolist() == pytest.approx([1.75 / 3, 0.175 / 3, 0.25 / 3, 1 / 3])


def test_a_sink_of_faded_or_signed_weights_is_seen_after_normalising():
    assert sinks.is_sink(HEADS, LATER)[0].tolist() == [True, False, False, False]
    assert sinks.is_sink(sinks.normalised(HEADS), LATER)[0].tolist() == [True, True, True, False]


def test_a_row_of_zeros_stays_one():
    assert sinks.normalised(HEADS)[0, 3, 1].tolist() == [0, 0, 0]


def test_row_entropy_by_hand():
    one, two = math.log(2), 1.5 * math.log(2)  # of (1/2, 1/2) and of (1/4, 1/4, 1/2)
    found = sinks.row_entropy(HEADS, LATER)[0].tolist()
    assert found == pytest.approx([(one + two) / 2] * 3 + [one / 2], abs=1e-5)
    uniform = ops.causal(4, 4).float()[None, None]
    assert sinks.row_entropy(uniform, rows([False, False, False, True])).item() == pytest.approx(math.log(4), abs=1e-5)


def test_sparsity_counts_visible_weights_that_are_exactly_zero():
    found = sinks.sparsity(HEADS, ALL)[0].tolist()
    assert found == pytest.approx([0, 0, 0, 3 / 6])
    assert sinks.sparsity(HEADS, LATER)[0, 3].item() == pytest.approx(3 / 5)
    assert sinks.sparsity(HEADS + 1e-30 * ops.causal(3, 3), ALL)[0, 3].item() == 0


def test_kurtosis_of_two_values_a_normal_law_and_an_outlier():
    assert sinks.kurtosis([torch.tensor([-1.0, 1.0]), torch.tensor([[1.0], [-1.0]])]) == 1
    normal = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    assert sinks.kurtosis([normal]) == pytest.approx(3, abs=0.1)
    outlier = torch.zeros(1000)
    outlier[0] = 1000
    assert sinks.kurtosis([outlier]) == pytest.approx((1 - 3 * 0.001 + 3e-6) / (0.001 * 0.999), rel=1e-2)
    assert sinks.hidden_max([torch.tensor([1.0, -3.0]), torch.tensor([2.0])]) == 3


class Routed(softmax.Mixer):
    """Softmax attention of one head whose values are its input and whose queries and keys are held fixed."""

    def project(self, x_BTD, start=0):
        q, k, _ = super().project(x_BTD, start)
        return q.detach(), k.detach(), x_BTD[:, None]

    def forward(self, x_BTD):
        return (self.attention(*self.project(x_BTD)[:2]) @ x_BTD[:, None])[:, 0]


def test_the_implicit_matrix_of_a_softmax_with_identity_maps_is_its_weights():
    torch.manual_seed(0)
    mixer = Routed(8, softmax.Mixer.Config(heads=1))
    x_BTD = 3 * torch.randn(2, 7, 8)
    implicit = sinks.implicit(mixer, x_BTD, signs=2)
    torch.testing.assert_close(
        implicit, mixer.attention(*mixer.project(x_BTD)[:2])[:, 0].detach(), atol=1e-6, rtol=1e-5
    )


def test_the_implicit_matrix_is_the_jacobian_of_every_path():
    torch.manual_seed(0)
    mixer = softmax.Mixer(8, softmax.Mixer.Config(heads=2))
    x_BTD = torch.randn(1, 5, 8)
    full = torch.autograd.functional.jacobian(mixer, x_BTD)[0, :, :, 0]  # pyright: ignore
    exact_TS = full.square().sum((1, 3)).sqrt()
    implicit = sinks.implicit(mixer, x_BTD, signs=4000)[0]
    torch.testing.assert_close(implicit, exact_TS / exact_TS.sum(-1, keepdim=True), atol=0.01, rtol=0.05)
    assert (implicit.triu(1) == 0).all()


def test_a_layer_that_reads_nothing_has_an_implicit_matrix_of_zeros():
    class Silent(softmax.Mixer):
        def forward(self, x_BTD):
            return torch.zeros_like(x_BTD)

    implicit = sinks.implicit(Silent(8, softmax.Mixer.Config(heads=2)), torch.randn(2, 5, 8), signs=2)
    assert torch.equal(implicit, torch.zeros(2, 5, 5))


def trained(impl, seed=0, steps=200, **args):
    settings = SETTINGS.model_copy(update={"steps": steps})
    shape = cost.match(model.shape_of(impl, args, settings.model, trigger.VOCAB), settings.model.heads).shape
    fit = Fit(model.build(shape, seed), trigger.Task(settings, seed), settings, seed, "cpu")
    fit.run(lambda _: False, lambda _: None)
    return fit.model


def measured(made, wanted=None):
    with evaluate.undisturbed(made):
        found = suite.measure(made, SETTINGS, wanted or suite.Settings(examples=64), 0, "cpu")
        return {f"{row.task}/{row.metric}": row for row in found}


def test_the_trigger_task_makes_softmax_sink_and_softpick_not():
    found = {impl: measured(trained(impl)) for impl in ("softmax", "softpick")}
    value = {impl: {key: row.value for key, row in table.items()} for impl, table in found.items()}
    assert value["softmax"]["quiet/first_token_mass"] > 0.9
    assert value["softmax"]["quiet/sink_rate"] == 1
    assert value["softmax"]["answer/first_token_mass"] < 0.3
    assert value["softpick"]["quiet/first_token_mass"] < 0.05
    assert value["softpick"]["quiet/sink_rate_normalised"] < 0.1
    assert value["softpick"]["quiet/sparsity"] > 0.9
    for impl in value:
        assert value[impl]["answer/excess_nats"] < 1  # what the claims ask for
        assert value[impl]["quiet/excess_nats"] < 0.05
    assert found["softmax"]["quiet/first_token_mass"].n == 64 * 2
    assert [value["softmax"][f"head{h}/sink_rate"] for h in (0, 1)] == [1, 1]


def test_a_mechanism_without_weights_has_a_matrix_and_no_heads():
    made = trained("retnet", steps=1)
    found = measured(made, suite.Settings(examples=8, probe=2))
    assert found["quiet/first_token_mass"].n == 2
    assert not [key for key in found if key.startswith("head")]
    wanted = suite.cells(SimpleNamespace(task=lambda name: SETTINGS))  # type: ignore[arg-type]
    assert {cell for cell in wanted if f"{cell[0]}/{cell[2]}" not in found} == set(filter(suite.may_lack, wanted))


def test_a_silent_model_is_perfect_at_quiet_tokens_and_knows_nothing_at_the_trigger():
    rows = trigger.evaluation(SETTINGS, 50, 0)
    logp_BTV = np.full((50, 32, trigger.VOCAB), -math.log(trigger.VOCAB))
    quiet_BT = (rows.inputs_BT != trigger.TRIGGER) & (np.arange(32) > 0)
    quiet, answer = suite.excess(logp_BTV, rows, quiet_BT)
    assert quiet.value == pytest.approx(0, abs=1e-12)
    p_BV = trigger.shares(rows)
    entropy = -(p_BV * np.log(np.where(p_BV > 0, p_BV, 1))).sum(1).mean()
    assert answer.value == pytest.approx(math.log(trigger.VOCAB) - entropy)
    logp_BTV[np.arange(50), rows.trigger_B] = np.log(np.maximum(p_BV, 1e-300))
    assert next(row for row in suite.excess(logp_BTV, rows, quiet_BT) if row.task == "answer").value == pytest.approx(0)


def test_rows_of_the_trigger_task():
    task = trigger.Task(SETTINGS, 1)
    inputs_BT, targets_BT = task.batch(3)
    assert np.array_equal(task.batch(3).targets_BT, targets_BT)
    assert not np.array_equal(trigger.Task(SETTINGS, 2).batch(3).inputs_BT, inputs_BT)
    assert (inputs_BT[:, 0] == trigger.BOS).all()
    assert ((inputs_BT == trigger.TRIGGER).sum(1) == 1).all()
    assert ((inputs_BT == trigger.BOS).sum(1) == 1).all()
    assert (targets_BT[:, 0] == IGNORE).all()
    for inputs_T, targets_T in zip(inputs_BT, targets_BT, strict=True):
        (at,) = np.flatnonzero(inputs_T == trigger.TRIGGER)
        assert at >= 2
        assert targets_T[at] in inputs_T[1:at]
        assert (targets_T != IGNORE).sum() == SETTINGS.quiet + 1
        assert len(set(inputs_T.tolist()) - {trigger.BOS, trigger.TRIGGER}) <= SETTINGS.kinds
    held_out = next(task.held_out())
    assert not np.array_equal(held_out.inputs_BT, task.batch(0).inputs_BT)


def test_what_stands_around_the_attention_cannot_be_asked_for():
    for change in ({"conv": 4}, {"layers": 2}, {"alone": False}):
        with pytest.raises(ValueError, match=next(iter(change))):
            trigger.Settings.model_validate(SETTINGS.model_dump() | {"model": SETTINGS.model.model_dump() | change})
    with pytest.raises(ValueError, match="no room"):
        trigger.Settings.model_validate(SETTINGS.model_dump() | {"length": 5})


@pytest.mark.parametrize("impl", ["softmax", "gla"])
def test_attention_alone_decodes_as_it_reads(impl: str):
    shape = model.shape_of(impl, {}, SETTINGS.model, trigger.VOCAB)
    made = model.build(shape, 0).double().eval()
    ids_BT = torch.from_numpy(trigger.evaluation(SETTINGS, 2, 0).inputs_BT[:, :9])
    with torch.no_grad():
        whole_BTV = made(ids_BT)
        logits_BTV, states = made.prefill(ids_BT[:, :5])
        torch.testing.assert_close(logits_BTV, whole_BTV[:, :5])
        for t in range(5, 9):
            logits_BV, states = made.step(ids_BT[:, t], states)
            torch.testing.assert_close(logits_BV, whole_BTV[:, t])
    assert isinstance(made.norm, nn.Identity)


TEXT = np.random.default_rng(0).integers(0, 40, 64 * 9 + 5)


def lm(impl="softmax", **args: Any):
    return model.build(
        model.Shape(impl=impl, args={"heads": 2, **args}, vocab=40, width=16, layers=2, mlp=16, conv=4), 0
    ).eval()


def lm_rows(made, text=TEXT, **wanted):
    with evaluate.undisturbed(made):
        return list(lm_suite.measure(made, text, lm_suite.Settings(**wanted), "cpu"))


def test_the_suite_measures_every_layer_and_head_once():
    profile: Any = SimpleNamespace(task=lambda name: SimpleNamespace(model=SimpleNamespace(layers=2, heads=2)))
    found = lm_rows(lm(), sequences=20)
    assert sorted(row.cell for row in found) == sorted(lm_suite.cells(profile))  # pyright: ignore
    table = {f"{row.task}/{row.metric}": row for row in found}
    assert table["lm/sink_rate"].n == 9 * 2 * 2  # the text holds nine windows
    for metric in lm_suite.WEIGHTS:
        heads = [table[f"layer1-head{h}/{metric}"].value for h in (0, 1)]
        assert table[f"layer1/{metric}"].value == pytest.approx(np.mean(heads))
        layers = [table[f"layer{n}/{metric}"].value for n in (1, 2)]
        assert table[f"lm/{metric}"].value == pytest.approx(np.mean(layers))
    assert "layer2-head1/hidden_max" not in table
    assert table["lm/hidden_max"].value == max(table[f"layer{n}/hidden_max"].value for n in (1, 2))
    assert table["layer1/row_entropy"].value < math.log(64)
    lacking = {row.cell for row in lm_rows(lm("delta_net"), sequences=2)}
    assert {cell for cell in lm_suite.cells(profile) if cell not in lacking} == {
        cell for cell in lm_suite.cells(profile) if lm_suite.may_lack(cell)
    }


def test_layers_of_both_kinds_count_on_the_sequences_of_the_implicit_matrix():
    """As where a method takes the weights out of some layers: nine windows for the first layer, two for the second."""
    made = lm()
    made.layers[1].mixer = lm("delta_net").layers[1].mixer
    table = {f"{row.task}/{row.metric}": row for row in lm_rows(made, sequences=20, probe=2)}
    assert table["layer1/first_token_mass"].n == 9 * 2
    assert table["layer2/first_token_mass"].n == 2
    assert table["lm/first_token_mass"].n == 2 * (2 + 1)
    first = {f"{row.task}/{row.metric}": row.value for row in lm_rows(made, sequences=2, probe=2)}
    by_head = [first[f"layer1-head{h}/first_token_mass"] for h in (0, 1)] + [first["layer2/first_token_mass"]]
    assert table["lm/first_token_mass"].value == pytest.approx(np.mean(by_head))


def test_uniform_attention_has_the_first_token_mass_that_counting_gives():
    made = lm()
    for layer in made.layers:
        nn.init.zeros_(layer.mixer.qkv.weight)  # pyright: ignore
    table = {f"{row.task}/{row.metric}": row.value for row in lm_rows(made, length=8)}
    assert table["lm/first_token_mass"] == pytest.approx(np.mean([1 / n for n in range(2, 9)]))
    assert table["lm/row_entropy"] == pytest.approx(np.mean([math.log(n) for n in range(2, 9)]), rel=1e-5)
    assert table["lm/sink_rate"] == 1  # with the first query, which sees itself alone, the mean is 0.34
    assert table["lm/sparsity"] == 0


def test_a_text_without_a_window_is_refused():
    with pytest.raises(UserError, match=r"suites\.sinks\.length"):
        lm_rows(lm(), text=TEXT[:63])


def test_a_cell_that_a_mechanism_may_lack_is_no_failure():
    wanted: list[Cell] = [("layer1", None, "row_entropy"), ("layer1-head0", None, "row_entropy")]
    found = {wanted[0]: Row("layer1", None, "row_entropy", 1.0, 1)}
    assert evaluate.shortfall(wanted, found, lm_suite.may_lack) is None
    assert "layer1/row_entropy" in (evaluate.shortfall(wanted, {}, lm_suite.may_lack) or "")
    assert "layer1-head0" in (evaluate.shortfall(wanted, found, lambda cell: False) or "")


def test_the_rate_beside_a_grid_is_that_of_the_whole_model():
    parts = {"layer1": 0.5, "layer1-head0": 1.0, "head0": 0.75, "lm": 0.25}
    values = {EvidenceCell("sinks", task, None, "sink_rate"): {0: Value(rate, 1, None)} for task, rate in parts.items()}
    run = Run("softmax-0", "softmax", {}, {}, "softmax", [], values=values)
    assert heads.rate("sinks", run) == "0.250"
    assert heads.rate("trigger", run) == ""
