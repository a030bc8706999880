"""Texts and tokenizers for tests of RULER's tasks."""

from __future__ import annotations

import hashlib
import random
from functools import cache

from harness.ruler import material
from harness.ruler.fill import Encode
from harness.ruler.material import Material
from harness.ruler.questions import Described

NOUNS = ["river", "tower", "garden", "letter", "engine", "market", "window", "planet", "ladder", "copper", "harbour"]
VERBS = ["holds", "meets", "follows", "crosses", "remembers", "describes", "carries", "answers"]


def sentence(rng: random.Random) -> str:
    return f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} near the {rng.choice(NOUNS)}."


@cache
def articles() -> tuple[Described, ...]:
    """80 short articles; the first two share a description, the third has a title with a remark in brackets."""
    rng = random.Random(0)
    found = []
    for n in range(80):
        title = "Mercury (planet)" if n == 2 else f"{rng.choice(NOUNS).title()} {n}"
        description = "one of two" if n < 2 else f"thing number {n} of the {rng.choice(NOUNS)}"
        found.append(Described(title, " ".join(sentence(rng) for _ in range(rng.randrange(2, 6))), description))
    return tuple(found)


@cache
def small() -> Material:
    return material.gather(articles, "test")


@cache
def bpe() -> Encode:
    """A byte-level BPE of 600 tokens, opened by one token as our runs are."""
    from harness.config import Data
    from harness.data import train_tokenizer

    texts = [article.text for article in articles()] + ["One of the special magic numbers for a-b is: 1234567."]
    tokenizer = train_tokenizer(texts, Data(vocab=600))
    return lambda text: [0, *tokenizer.encode(text, add_special_tokens=False).ids]


def words(text: str) -> list[int]:
    """Ids of words, which are none of their letters."""
    return [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big") for word in text.split()]


def octets(text: str) -> list[int]:
    return list(text.encode())


ENCODERS: dict[str, Encode] = {"words": words, "bytes": octets, "bpe": lambda text: bpe()(text)}
