"""What suites score by: credit, ratios with their errors, and batches that change nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from harness.model import Shape, build
from harness.scoring import argmax_credit, credit, nats, rows_that_fit
from harness.suites import ratio
from harness.tasks import recall as task


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
