"""The suite `loss` against models whose answers are known by hand."""

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
from harness.suites import loss
from tests.fakes import Fake, V, missing, uniform

PITFALLS = Path(__file__).parents[1].parent / "shared" / "pitfalls"
SETTINGS: Any = SimpleNamespace(length=8, model=SimpleNamespace(heads=2))


def counter(ids_BT):
    """Certain that 0 1 2 3 0 1 2 3 … goes on."""
    return 100 * nn.functional.one_hot((ids_BT + 1) % V, V).float()


def from_position(start, before, after):
    """One model up to window position `start`, another from there on."""

    def answer(ids_BT):
        late_T = torch.arange(ids_BT.shape[1]) >= start
        return torch.where(late_T[:, None], after(ids_BT), before(ids_BT))

    return answer


COUNTING = np.arange(257) % V


def measure_loss(answer, text=COUNTING, bytes_of=(2, 2, 2, 2), **wanted):
    wanted = loss.Settings(tokens=256, **wanted)
    rows = loss.measure(Fake(answer), text, np.array(bytes_of), SETTINGS, wanted, "cpu")
    return {row.cell: row for row in rows}


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
