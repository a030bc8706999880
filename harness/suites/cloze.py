"""Which of four texts goes on like this? For models too small for the questions of published suites.

A context of `context` tokens is cut from a held-out article, at the end of a word; the choices are the `continuation`
tokens that follow it and three pieces of as many tokens from other held-out articles (`harness.passages`). The choice
with the highest log-probability given the context is taken; all have one length in tokens, so nothing is normalised.

accuracy: share of right answers; where k choices share the highest log-probability (to 1e-4 nats, more than batches
can change), 1/k, so that a model that cannot tell them apart has exactly 1/4. No two questions are from one article, so
n, which counts questions, is `examples` or as many as there are articles that are long enough; the standard error is
over them. The questions are the same for every run and seed; `items` holds the credit of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.closed import Count
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.passages import CHOICES, Cloze, articles, cloze, spelled
from harness.suites import Cell, Row, ratio

TASK = "lm"
SHARED_ITEMS = True
METRICS = {
    "accuracy": Metric(unit="share", better="higher", chance=1 / CHOICES, summary="texts whose continuation is found")
}
TIE = 1e-4  # nats


class Settings(SuiteSettings):
    examples: Count = 200  # at most
    context: Count = 48  # tokens
    continuation: Count = 12  # tokens


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    return [("continuation", None, "accuracy")]


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row]:
    """Rows of every cell. Raises UserError when too few test articles are long enough."""
    from harness.data import END_ID, Corpus

    wanted, corpus = profile.suite("cloze"), Corpus(profile.data.folder)
    spelling = spelled(corpus.tokenizer(), corpus.vocab)
    texts = articles(corpus.tokens("test"), END_ID)
    yield measure(model, cloze(texts, spelling, wanted.examples, wanted.context, wanted.continuation))


def measure(model: Any, questions: Sequence[Cloze]) -> Row:
    """The row of these questions; `model` is anything that `harness.adapter.over` takes."""
    from harness.adapter import Answerer, over

    window = max(len(question.context) + len(question.choices[0]) for question in questions)
    pairs = [(question.context, choice) for question in questions for choice in question.choices]
    scores = Answerer(over(model), window).score(pairs)
    logp_QC = np.array([score.logp for score in scores]).reshape(len(questions), CHOICES)
    credit_Q = credit(logp_QC, np.array([question.gold for question in questions]))
    value, stderr = ratio(credit_Q, np.ones(len(credit_Q)))
    items = credit_Q.tolist() if np.isfinite(value) else ()
    return Row("continuation", None, "accuracy", value, len(questions), stderr, items)


def credit(logp_QC: np.ndarray, gold_Q: np.ndarray) -> np.ndarray:
    """1 where the right choice alone is best, 1/k where k choices are, else 0; NaN where a choice has no number."""
    best_QC = logp_QC >= logp_QC.max(axis=1, keepdims=True) - TIE
    hit_Q = best_QC[np.arange(len(gold_Q)), gold_Q]
    return np.where(np.isfinite(logp_QC).all(axis=1), hit_Q / np.maximum(best_QC.sum(axis=1), 1), np.nan)
