"""vt, variable tracking: VAR A = 12345 … VAR B = VAR A … hidden in noise; which variables hold 12345?

RULER's `synthetic.yaml` asks for one chain of four hops, so five variables.
"""

from __future__ import annotations

import itertools
import random
import string

from harness.ruler.fill import Draft, Encode
from harness.ruler.needles import NOISE
from harness.ruler.words import letters, new

HOPS = 4
BUDGET = 30
QUESTION = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\n"
    "Question: Find all variables that are assigned the value {value} in the text above. "
    "Answer: According to the chain(s) of variable assignment in the text above, {count} variables are assgined "
    "the value {value}, they are:"
)  # "assgined" is RULER's
EXAMPLE_TOKENS = 500  # of the solved example, at most


def draft(rng: random.Random, length: int, encode: Encode) -> Draft:
    """One chain in noise, after a solved example where that takes at most a quarter of the length."""
    taken: set[str] = set()
    example = _example(rng, taken, min(EXAMPLE_TOKENS, length // 4), encode)
    names, value, cuts = _chain(rng, taken, 5)

    def render(n: int) -> tuple[str, tuple[float, ...]]:
        return example + _text(names, value, cuts, n), cuts

    return Draft(render, names, least=1, most=length, answer=" " + " ".join(names))


def _example(rng: random.Random, taken: set[str], most: int, encode: Encode) -> str:
    """A solved question with names of three letters, of five lines of noise as far as that fits, else nothing."""
    names, value, cuts = _chain(rng, taken, 3)
    for lines in range(5, 0, -1):
        text = f"{_text(names, value, cuts, lines)} {' '.join(names)}\n\n"
        if len(encode(text)) <= most:
            return text
    return ""


def _chain(rng: random.Random, taken: set[str], size: int) -> tuple[tuple[str, ...], int, tuple[float, ...]]:
    """(names, value, where each assignment stands) with names that are not taken."""
    names = tuple(new(lambda: letters(rng, string.ascii_uppercase, size), taken) for _ in range(HOPS + 1))
    value = int(new(lambda: str(rng.randrange(10000, 99999)), taken))
    return names, value, tuple(sorted(rng.random() for _ in range(HOPS + 1)))


def _text(names: tuple[str, ...], value: int, cuts: tuple[float, ...], noise: int) -> str:
    """The question, its chain spread over so many lines of noise."""
    lines = [NOISE] * noise
    given = [f"VAR {names[0]} = {value}", *(f"VAR {b} = VAR {a}" for a, b in itertools.pairwise(names))]
    for before, (cut, line) in enumerate(zip(cuts, given, strict=True)):
        lines.insert(int(cut * (noise + 1)) + before, line)
    return QUESTION.format(context="\n".join(lines), value=value, count=len(names))
