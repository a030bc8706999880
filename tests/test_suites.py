"""The suites against models whose answers are known by hand."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness import suites
from harness.errors import UserError
from harness.model import Shape, build
from harness.scoring import argmax_credit, credit, nats, rows_that_fit
from harness.suites import Row, loss, ratio, recall
from harness.tasks import recall as task

PITFALLS = Path(__file__).parents[1].parent / "shared" / "pitfalls"
V = 4
SETTINGS: Any = SimpleNamespace(length=8, model=SimpleNamespace(heads=2))


class Fake(nn.Module):
    """A model that is a function of its tokens: `answer(ids_BT) -> logits_BTV`."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, ids_BT):
        return self.answer(ids_BT)


def uniform(ids_BT):
    return torch.zeros(*ids_BT.shape, V)


def counter(ids_BT):
    """Certain that 0 1 2 3 0 1 2 3 … goes on."""
    return 100 * nn.functional.one_hot((ids_BT + 1) % V, V).float()


def from_position(start, before, after):
    """One model up to window position `start`, another from there on."""

    def answer(ids_BT):
        late_T = torch.arange(ids_BT.shape[1]) >= start
        return torch.where(late_T[:, None], after(ids_BT), before(ids_BT))

    return answer


def missing(ids_BT):
    return torch.full((*ids_BT.shape, V), math.nan)


def induction(ids_BT):
    """Answers every token with what followed its last occurrence: solves recall."""
    logits = torch.zeros(*ids_BT.shape, task.VOCAB)
    for b, row in enumerate(ids_BT.tolist()):
        follower = {}
        for t, token in enumerate(row):
            if token in follower:
                logits[b, t, follower[token]] = 1.0
            if t + 1 < len(row):
                follower.setdefault(token, row[t + 1])
    return logits


COUNTING = np.arange(257) % V


def measure_loss(answer, text=COUNTING, bytes_of=(2, 2, 2, 2), **wanted):
    wanted = loss.Settings(tokens=256, **wanted)
    rows = loss.measure(Fake(answer), text, np.array(bytes_of), SETTINGS, wanted, "cpu")
    return {row.cell: row for row in rows}


def measure_recall(answer, seed=0, length=128, **wanted):
    settings: Any = SimpleNamespace(length=length, model=SimpleNamespace(heads=2))
    rows = recall.measure(Fake(answer), settings, recall.Settings(**{"examples": 32, **wanted}), seed, "cpu")
    return {row.cell: row for row in rows}


# ---------------------------------------------------------------- loss


def test_a_uniform_model_costs_one_bit_a_byte_when_four_tokens_of_two_bytes_are_equally_likely():
    rows = measure_loss(uniform)
    assert len(rows) == 3 + 8 + 4 + 5  # metrics, distinct sixteenths of 8, doublings, lengths
    for cell, row in rows.items():
        expected = {"bits_per_byte": 1.0, "nats": math.log(4), "perplexity": 4.0}[row.metric]
        assert row.value == pytest.approx(expected, rel=1e-6), cell
        assert row.stderr == pytest.approx(0, abs=1e-6), cell


def test_bytes_are_those_of_the_predicted_tokens():
    text = np.array([3, 0, 1, 2, 0, 1, 2, 0, 1])  # 3 opens the text and is never predicted: three of each but two of 2
    rows = measure_loss(uniform, text, bytes_of=(1, 2, 5, 100), multiples=(1,))
    assert rows["test", 8, "bits_per_byte"].value == pytest.approx(8 * 2 / (3 * 1 + 3 * 2 + 2 * 5), rel=1e-6)


def test_one_window_has_no_standard_error():
    assert measure_loss(uniform, COUNTING[:9], multiples=(1,))["test", 8, "bits_per_byte"].stderr is None


def test_a_model_that_knows_the_next_token_costs_nothing_and_one_token_off_costs_much():
    assert all(
        row.value == pytest.approx(0 if row.metric != "perplexity" else 1) for row in measure_loss(counter).values()
    )
    late = measure_loss(lambda ids: counter(ids - 1))
    assert late["test", 8, "nats"].value == pytest.approx(100)


def test_perplexity_and_nats_of_a_known_probability():
    sure = measure_loss(
        lambda ids: torch.log(nn.functional.one_hot((ids + 1) % V, V) * 0.4 + 0.15)
    )  # 0.55 and 3 × 0.15
    assert sure["test", 8, "nats"].value == pytest.approx(-math.log(0.55 / (0.55 + 3 * 0.15)), rel=1e-6)
    assert sure["test", 8, "perplexity"].value == pytest.approx(1 / 0.55, rel=1e-6)


def test_standard_errors_are_over_windows():
    text = np.tile(
        [0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0], 16
    )  # a window that counts up, one that does not, …
    rows = measure_loss(lambda ids: counter(ids) / 100, np.append(text, 0), multiples=(1,))
    log_total = math.log(math.e + 3)  # logits 1, 0, 0, 0
    nats_W = np.tile([log_total - 1, log_total], 16)
    expected = nats_W.std(ddof=1) / math.sqrt(32)
    assert rows["test", 8, "nats"].value == pytest.approx(nats_W.mean(), rel=1e-6)
    assert rows["test", 8, "nats"].stderr == pytest.approx(expected, rel=1e-6)
    assert rows["test", 8, "bits_per_byte"].stderr == pytest.approx(expected / 2 / math.log(2), rel=1e-6)
    assert rows["test", 8, "perplexity"].stderr == pytest.approx(
        rows["test", 8, "perplexity"].value * expected, rel=1e-6
    )


def test_position_and_length_show_where_a_model_breaks():
    rows = measure_loss(from_position(8, counter, uniform))
    assert all(rows["position", stop, "nats"].value == pytest.approx(0) for stop in range(1, 9))
    assert all(rows["position", 8 * m, "nats"].value == pytest.approx(math.log(4), rel=1e-6) for m in (2, 4, 8, 16))
    for multiple in (1, 2, 4, 8, 16):  # the share of tokens beyond the first 8 of each window
        assert rows["length", 8 * multiple, "bits_per_byte"].value == pytest.approx(1 - 1 / multiple, abs=1e-6)
    rows = measure_loss(from_position(3, uniform, counter))
    assert [round(rows["position", stop, "nats"].value / math.log(4), 6) for stop in range(1, 9)] == [
        1,
        1,
        1,
        0,
        0,
        0,
        0,
        0,
    ]


def test_every_length_scores_the_same_tokens():
    seen = {}

    def spy(ids_BT):
        seen.setdefault(ids_BT.shape[1], []).append(ids_BT.flatten())
        return uniform(ids_BT)

    text = np.random.default_rng(0).integers(0, V, 300)  # not a multiple of anything
    rows = measure_loss(spy, text)
    assert sorted(seen) == [8, 16, 32, 64, 128]
    assert all(torch.equal(torch.cat(parts), torch.from_numpy(text[:256])) for parts in seen.values())
    assert {row.n for row in rows.values() if row.task != "position"} == {256}


def test_nan_at_long_range_is_nan_there_and_a_number_elsewhere():
    rows = measure_loss(from_position(16, uniform, missing))
    lost = {suites.name(cell) for cell, row in rows.items() if not math.isfinite(row.value)}
    long = {"length/bits_per_byte@32", "length/bits_per_byte@64", "length/bits_per_byte@128"}
    assert lost == long | {"position/nats@32", "position/nats@64", "position/nats@128"}


def test_a_short_text_is_refused_with_both_sizes():
    with pytest.raises(UserError, match=r"100 tokens of test text.*give 128 by suites\.loss\.tokens"):
        measure_loss(uniform, COUNTING[:101])


def test_the_cells_promised_are_the_cells_measured():
    profile: Any = SimpleNamespace(task=lambda name: SETTINGS, suite=lambda name: loss.Settings(tokens=256))
    assert loss.cells(profile) == sorted(measure_loss(uniform), key=loss.cells(profile).index)
    settings: Any = SimpleNamespace(length=64, model=SETTINGS.model)
    profile: Any = SimpleNamespace(task=lambda name: settings, suite=lambda name: recall.Settings(examples=2))
    assert recall.cells(profile) == list(measure_recall(induction, length=64, examples=2))


def test_the_windows_obey_the_pitfall_rules(monkeypatch):
    """Each token once, never from itself (C17); numerator and denominator of the same tokens (C18)."""
    if not PITFALLS.is_dir():
        pytest.skip("the pitfall cases are not beside this repository")
    monkeypatch.syspath_prepend(str(PITFALLS / "dev"))
    case = importlib.import_module("e04_likelihood_windows")

    class Adapter:
        @staticmethod
        def windows(tokens, longest):
            return [(list(range(a - 1, b - 1)), list(range(a, b))) for a, b in loss.spans(tokens, longest)]

        @staticmethod
        def ppl(log_likelihood, tokens):
            return loss.perplexity(-log_likelihood, tokens)

    case.check(Adapter)
    inputs_WL, targets_WL = loss.windows(np.arange(25), 24, 4)  # and the arrays are these spans
    assert [(list(i - 1), list(t - 1)) for i, t in zip(inputs_WL, targets_WL, strict=True)] == Adapter.windows(24, 4)


# ---------------------------------------------------------------- recall


def test_an_oracle_recalls_everything():
    rows = measure_recall(induction, length=64, multiples=(1, 2), kinds=("mqar-4", "mqar-32", "needle-1", "needle-8"))
    assert list(rows) == [
        ("mqar-4", 64, "accuracy"),
        ("mqar-32", 128, "accuracy"),  # 32 pairs and their queries do not fit in 64
        *((name, length, "accuracy") for name in ("needle-1", "needle-8") for length in (64, 128)),
    ]
    queries = {"mqar-4": 4, "mqar-32": 32, "needle-1": 1, "needle-8": 8}
    for row in rows.values():
        assert (row.value, row.stderr, row.n) == (1.0, 0.0, 32 * queries[row.task])
        assert list(row.items) == [queries[row.task]] * 32


def test_a_constant_model_scores_chance():
    for row in measure_recall(lambda ids: torch.zeros(*ids.shape, task.VOCAB)).values():
        assert row.value == pytest.approx(1 / task.VOCAB, rel=1e-12), row.cell
    values = torch.zeros(task.VOCAB)
    values[list(task.VALUES)] = 1.0
    for row in measure_recall(lambda ids: values.expand(*ids.shape, task.VOCAB)).values():
        assert row.value == pytest.approx(recall.METRICS["accuracy"].chance, rel=1e-12), row.cell
    one = nn.functional.one_hot(torch.tensor(task.VALUES[7]), task.VOCAB).float()
    row = measure_recall(lambda ids: one.expand(*ids.shape, task.VOCAB), kinds=("mqar-32",), examples=128)
    assert row["mqar-32", 128, "accuracy"].value == pytest.approx(recall.METRICS["accuracy"].chance, abs=0.006)


def test_only_the_place_of_the_query_is_scored():
    late = measure_recall(lambda ids: induction(ids).roll(1, dims=1))  # the right answer, one token late
    assert all(row.value < 0.1 for row in late.values())
    blurred = measure_recall(
        lambda ids: induction(ids) * (ids < task.VALUES.start)[..., None]
    )  # blank after every value
    assert all(row.value == 1.0 for row in blurred.values())


def test_a_model_that_answers_the_last_query_only_is_right_once_a_row():
    def last(ids_BT):
        logits = induction(ids_BT)
        logits[:, :-2] = nn.functional.one_hot(torch.tensor(0), task.VOCAB).float()
        return logits

    rows = measure_recall(last)
    assert rows["mqar-4", 128, "accuracy"].value == 1 / 4
    assert rows["mqar-32", 128, "accuracy"].value == 1 / 32
    assert rows["needle-8", 1024, "accuracy"].value == 1 / 8
    assert rows["needle-8", 1024, "accuracy"].stderr == 0  # every row alike: queries are not independent draws
    assert list(rows["needle-8", 1024, "accuracy"].items) == [1] * 32


def test_accuracy_and_its_error_by_hand():
    row = recall.accuracy("mqar-2", 8, np.array([[1, 1], [1, 0], [0, 0], [1, 0]], float))
    assert row == Row("mqar-2", 8, "accuracy", 0.5, 8, row.stderr, [2, 1, 0, 1])
    assert row.stderr == pytest.approx(math.sqrt(0.5 / 3) / 2)
    row = recall.accuracy("needle-1", 8, np.array([[1], [1], [0], [1]], float))
    assert (row.value, row.stderr) == (0.75, pytest.approx(math.sqrt(0.75 * 0.25 / 3)))  # binomial


def test_nan_logits_are_no_accuracy():
    def sometimes(ids_BT):
        logits = induction(ids_BT)
        logits[0, -2, 5] = math.nan
        return logits

    rows = measure_recall(sometimes, kinds=("mqar-4",))
    assert [math.isnan(row.value) and not row.items for row in rows.values()] == [True]


def test_examples_change_with_the_seed_and_with_nothing_else():
    asked = []

    def spy(ids_BT):
        asked.append(ids_BT.clone())
        return torch.zeros(*ids_BT.shape, task.VOCAB)

    for seed, kinds in ((0, ("mqar-8", "needle-1")), (1, ("mqar-8",)), (0, ("mqar-8",))):
        torch.manual_seed(len(asked))
        measure_recall(spy, seed=seed, kinds=kinds, multiples=(1,), examples=4)
    assert torch.equal(asked[0], asked[3])
    assert not torch.equal(asked[0], asked[2])


def test_evaluation_never_repeats_training_rows():
    settings: Any = SimpleNamespace(kinds=["mqar-4"], length=16, batch=64)
    trained = {bytes(row) for step in range(20) for row in task.Task(settings, 0).batch(step).inputs_BT}
    assert len(trained) == 20 * 64
    assert not trained & {bytes(row) for row in task.evaluation("mqar-4", 256, 16, 0).inputs_BT}


# ---------------------------------------------------------------- what both stand on


def test_credit_is_shared_among_ties_and_lost_to_a_higher_logit():
    logits = torch.tensor([[1.0, 2, 2, 0], [1, 2, 3, 0], [0, 0, 0, 0], [1, 2, 3, 0], [1, 2, math.inf, 0]])
    got = argmax_credit(logits, torch.tensor([1, 1, 3, 2, 2]))
    assert got[:4].tolist() == [0.5, 0, 0.25, 1]
    assert got[4].isnan()


def test_the_standard_error_of_a_ratio_is_that_of_resampled_clusters():
    rng = np.random.default_rng(0)
    bytes_N = rng.integers(50, 200, 400)
    nats_N = bytes_N * rng.normal(2, 0.5, 400)
    value, stderr = ratio(nats_N, bytes_N)
    picks = rng.integers(0, 400, (4000, 400))
    resampled = nats_N[picks].sum(1) / bytes_N[picks].sum(1)
    assert value == pytest.approx(nats_N.sum() / bytes_N.sum())
    assert stderr == pytest.approx(resampled.std(), rel=0.05)


def test_picks_do_not_depend_on_the_batch():
    shape = Shape(impl="softmax", args={"heads": 2}, vocab=task.VOCAB, width=16, layers=1, mlp=32, conv=4)
    model = build(shape, seed=0)
    inputs_NT, targets_NT = task.evaluation("needle-8", 40, 64, 0)
    with torch.no_grad():
        alone, together = (credit(model, inputs_NT, targets_NT, rows, "cpu") for rows in (1, 32))
        np.testing.assert_array_equal(alone, together)
        shifted = np.roll(inputs_NT, -1, axis=1)
        alone, together = (nats(model, inputs_NT, shifted, rows, "cpu") for rows in (1, 32))
        np.testing.assert_allclose(alone, together, rtol=1e-5)


def test_batches_shrink_with_length():
    for length, heads, vocab in ((128, 2, 192), (1024, 2, 192), (256, 4, 4096), (4096, 4, 4096)):
        rows = rows_that_fit(length, heads, vocab)
        assert rows == 1 or rows * 4 * length * max(heads * length, vocab) <= 16 * 2**20
    assert rows_that_fit(128, 2, 192) > 100
    assert rows_that_fit(4096, 4, 4096) == 1
