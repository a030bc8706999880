"""cwe and fwe: which words of a list are the most frequent?

cwe, common words: 10 words 30 times, others 3 times, numbered and shuffled; below 4,096 tokens 6 times and once.
fwe, frequent words: coded words, the one of rank k with a frequency of k^-2 / zeta(2). Rank 1 is noise, "..."; ranks 2
to 4 are asked for. Their counts must differ from each other's and from that of rank 5, or nothing were to be asked.
"""

from __future__ import annotations

import itertools
import math
import random
import string
from functools import partial

from harness.ruler.fill import Draft, Encode
from harness.ruler.words import every, letters, new

COMMON = 10
CWE_BUDGET = 120
CWE = (
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often.\n{context}\nQuestion: What are the 10 most common words in the above list? "
    "Answer: The top 10 words that appear most often in the list are:"
)
LONG = 4096  # tokens from which RULER repeats more
FWE_BUDGET = 50
FWE = (
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the "
    "three most frequently appeared words in the above coded text? Answer: According to the coded text above, the "
    "three most frequently appeared words are:"
)
ZETA_2 = math.pi**2 / 6
FREQUENT = 3


def common(rng: random.Random, length: int, encode: Encode, repeats: tuple[int, int]) -> Draft:
    """cwe with these repetitions of (common, other) words, after a solved example that takes at most a quarter."""
    words = rng.sample(every(), len(every()))
    example = _solved(rng, length, encode)
    order = rng.getrandbits(64)
    wanted, others = tuple(words[:COMMON]), words[COMMON:]

    def render(n: int) -> tuple[str, tuple[float, ...]]:
        return example + CWE.format(context=_list(wanted, others[:n], repeats, order)), ()

    return Draft(render, wanted, least=1, most=len(others), answer=" " + _numbered(wanted))


def repeats(length: int) -> list[tuple[int, int]]:
    """(times a common word, times another) that RULER uses at this length; then, where that is too much, what it uses
    at shorter ones."""
    return [(30, 3), (6, 1)] if length >= LONG else [(6, 1)]


def _solved(rng: random.Random, length: int, encode: Encode) -> str:
    """RULER's example: 20 words, three times and once; from 4,096 tokens 40 words, ten and three times."""
    count, times = (40, (10, 3)) if length >= LONG else (20, (3, 1))
    words = rng.sample(every(), count)
    shown, order = words[:COMMON], rng.getrandbits(64)
    text = CWE.format(context=_list(tuple(shown), words[COMMON:], times, order)) + f" {_numbered(shown)}\n"
    return text if len(encode(text)) <= length // 4 else ""


def _list(wanted: tuple[str, ...], others: list[str], times: tuple[int, int], order: int) -> str:
    words = list(wanted) * times[0] + others * times[1]
    random.Random(order).shuffle(words)
    return _numbered(words)


def _numbered(words: list[str] | tuple[str, ...]) -> str:
    return " ".join(f"{n}. {word}" for n, word in enumerate(words, start=1))


def counts(n: int, ranks: int) -> list[int]:
    """How often the words of rank 1, 2, … stand in a coded text of about n words."""
    return [int(n / (ZETA_2 * rank * rank)) for rank in range(1, ranks + 1)]


def frequent(rng: random.Random, length: int) -> Draft:
    """fwe over a vocabulary of a fiftieth of the length, as RULER's, of five at least."""
    taken: set[str] = set()
    make = partial(letters, rng, string.ascii_lowercase, 6)
    vocabulary = ["...", *(new(make, taken) for _ in range(max(length // 50, FREQUENT + 2) - 1))]
    order = rng.getrandbits(64)

    def render(n: int) -> tuple[str, tuple[float, ...]]:
        times = counts(n, len(vocabulary))
        words = [word for word, count in zip(vocabulary, times, strict=True) for _ in range(count)]
        random.Random(order).shuffle(words)
        return FWE.format(context=" ".join(words)), ()

    outputs = tuple(vocabulary[1 : 1 + FREQUENT])
    return Draft(render, outputs, least=LEAST_CODED, most=100 * length, answer=" " + ", ".join(outputs))


def _separated(n: int) -> bool:
    times = counts(n, FREQUENT + 2)
    return all(more > fewer for more, fewer in itertools.pairwise(times))


LEAST_CODED = 1 + max(n for n in range(1000) if not _separated(n))  # from there on ranks 1 to 5 never tie
