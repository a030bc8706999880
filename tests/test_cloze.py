"""Cloze and last word: cut as they say, chance for a model that knows nothing, 1 for one that knows the text."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness import adapter, passages
from harness.errors import UserError
from harness.model import Shape, build
from harness.suites import cloze, last_word
from impls.base import TokenMixer

SPELLING = ["<|endoftext|>", "Ġ", "a", "Ġthe", "Ġcat", "Ġhouse", "s", ".", "Ċ", "Ġwater", "fall", "Ġ19", "b", "c"]
END, V = 0, len(SPELLING)
TOKEN = {text: place for place, text in enumerate(SPELLING)}


def ids(*texts):
    return np.array([TOKEN[text] for text in texts])


def made(seed, length=60, count=40):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, V, length) for _ in range(count)]


class Reads(TokenMixer):
    """A mixer without a cache, so that rows are read whole."""

    def forward(self, x_BTD):
        return x_BTD


class Fake(nn.Module):
    """A model that is a function of its tokens: `answer(ids_BT) -> logits_BTV`."""

    def __init__(self, answer):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.answer, self.layers, self.shape = answer, [SimpleNamespace(mixer=Reads())], SimpleNamespace(vocab=V)

    def hidden(self, ids_BT):
        return self.answer(ids_BT)

    def head(self, logits_BTV):
        return logits_BTV


def uniform(ids_BT):
    return torch.zeros(*ids_BT.shape, V)


def missing(ids_BT):
    return torch.full((*ids_BT.shape, V), math.nan)


def knows(texts, context=8):
    """Certain of what follows the last `context` tokens in one of the texts."""
    follower = {
        tuple(text[at : at + context]): text[at + context] for text in texts for at in range(len(text) - context)
    }

    def answer(ids_BT):
        logits_BTV = torch.zeros(*ids_BT.shape, V)
        for b, row in enumerate(ids_BT.tolist()):
            for t in range(context, len(row) + 1):
                token = follower.get(tuple(row[t - context : t]))
                if token is not None:
                    logits_BTV[b, t - 1, token] = 50.0
        return logits_BTV

    return answer


def questions(texts, count=40, context=8, continuation=4):
    return passages.cloze(texts, SPELLING, count, context, continuation)


def test_no_piece_is_cut_from_an_article_shorter_than_it():
    texts = [*made(1, length=10), *made(2)]
    asked = passages.cloze(texts, SPELLING, 40, context=4, continuation=12)
    assert {len(choice) for question in asked for choice in question.choices} == {12}


def test_articles_are_split_at_their_ends():
    text_N = np.array([END, 3, 4, END, END, 5, END])
    assert [part.tolist() for part in passages.articles(text_N, END)] == [[3, 4], [5]]


def test_every_choice_is_cut_alike_and_only_the_gold_one_follows():
    texts = made(0, count=12)
    for question in questions(texts):
        assert [len(choice) for choice in question.choices] == [4] * 4
        assert len(question.context) == 8
        assert len(set(question.choices)) == 4
        assert all(SPELLING[choice[0]].startswith("Ġ") for choice in question.choices)
        whole = (*question.context, *question.choices[question.gold])
        homes = [n for n, text in enumerate(texts) if " ".join(map(str, whole)) in " ".join(map(str, text))]
        assert len(homes) == 1
        for place, choice in enumerate(question.choices):
            if place != question.gold:
                assert " ".join(map(str, choice)) not in " ".join(map(str, texts[homes[0]]))


def test_questions_depend_on_nothing_but_the_text():
    assert questions(made(0)) == questions(made(0))
    assert questions(made(0)) != questions(made(1))
    assert np.std(np.bincount([q.gold for q in questions(made(0, count=400), 400)], minlength=4)) < 20


def test_no_two_questions_are_from_one_article():
    texts = made(0, count=12)
    asked = questions(texts, count=40)
    assert len(asked) == 12  # as many as there are articles
    homes = [n for question in asked for n, text in enumerate(texts) if question.context in windows(text, 8)]
    assert sorted(homes) == list(range(12))
    assert questions(texts, count=5) == asked[:5]
    assert cloze.measure(Fake(uniform), asked).n == 12


def windows(text, length):
    return {tuple(text[at : at + length].tolist()) for at in range(len(text) - length + 1)}


def test_a_model_that_knows_nothing_is_at_chance_wherever_the_gold_stands():
    row = cloze.measure(Fake(uniform), questions(made(0)))
    assert (row.value, row.n, row.stderr) == (0.25, 40, 0.0)
    for gold in range(4):
        assert cloze.credit(np.zeros((1, 4)), np.array([gold])).tolist() == [0.25]
        assert cloze.credit(np.array([[-9.0, -9.0 + 1e-6, -20.0, -9.0 - 1e-6]]), np.array([gold]))[0] == (
            pytest.approx(1 / 3) if gold != 2 else 0
        )


def test_a_model_that_knows_the_text_finds_every_continuation():
    texts = made(0)
    row = cloze.measure(Fake(knows(texts)), questions(texts))
    assert (row.value, len(row.items)) == (1.0, 40)


def test_a_model_that_is_not_finite_has_no_score():
    row = cloze.measure(Fake(missing), questions(made(0)))
    assert math.isnan(row.value)
    assert not row.items
    assert np.isnan(cloze.credit(np.array([[0.0, -math.inf, 0.0, 0.0]]), np.array([0]))).all()


def test_too_few_articles_are_refused_with_what_to_change():
    with pytest.raises(UserError, match=r"suites\.cloze\.context"):
        questions(made(0, count=3))
    with pytest.raises(UserError, match="different pieces"):
        questions([ids(*["Ġthe"] * 60)] * 5)


SENTENCES = ids(*["Ġthe", "Ġcat", "s"] * 4, "Ġwater", "fall", ".", "Ġthe", "Ġhouse", "b", ".", "Ġthe", "Ġcat", ".")


def test_last_words_are_words_before_a_full_stop():
    found = [word.word for word in passages._last_words(SENTENCES, SPELLING, 4, 8)]
    assert found == [tuple(ids("Ġwater", "fall")), tuple(ids("Ġhouse", "b"))]  # " cat" has three letters
    short = [word.word for word in passages._last_words(SENTENCES, SPELLING, 4, 1)]
    assert short == []
    assert [word.context for word in passages._last_words(SENTENCES, SPELLING, 13, 8)] == [tuple(SENTENCES[3:16])]
    for other in ("Ġ19", "b"):  # a number, a stop inside a word
        assert not passages._last_words(ids("Ġthe", "Ġthe", other, ".", "a"), SPELLING, 1, 8)
    assert passages._last_words(ids("Ġthe", "Ġhouse", ".", "Ċ"), SPELLING, 1, 8)
    assert not passages._last_words(ids("Ġthe", "Ġhouse", "."), [*SPELLING[:7], ".x", *SPELLING[8:]], 1, 8)


def test_last_words_of_models_that_know_nothing_or_everything():
    texts = [ids("Ġthe", "Ġcat", third, "b", "Ġwater", "fall", ".", "Ġthe") for third in ("a", "b", "c", "s", "Ġ19")]
    words = passages.last_words(texts, SPELLING, 9, 4, 8)
    assert len(words) == 5
    accuracy, nats = last_word.measure(Fake(uniform), words)
    assert accuracy.value == 0  # greedy decoding takes one token of equals, never both of the word's
    assert nats.value == pytest.approx(2 * math.log(V), rel=1e-5)
    accuracy, nats = last_word.measure(Fake(knows(texts, context=3)), words)
    assert accuracy.value == 1
    assert nats.value == pytest.approx(0, abs=1e-5)
    assert nats.n == 5
    accuracy, nats = last_word.measure(Fake(missing), words)
    assert math.isnan(accuracy.value)
    assert math.isnan(nats.value)
    with pytest.raises(UserError, match=r"suites\.last_word\.context"):
        passages.last_words(texts[:1], SPELLING, 9, 4, 8)


@pytest.mark.parametrize("impl", ["softmax", "gla"])
def test_scores_do_not_depend_on_the_size_of_batches(impl: str, monkeypatch: pytest.MonkeyPatch):
    model = build(Shape(impl=impl, args={"heads": 2}, vocab=V, width=16, layers=2, mlp=16, conv=4), 0).eval()
    texts = made(0)
    asked = questions(texts)
    words = [passages.LastWord(q.context, q.choices[0][: 1 + n % 3]) for n, q in enumerate(asked)]
    together: Any = (cloze.measure(model, asked), *last_word.measure(model, words))
    monkeypatch.setattr(adapter, "TOKENS", 1)
    alone: Any = (cloze.measure(model, asked), *last_word.measure(model, words))
    for a, b in zip(together, alone, strict=True):
        assert a.items == pytest.approx(b.items, abs=1e-4)
    assert together[0].items == alone[0].items
    parts = [cloze.measure(model, [question]).value for question in asked]
    assert together[0].value == pytest.approx(np.mean(parts))
