"""niah_*: needles in a haystack. Facts "One of the special magic numbers for <key> is: <value>." hidden in text.

Haystacks: `repeat`, one line of five sentences again and again; `essay`, running text; `needle`, facts that nobody asks
for. A depth is a share of the haystack; RULER draws it from 40 places, evenly spaced from 0 to 1.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

from harness.ruler.fill import Draft
from harness.ruler.score import BINS, depth_bin
from harness.ruler.words import MAKERS, new

FACT = "One of the special magic {kind} for {key} is: {value}."
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
MANY = (
    "Some special magic {kind} are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind} afterwards.\n{context}\n"
    "What are all the special magic {kind} for {query} mentioned in the provided text? "
    "The special magic {kind} for {query} mentioned in the provided text are"
)
ONE = (
    "A special magic {kind} is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind} afterwards.\n{context}\n"
    "What is the special magic {kind} for {query} mentioned in the provided text? "
    "The special magic {kind} for {query} mentioned in the provided text is"
)
DEPTHS = tuple(round(100 * place / 39) / 100 for place in range(40))
BUDGET = 128
SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Kind:
    """One niah task, in the words of RULER's `synthetic.yaml`."""

    haystack: Literal["repeat", "essay", "needle"]
    keys: Literal["words", "uuids"] = "words"
    values: Literal["numbers", "uuids"] = "numbers"
    needles: int = 1  # keys hidden
    each: int = 1  # values a key
    asked: int = 1  # keys asked for


KINDS = {
    "niah_single_1": Kind("repeat"),
    "niah_single_2": Kind("essay"),
    "niah_single_3": Kind("essay", values="uuids"),
    "niah_multikey_1": Kind("essay", needles=4),
    "niah_multikey_2": Kind("needle"),
    "niah_multikey_3": Kind("needle", keys="uuids", values="uuids"),
    "niah_multivalue": Kind("essay", each=4),
    "niah_multiquery": Kind("essay", needles=4, asked=4),
}


def draft(kind: Kind, rng: random.Random, place: int, length: int, essay: tuple[str, ...]) -> Draft:
    """The sample number `place`; the bins of depth take turns as the place of the first needle asked for."""
    taken: set[str] = set()
    keys = [new(lambda: MAKERS[kind.keys](rng), taken) for _ in range(kind.needles)]
    pairs = [(key, new(lambda: MAKERS[kind.values](rng), taken)) for key in keys for _ in range(kind.each)]
    depths = _depths(rng, len(pairs), place)
    asked = keys[: kind.asked]
    answers = [(value, depth) for (key, value), depth in zip(pairs, depths, strict=True) if key in asked]
    hidden = sorted(
        (depth, FACT.format(kind=kind.values, key=key, value=value))
        for (key, value), depth in zip(pairs, depths, strict=True)
    )
    start = rng.randrange(len(essay)) if kind.haystack == "essay" else 0
    distractors: list[str] = []

    def haystack(n: int) -> list[str]:
        if kind.haystack == "repeat":
            return [NOISE] * n
        if kind.haystack == "essay":
            return SENTENCE.split(" ".join(essay[(start + at) % len(essay)] for at in range(n))) if n else []
        while len(distractors) < n:
            key, value = (new(lambda m=made: MAKERS[m](rng), taken) for made in (kind.keys, kind.values))
            distractors.append(FACT.format(kind=kind.values, key=key, value=value))
        return distractors[:n]

    def render(n: int) -> tuple[str, tuple[float, ...]]:
        parts = haystack(n)
        for before, (depth, fact) in enumerate(hidden):
            parts.insert(int((len(parts) - before) * depth) + before, fact)
        context = (" " if kind.haystack == "essay" else "\n").join(parts)
        single = len(answers) == 1
        text = (ONE if single else MANY).format(
            kind=kind.values[:-1] if single else kind.values, context=context, query=_listed(asked)
        )
        return text, tuple(depth for _, depth in answers)

    outputs = tuple(value for value, _ in answers)
    return Draft(render, outputs, least=0, most=length, answer=" " + ", ".join(outputs))


def _depths(rng: random.Random, count: int, place: int) -> list[float]:
    """Different depths, the first of them in the bin whose turn it is."""
    first = rng.choice([depth for depth in DEPTHS if depth_bin(depth) == place % BINS])
    return [first, *rng.sample([depth for depth in DEPTHS if depth != first], count - 1)]


def _listed(keys: list[str]) -> str:
    return keys[0] if len(keys) == 1 else ", ".join(keys[:-1]) + ", and " + keys[-1]
