"""Questions cut from held-out articles: which text goes on like this, and what is the last word of the sentence?

Cut by a seeded generator from the tokens alone, so that they depend on the text and on how many are asked for, and are
the same for every run and seed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.errors import UserError

CHOICES = 4
SPACE, LINE_FEED = "Ġ", "Ċ"  # as the alphabet of byte-level tokens writes them
SENTENCE_END = re.compile(rf"{SPACE}[A-Za-z]{{4,}}(?=\.(?:[{SPACE}{LINE_FEED}]|$))")
CLOZE, LAST_WORD = 0, 1  # the first word of the random stream


class Cloze(NamedTuple):
    """A context and what may follow it, all choices of one length; `gold` is the place of the one that does."""

    context: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]
    gold: int


class LastWord(NamedTuple):
    """The tokens before the last word of a sentence, and the word with its space."""

    context: tuple[int, ...]
    word: tuple[int, ...]


def articles(ids_N: np.ndarray, end: int) -> list[np.ndarray]:
    """The articles of `<end> article <end> article … <end>`, none of them empty."""
    parts = np.split(ids_N, np.flatnonzero(ids_N == end))
    return [part[part != end] for part in parts if (part != end).any()]


def spelled(tokenizer: Any, vocab: int) -> list[str]:
    """The text of each token in the byte-level alphabet."""
    return [str(tokenizer.id_to_token(token)) for token in range(vocab)]


def cloze(
    texts: Sequence[np.ndarray], spelling: Sequence[str], count: int, context: int, continuation: int
) -> list[Cloze]:
    """One context an article, `count` articles at most, each with what follows and three pieces of others.

    Every piece is cut in the same way: at a random token that opens a word, behind as many tokens as the context has.
    Wrong choices differ from the right one and among themselves. Raises UserError when fewer than four articles can be
    cut.
    """
    opens_V = np.array([text.startswith(SPACE) for text in spelling])
    cuts = [np.flatnonzero(opens_V[text[context : max(len(text) - continuation + 1, 0)]]) + context for text in texts]
    usable = [(text, cut) for text, cut in zip(texts, cuts, strict=True) if len(cut)]
    if len(usable) < CHOICES:
        raise UserError(
            f"the test text has {len(usable)} articles of {context + continuation} tokens, a cloze needs {CHOICES}; "
            "lower suites.cloze.context or suites.cloze.continuation, or raise data.test"
        )
    rng = np.random.default_rng([CLOZE, context, continuation])
    return [_cloze(usable, int(at), context, continuation, rng) for at in rng.permutation(len(usable))[:count]]


def _cloze(
    usable: list[tuple[np.ndarray, np.ndarray]], at: int, context: int, continuation: int, rng: np.random.Generator
) -> Cloze:
    def piece(place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        text, cut = usable[place]
        start = rng.choice(cut)
        return tuple(text[start - context : start].tolist()), tuple(text[start : start + continuation].tolist())

    before, right = piece(at)
    wrong: list[tuple[int, ...]] = []
    for place in rng.permutation(len(usable)):
        other = piece(int(place))[1]
        if place != at and other != right and other not in wrong:
            wrong.append(other)
        if len(wrong) == CHOICES - 1:
            break
    else:
        raise UserError(f"the test text has fewer than {CHOICES} different pieces of {continuation} tokens")
    gold = int(rng.integers(CHOICES))
    return Cloze(before, (*wrong[:gold], right, *wrong[gold:]), gold)


def last_words(
    texts: Sequence[np.ndarray], spelling: Sequence[str], count: int, context: int, longest: int
) -> list[LastWord]:
    """One sentence an article, `count` articles at most: `context` tokens, then the word before the full stop.

    A word has four letters or more, all of them ASCII, and at most `longest` tokens that spell it and its space
    exactly. `spelling` is as `spelled` gives it. Raises UserError when fewer than two are found.
    """
    rng = np.random.default_rng([LAST_WORD, context])
    found: list[LastWord] = []
    for at in rng.permutation(len(texts)):
        words = _last_words(texts[at], spelling, context, longest)
        if words:
            found.append(words[int(rng.integers(len(words)))])
        if len(found) == count:
            break
    if len(found) < 2:
        raise UserError(
            f"the test text has {len(found)} sentences that end in a word behind {context} tokens, and two are needed; "
            "lower suites.last_word.context or raise data.test"
        )
    return found


def _last_words(ids_N: np.ndarray, spelling: Sequence[str], context: int, longest: int) -> list[LastWord]:
    tokens: list[int] = ids_N.tolist()
    letters = [spelling[token] for token in tokens]
    starts = np.cumsum([0, *map(len, letters)]).tolist()
    token_at = {start: place for place, start in enumerate(starts)}
    found = []
    for match in SENTENCE_END.finditer("".join(letters)):
        first, stop = (token_at.get(place) for place in match.span())
        if first is not None and stop is not None and first >= context and stop - first <= longest:
            found.append(LastWord(tuple(tokens[first - context : first]), tuple(tokens[first:stop])))
    return found
