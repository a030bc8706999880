"""Scripts made from public failure reports, run on every mechanism; they lie beside the checkout, `shared/pitfalls`.

They know a mixer as a function of x and, if it likes, of a padding mask or of document ids. Both stay outside our
mixers: the adapter runs each document alone, as the harness does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import impls
from harness.proofs.cases import Case, nudged, tokens, width
from impls import entmax, ops, sigmoid, softmax_plus_one
from impls.softpick import softpick
from tests.conftest import SHARED

PITFALLS = SHARED / "pitfalls"
MIXER_SCRIPTS = [
    "m02_prefix_invariance",
    "m03_odd_lengths",
    "m04_padding_and_batch",
    "m06_extreme_inputs",
    "m07_packed_documents",
    "m08_train_eval_rng_side_effects",
]

pytestmark = pytest.mark.skipif(not PITFALLS.is_dir(), reason=f"no failure reports at {PITFALLS}")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(PITFALLS))
    monkeypatch.syspath_prepend(str(PITFALLS / "dev"))
    return importlib.import_module


class Adapter(nn.Module):
    """A mixer with the keywords that the scripts use.

    Their tolerances are absolute, for outputs near 1 in float32. Where a mechanism's grow past that, as unnormalised
    sums do, all outputs are divided by one constant.
    """

    def __init__(self, mixer: nn.Module):
        super().__init__()
        self.mixer = mixer
        with torch.no_grad():
            self.unit = max(1.0, mixer(tokens(mixer, 200)).abs().max().item())

    def forward(self, x: Tensor, mask: Tensor | None = None, segment_ids: Tensor | None = None) -> Tensor:
        if segment_ids is not None:
            lengths = torch.unique_consecutive(segment_ids[0], return_counts=True)[1].tolist()
            return self.mixer.packed(x, lengths) / self.unit  # pyright: ignore[reportCallIssue]
        if mask is None:
            return self.mixer(x) / self.unit
        y = torch.zeros_like(x)
        for row, real in enumerate(mask):
            y[row, real] = self.mixer(x[row : row + 1, real])[0] / self.unit
        return y


@pytest.mark.parametrize("name", impls.names())
@pytest.mark.parametrize("which", MIXER_SCRIPTS)
def test_mixer_avoids_the_pitfall(script, which, name):
    mixer = nudged(Case(name, ()), torch.float32)
    script(which).check(Adapter(mixer), dim=width(mixer))


class Normalisers:
    """The functions that `f01` asks for, by the weights of one query that sees the keys it may.

    A row with nothing allowed is not asked of them: a query of a causal mixer sees at least itself.
    """

    @staticmethod
    def softmax1(s: Tensor, keep: Tensor) -> Tensor:
        return row_by_row(lambda q, k: softmax_plus_one.weights(q, k, 1.0), s, keep)

    @staticmethod
    def sparsemax(s: Tensor, keep: Tensor) -> Tensor:
        return row_by_row(lambda q, k: entmax.weights(q, k, 1.0, 2), s, keep)

    @staticmethod
    def entmax15(s: Tensor, keep: Tensor) -> Tensor:
        return row_by_row(lambda q, k: entmax.weights(q, k, 1.0, 1.5), s, keep)

    @staticmethod
    def sigmoid(s: Tensor, keep: Tensor, bias: float) -> Tensor:
        return row_by_row(lambda q, k: sigmoid.weights(q, k, 1.0, bias), s, keep)


def row_by_row(weights: Callable[[Tensor, Tensor], Tensor], s: Tensor, keep: Tensor) -> Tensor:
    """Each row of scores is one query; the keys that it keeps come first."""
    rows = []
    for scores, kept in zip(s.flatten(0, -2), keep.flatten(0, -2), strict=True):
        n = int(kept.sum())
        assert kept[:n].all()
        A_S = weights(s.new_ones(1, 1, 1, 1), scores[:n].view(1, 1, n, 1)).flatten() if n else s.new_zeros(0)
        rows.append(nn.functional.pad(A_S, (0, len(scores) - n)))
    return torch.stack(rows).view_as(s)


def test_normalisers_have_their_golden_values(script):
    script("f01_normalisers_golden").check(Normalisers)


def test_softpick_avoids_its_pitfalls(script):
    script("f02_softpick_golden").check(softpick)


@pytest.mark.parametrize("chunk", [1, 16, 32, 64])
def test_delta_scan_avoids_its_pitfalls(script, chunk):
    def delta(q, k, v, beta, log_g, state=None):
        q, k, v, write = (z[None, None] for z in (q, k, v, beta[:, None] * k))
        y, S = ops.delta_scan(q, k, v, write, log_g[None, None], None if state is None else state[None, None], chunk)
        return y[0, 0], S[0, 0]

    script("f05_delta_rule_reductions").check(delta)
