"""The last word of a sentence, from the text before it: LAMBADA (arXiv:1606.06031) for small models and any corpus.

One sentence a held-out article (`harness.passages`): `context` tokens, then the word before the full stop, of four
letters or more. Unlike LAMBADA's, the words are not chosen to be guessable.

    accuracy   share of words that greedy decoding gives: each of their tokens is the most likely one
    nats       -log p of the word, the sum over its tokens; to be compared under one tokenizer only

n counts words: `examples` or, where fewer articles have such a sentence, as many as do; standard errors are over them.
The sentences are the same for every run and seed; `items` holds the outcome of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.closed import Count
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.passages import LastWord, articles, last_words, spelled
from harness.suites import Cell, Row, ratio

TASK = "lm"
SHARED_ITEMS = True
METRICS = {
    "accuracy": Metric(unit="share", better="higher", chance=0.0, summary="words that greedy decoding gives"),
    "nats": Metric(unit="nats/word", better="lower", summary="cost of the word"),
}


class Settings(SuiteSettings):
    examples: Count = 300  # at most
    context: Count = 48  # tokens before the word
    longest: Count = 8  # tokens of a word


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    return [("sentence", None, metric) for metric in METRICS]


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row]:
    """Rows of every cell. Raises UserError when the test text has too few sentences."""
    from harness.data import END_ID, Corpus

    wanted, corpus = profile.suite("last_word"), Corpus(profile.data.folder)
    spelling = spelled(corpus.tokenizer(), corpus.vocab)
    texts = articles(corpus.tokens("test"), END_ID)
    yield from measure(model, last_words(texts, spelling, wanted.examples, wanted.context, wanted.longest))


def measure(model: Any, words: Sequence[LastWord]) -> Iterator[Row]:
    """The rows of these words; `model` is anything that `harness.adapter.over` takes."""
    from harness.adapter import Answerer, over

    window = max(len(asked.context) + len(asked.word) for asked in words)
    scores = Answerer(over(model), window).score(words)
    nats_N = -np.array([score.logp for score in scores])
    right_N = np.where(np.isfinite(nats_N), [score.greedy for score in scores], np.nan)
    for metric, values_N in (("accuracy", right_N), ("nats", nats_N)):
        value, stderr = ratio(values_N, np.ones(len(values_N)))
        yield Row("sentence", None, metric, value, len(words), stderr, values_N.tolist() if np.isfinite(value) else ())
