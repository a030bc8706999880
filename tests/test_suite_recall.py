"""The suite `recall` against models whose answers are known by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.suites import Row, recall
from harness.tasks import recall as task
from tests.fakes import Fake


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


def measure_recall(answer, seed=0, length=128, **wanted):
    settings: Any = SimpleNamespace(length=length, model=SimpleNamespace(heads=2))
    rows = recall.measure(Fake(answer), settings, recall.Settings(**{"examples": 32, **wanted}), seed, "cpu")
    return {row.cell: row for row in rows}


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


def test_the_cells_promised_are_the_cells_measured():
    settings: Any = SimpleNamespace(length=64, model=SimpleNamespace(heads=2))
    profile: Any = SimpleNamespace(task=lambda name: settings, suite=lambda name: recall.Settings(examples=2))
    assert recall.cells(profile) == list(measure_recall(induction, length=64, examples=2))


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
