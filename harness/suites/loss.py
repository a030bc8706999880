"""How well the model predicts held-out articles, at the training length and far beyond it.

What is scored: the first `tokens` tokens of the test text, `<end> article <end> article …` (see `harness.data`), cut
into adjacent windows of one length. Each token is predicted exactly once, from the tokens before it in its window;
context resets between windows, not between articles, as in training. The first token of a window is predicted from the
last one of the window before (at the start: from the `<end>` that opens the text), so none is predicted from nothing.

    test      bits_per_byte, nats, perplexity at the training length T
    position  nats of the tokens at window positions up to `length`: sixteenths of T from windows of T, then
              (T, 2T], (2T, 4T], … from the longest windows
    length    bits_per_byte in windows of 1, 2, 4, 8, 16 × T; the same tokens at every length

bits_per_byte = total nats / ln 2 / bytes of UTF-8 text those tokens spell; `<end>` costs nats and spells no byte.
n counts predicted tokens; the standard error is over windows. `items` holds what each window contributes; the windows
are the same for every run and seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.closed import Ascending, Count
from harness.config import Profile, SuiteSettings
from harness.errors import UserError
from harness.metrics import Metric
from harness.suites import Cell, Row, influence, ratio

TASK = "lm"
SHARED_ITEMS = True
METRICS = {
    "bits_per_byte": Metric(unit="bits/byte", better="lower", summary="cost of held-out text, whatever the tokenizer"),
    "nats": Metric(unit="nats/token", better="lower", summary="mean loss of a predicted token"),
    "perplexity": Metric(unit="1", better="lower", summary="exp(nats); to be compared under one tokenizer only"),
}
SIXTEENTHS = 16  # buckets of position inside the training length


class Settings(SuiteSettings):
    tokens: Count = 32_768  # scored at every length; cut to a multiple of the longest window
    multiples: Ascending[Count] = (1, 2, 4, 8, 16)  # of the training length


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    length, multiples = profile.task(TASK).length, profile.suite("loss").multiples
    return [
        *(("test", length, metric) for metric in METRICS),
        *(("position", stop, "nats") for _, stop in buckets(length, multiples)),
        *(("length", multiple * length, "bits_per_byte") for multiple in multiples),
    ]


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row]:
    """Rows of every cell. Raises UserError when the test text is shorter than the longest window."""
    from harness.data import Corpus

    corpus = Corpus(profile.data.folder)
    yield from measure(model, corpus.tokens("test"), corpus.token_bytes_V, settings, profile.suite("loss"), device)


def measure(
    model: Any, text_N: np.ndarray, token_bytes_V: np.ndarray, settings: Any, wanted: Settings, device: Any
) -> Iterator[Row]:
    """The suite on a given text; `settings` has `length` and `model.heads` of the training."""
    from harness.scoring import nats, rows_that_fit

    length, multiples = settings.length, wanted.multiples
    tokens = common_tokens(min(wanted.tokens, len(text_N) - 1), [multiple * length for multiple in (1, *multiples)])

    def score(window: int) -> tuple[np.ndarray, np.ndarray]:
        """(nats_WL, bytes_W) in windows of this length."""
        inputs_WL, targets_WL = windows(text_N, tokens, window)
        rows = rows_that_fit(window, settings.model.heads, len(token_bytes_V))
        return nats(model, inputs_WL, targets_WL, rows, device), token_bytes_V[targets_WL].sum(axis=1)

    nats_WL, bytes_W = score(length)
    yield from test_rows(nats_WL, bytes_W)
    yield from position_rows(nats_WL, [bucket for bucket in buckets(length, multiples) if bucket[1] <= length])
    for multiple in multiples:
        if multiple > 1:
            nats_WL, bytes_W = score(multiple * length)
        yield Row("length", multiple * length, "bits_per_byte", *bits_per_byte(nats_WL, bytes_W))
    yield from position_rows(nats_WL, [bucket for bucket in buckets(length, multiples) if bucket[1] > length])


def common_tokens(available: int, lengths: list[int]) -> int:
    """The most tokens that windows of each of these lengths fill without rest. Raises UserError when none do."""
    unit = math.lcm(*lengths)
    if available < unit:
        raise UserError(
            f"{available:,} tokens of test text do not fill windows of {', '.join(map(str, lengths[1:]))} tokens; "
            f"give {unit:,} by suites.loss.tokens and a larger data.test, or lower suites.loss.multiples"
        )
    return available // unit * unit


def spans(tokens: int, length: int) -> list[tuple[int, int]]:
    """(start, stop) of the tokens predicted by each window: every one of `tokens` once, at most `length` a window.

    Token i is predicted at input i - 1; input -1 is the `<end>` that opens the text.
    """
    return [(start, min(start + length, tokens)) for start in range(0, tokens, length)]


def windows(text_N: np.ndarray, tokens: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs_WL, targets_WL) of the `tokens` after text_N[0]; `length` divides `tokens`."""
    cuts = spans(tokens, length)
    inputs_WL = np.stack([text_N[start:stop] for start, stop in cuts])
    targets_WL = np.stack([text_N[start + 1 : stop + 1] for start, stop in cuts])
    return inputs_WL.astype(np.int64), targets_WL.astype(np.int64)


def buckets(length: int, multiples: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, stop) of the position buckets, counted from 0."""
    inside = sorted({length * part // SIXTEENTHS for part in range(SIXTEENTHS + 1)})
    edges = inside + [multiple * length for multiple in multiples if multiple > 1]
    return list(itertools.pairwise(edges))


Scored = tuple[float, int, float | None, list[float]]  # value, predicted tokens, standard error over windows, items


def bits_per_byte(nats_WL: np.ndarray, bytes_W: np.ndarray) -> Scored:
    """Bits over bytes, by window."""
    bits_W = nats_WL.sum(axis=1) / math.log(2)
    value, stderr = ratio(bits_W, bytes_W)
    return value, nats_WL.size, stderr, influence(bits_W, bytes_W)


def mean_nats(nats_WL: np.ndarray) -> Scored:
    """Nats over tokens, by window."""
    nats_W, tokens_W = nats_WL.sum(axis=1), np.full(len(nats_WL), nats_WL.shape[1])
    value, stderr = ratio(nats_W, tokens_W)
    return value, nats_WL.size, stderr, influence(nats_W, tokens_W)


def perplexity(nats: float, tokens: int) -> float:
    """exp(nats / tokens); NaN of NaN, infinite beyond the largest float. Raises ValueError without tokens."""
    if tokens < 1:
        raise ValueError("the perplexity of no tokens is not defined")
    with np.errstate(over="ignore"):
        return float(np.exp(np.float64(nats) / tokens))


def test_rows(nats_WL: np.ndarray, bytes_W: np.ndarray) -> Iterator[Row]:
    """The task `test`."""
    length = nats_WL.shape[1]
    yield Row("test", length, "bits_per_byte", *bits_per_byte(nats_WL, bytes_W))
    mean, n, stderr, items = mean_nats(nats_WL)
    yield Row("test", length, "nats", mean, n, stderr, items)
    value = perplexity(nats_WL.sum(), n)
    items = [value * (1 + item - mean) for item in items] if math.isfinite(value) else []  # delta method, as the error
    yield Row("test", length, "perplexity", value, n, None if stderr is None else value * stderr, items)


def position_rows(nats_WL: np.ndarray, wanted: list[tuple[int, int]]) -> Iterator[Row]:
    """The task `position`, a row a bucket."""
    for start, stop in wanted:
        yield Row("position", stop, "nats", *mean_nats(nats_WL[:, start:stop]))
