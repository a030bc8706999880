"""RULER's 13 tasks on rows of single-token words, for small models that know nothing else.

Words are those of `harness.vocabulary`; `.` is filler, `_` a blank that the model fills, one token each:

    niah_single_1    . . k v . . k _              one fact in a line of eight words again and again
    niah_single_2    . . k v . . k _              one fact in random filler
    niah_single_3    . . k a b c . k _ _ _        a value of three words
    niah_multikey_1  . k v . k v . k _            four facts, one asked for
    niah_multikey_2  k v k v k v k v k _          facts only, as far as there are keys; then filler
    niah_multikey_3  k l a b k m c d k l _ _      facts only; keys and values of two words
    niah_multivalue  . k v . k w . k _ k _        four values of one key, asked for four times
    niah_multiquery  . k v . l w . k _ l _        four facts, all asked for
    vt               . v a . a b . b c v _ _ _    a is given v, b is given a …; which five hold v, in turn?
    cwe              a b a c a d ? _              five words six times as often as the others
    fwe              … a … b … a ? _              counts fall as 1 / rank²; ranks 2 to 4 after the dots
    qa_1             k . v . w . k _              v or w is the answer of the document on k
    qa_2             . k l . l v . k _            two documents lead from k to its answer

Blanks are scored as in RULER: the share of the references among them; for qa one is enough. A row has exactly the
length that is asked for. In training a row may end in several questions; in tests it has one, and asks for pairings of
key and value that no training row holds (`harness.vocabulary`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.ruler import SHORTEST, TASKS
from harness.tasks import IGNORE
from harness.vocabulary import (
    ALLOWED,
    COMMON,
    DOTS,
    FILLERS,
    FREQUENT,
    KEYS,
    TRAINING,
    VALUES,
    WORDS,
    choose,
    filler,
    paired,
)

LINE = np.arange(FILLERS.start, FILLERS.start + 8)  # the noise that is always the same
QUESTIONS = 2  # at the end of a training row where every fact has a key of its own; more cost DeltaNet recall
HOPS = 4
LISTED = 5  # common words
TIMES = 6  # as often as the others
RANKED = 3  # frequent words asked for
ZETA_2 = np.pi**2 / 6


class Rows(NamedTuple):
    """Rows with their answers in place."""

    inputs_BT: np.ndarray
    targets_BT: np.ndarray  # the answer that is taught at each blank, one position before it; else IGNORE
    blanks_A: np.ndarray  # positions that the model fills, the same in every row
    references_BR: np.ndarray  # words that count, each once
    depths_BR: np.ndarray | None  # where the fact behind each lies: 0 the start of the text, 1 its end
    question: int  # words of the questions and answers at the end
    answers: range  # the words that an answer can be of


@dataclass(frozen=True)
class Facts:
    """A niah or qa_1 task: documents of `unit` words, some of them asked for."""

    keys: int | None = 1  # asked-for keys in the text; None: as many as fit
    each: int = 1  # values of a key
    asked: int = 1  # of the keys in a test
    key: int = 1  # words of a key
    value: int = 1  # words of a value
    line: bool = False  # noise that repeats
    spread: bool = False  # a document `k . v . w .` instead of `k v`

    @property
    def unit(self) -> int:
        return 6 if self.spread else self.key + self.value


FACTS = {
    "niah_single_1": Facts(line=True),
    "niah_single_2": Facts(),
    "niah_single_3": Facts(value=3),
    "niah_multikey_1": Facts(keys=4),
    "niah_multikey_2": Facts(keys=None),
    "niah_multikey_3": Facts(keys=None, key=2, value=2),
    "niah_multivalue": Facts(each=4),
    "niah_multiquery": Facts(keys=4, asked=4),
    "qa_1": Facts(keys=None, spread=True),
}


def generate(task: str, rows: int, length: int, rng: np.random.Generator, part: int) -> Rows:
    """Rows of one task. Raises ValueError below 128 tokens, KeyError for an unknown task."""
    if length < SHORTEST:
        raise ValueError(f"{task} needs rows of at least {SHORTEST} tokens, not {length}")
    if task in FACTS:
        return _facts(FACTS[task], rng, rows, length, part)
    return OTHERS[task](rng, rows, length, part)


def _facts(kind: Facts, rng: np.random.Generator, rows: int, length: int, part: int) -> Rows:
    """Facts at random places of the text, then the questions."""
    question = kind.key + kind.value
    several = kind.asked if part != TRAINING else QUESTIONS if kind.keys is None else kind.keys
    slots = (length - several * kind.each * question) // kind.unit
    among = len(KEYS) ** kind.key
    count = min(among, slots) if kind.keys is None else kind.keys
    codes_BK = choose(rng, rows, among, count)
    keys_BKw = KEYS.start + np.stack([codes_BK // len(KEYS) ** n % len(KEYS) for n in range(kind.key)], axis=-1)
    last_BK = keys_BKw[..., -1]
    values_BKEw = _values(kind, rng, last_BK, part)
    place_BP = choose(rng, rows, slots, count * kind.each)
    if kind.each > 1:
        place_BP = np.sort(place_BP, axis=1)
    keys_BPw, values_BPw = np.repeat(keys_BKw, kind.each, axis=1), values_BKEw.reshape(rows, -1, values_BKEw.shape[-1])
    text_BT = _noise(kind.line, rng, rows, length - several * kind.each * question)
    _write(text_BT, place_BP, kind, keys_BPw, values_BPw)
    asked = several * kind.each
    ask_BAw = np.concatenate([keys_BPw[:, :asked], values_BPw[:, :asked, : kind.value]], axis=-1)
    blanks = [n * question + kind.key + word for n in range(asked) for word in range(kind.value)]
    references_BR = values_BPw[:, :asked].reshape(rows, -1)
    depths_BR = np.repeat(place_BP[:, :asked] / max(slots - 1, 1), values_BPw.shape[-1], axis=1)
    return _rows(text_BT, ask_BAw.reshape(rows, -1), blanks, references_BR, depths_BR)


def _values(kind: Facts, rng: np.random.Generator, last_BK: np.ndarray, part: int) -> np.ndarray:
    """[B, K, each, words]; the first word pairs with the last of the key. A document has two that answer."""
    rows, count = last_BK.shape
    wanted = 2 if kind.spread else kind.each
    draws_BKE = choose(rng, rows * count, ALLOWED[part], wanted).reshape(rows, count, wanted)
    first_BKE = paired(last_BK[..., None], draws_BKE, part)
    if kind.spread:
        return first_BKE[:, :, None]
    others = rng.integers(VALUES.start, VALUES.stop, (*first_BKE.shape, kind.value - 1))
    return np.concatenate([first_BKE[..., None], others], axis=-1)


def _write(
    text_BT: np.ndarray, place_BP: np.ndarray, kind: Facts, keys_BPw: np.ndarray, values_BPw: np.ndarray
) -> None:
    """Put each fact at its place, counted in documents."""
    start_BP = place_BP * kind.unit
    step = 2 if kind.spread else 1
    for word in range(kind.key):
        np.put_along_axis(text_BT, start_BP + word, keys_BPw[..., word], 1)
    for word in range(values_BPw.shape[-1]):
        np.put_along_axis(text_BT, start_BP + kind.key * step + word * step, values_BPw[..., word], 1)


def _noise(line: bool, rng: np.random.Generator, rows: int, length: int) -> np.ndarray:
    return np.tile(np.resize(LINE, length), (rows, 1)) if line else filler(rng, rows, length)


def _rows(
    text_BT: np.ndarray,
    ask_BL: np.ndarray,
    blanks: list[int],
    references_BR: np.ndarray,
    depths_BR: np.ndarray | None = None,
    answers: range = VALUES,
) -> Rows:
    """Text, then questions with their answers, of which `blanks` are positions in the questions."""
    inputs_BT = np.concatenate([text_BT, ask_BL], axis=1)
    blanks_A = text_BT.shape[1] + np.array(blanks)
    targets_BT = np.full_like(inputs_BT, IGNORE)
    targets_BT[:, blanks_A - 1] = inputs_BT[:, blanks_A]
    return Rows(inputs_BT, targets_BT, blanks_A, references_BR, depths_BR, ask_BL.shape[1], answers)


def _chain(rng: np.random.Generator, rows: int, length: int, part: int) -> Rows:
    """vt: v a … a b … b c in this order, at even places of the line of noise."""
    names_BN = KEYS.start + choose(rng, rows, len(KEYS), HOPS + 1)
    value_B1 = rng.integers(VALUES.start, VALUES.stop, (rows, 1))
    chain_BL = np.concatenate([value_B1, names_BN], axis=1)
    text_BT = _noise(True, rng, rows, length - chain_BL.shape[1])
    place_BP = 2 * np.sort(choose(rng, rows, text_BT.shape[1] // 2, HOPS + 1), axis=1)
    np.put_along_axis(text_BT, place_BP, chain_BL[:, :-1], 1)
    np.put_along_axis(text_BT, place_BP + 1, chain_BL[:, 1:], 1)
    return _rows(text_BT, chain_BL, list(range(1, HOPS + 2)), names_BN, answers=KEYS)


def _common(rng: np.random.Generator, rows: int, length: int, part: int) -> Rows:
    """cwe: the common words are taught in the order of the vocabulary."""
    room, others = length - 1 - LISTED, len(WORDS) - LISTED
    often = max(TIMES, TIMES * room // (LISTED * TIMES + others))
    base, extra = divmod(room - LISTED * often, others)
    times = [often] * LISTED + [base + (n < extra) for n in range(others)]
    words_BW = WORDS.start + choose(rng, rows, len(WORDS), len(WORDS))
    words_BW[:, :LISTED].sort(axis=1)
    text_BT = rng.permuted(np.repeat(words_BW, times, axis=1), axis=1)
    return _listed(text_BT, COMMON, words_BW[:, :LISTED])


def _frequent(rng: np.random.Generator, rows: int, length: int, part: int) -> Rows:
    """fwe over as many words as RULER's, a fiftieth of the length, and five at least."""
    room, ranks = length - 1 - RANKED, max(length // 50, RANKED + 2)
    times = [int(room / (ZETA_2 * rank * rank)) for rank in range(2, ranks + 1)]
    words_BW = WORDS.start + choose(rng, rows, len(WORDS), ranks - 1)
    dots = np.full((rows, room - sum(times)), DOTS)
    text_BT = rng.permuted(np.concatenate([dots, np.repeat(words_BW, times, axis=1)], axis=1), axis=1)
    return _listed(text_BT, FREQUENT, words_BW[:, :RANKED])


def _listed(text_BT: np.ndarray, question: int, words_BA: np.ndarray) -> Rows:
    ask_BL = np.concatenate([np.full((len(words_BA), 1), question), words_BA], axis=1)
    return _rows(text_BT, ask_BL, list(range(1, ask_BL.shape[1])), words_BA, answers=WORDS)


def _bridges(rng: np.random.Generator, rows: int, length: int, part: int) -> Rows:
    """qa_2: pairs k l and l v of several chains, over half of the text."""
    asked = QUESTIONS if part == TRAINING else 1
    text_BT = filler(rng, rows, length - 2 * asked)
    count = min(len(KEYS) // 2, text_BT.shape[1] // 8)
    keys_BK = KEYS.start + choose(rng, rows, len(KEYS), 2 * count)
    first_BC, bridge_BC = keys_BK[:, :count], keys_BK[:, count:]
    value_BC = paired(first_BC, rng.integers(ALLOWED[part], size=(rows, count)), part)
    place_BP = 2 * choose(rng, rows, text_BT.shape[1] // 2, 2 * count)
    np.put_along_axis(text_BT, place_BP, keys_BK, 1)
    np.put_along_axis(text_BT, place_BP + 1, np.concatenate([bridge_BC, value_BC], axis=1), 1)
    ask_BL = np.stack([first_BC[:, :asked], value_BC[:, :asked]], axis=-1).reshape(rows, -1)
    return _rows(text_BT, ask_BL, list(range(1, 2 * asked, 2)), value_BC[:, :asked])


OTHERS: dict[str, Callable[[np.random.Generator, int, int, int], Rows]] = {
    "vt": _chain,
    "cwe": _common,
    "fwe": _frequent,
    "qa_2": _bridges,
}
assert {*FACTS, *OTHERS} == {*TASKS}
