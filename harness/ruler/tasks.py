"""`build`, which makes the samples of one of the 13 tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from harness.ruler import ANY, SHORTEST, frequency, needles, questions, variables
from harness.ruler.fill import Draft, Encode, Sample, TooShort, fill
from harness.ruler.material import Material

UNFIT = 50  # questions in a row whose documents are too long, before the length is

BUDGETS = {
    **dict.fromkeys(needles.KINDS, needles.BUDGET),
    "vt": variables.BUDGET,
    "cwe": frequency.CWE_BUDGET,
    "fwe": frequency.FWE_BUDGET,
    **dict.fromkeys(ANY, questions.BUDGET),
}


def build(task: str, length: int, count: int, seed: int, encode: Encode, material: Material) -> list[Sample]:
    """`count` samples, or for qa as many as there are questions; the first ones are the same whatever `count` is.

    Raises TooShort when the length cannot hold the task, KeyError for an unknown task.
    """
    spare = BUDGETS[task]
    if length < SHORTEST:
        raise TooShort(f"{length} tokens cannot hold {task}: no task is made below {SHORTEST}")
    try:
        if task in ANY:
            return list(islice(_answered(task, length, seed, encode, material), count))
        return [
            _first(_drafts(task, length, place, seed, encode, material), length, spare, encode)
            for place in range(count)
        ]
    except TooShort as error:
        raise TooShort(f"{length} tokens cannot hold {task}: it {error}", error.smallest) from None


def _first(drafts: Iterator[Draft], length: int, spare: int, encode: Encode) -> Sample:
    """The first draft that fits. Raises TooShort, of the draft that comes closest, when none does."""
    refused: list[TooShort] = []
    for draft in drafts:
        try:
            return fill(draft, length, spare, encode)
        except TooShort as error:
            refused.append(error)
    raise min(refused, key=lambda error: error.smallest or 0)


def _drafts(task: str, length: int, place: int, seed: int, encode: Encode, material: Material) -> Iterator[Draft]:
    """Drafts of a sample to try in turn, for most tasks one."""
    rng = random.Random(f"{task}/{length}/{seed}/{place}")
    if task in needles.KINDS:
        kind = needles.KINDS[task]
        yield needles.draft(kind, rng, place, length, material.words if kind.haystack == "essay" else ())
    elif task == "vt":
        yield variables.draft(rng, length, encode)
    elif task == "cwe":
        for repeats in frequency.repeats(length):
            yield frequency.common(rng, length, encode, repeats)
    else:
        yield frequency.frequent(rng, length)


def _answered(task: str, length: int, seed: int, encode: Encode, material: Material) -> Iterator[Sample]:
    """Samples of qa, of the questions in an order drawn by the seed whose documents fit.

    Raises TooShort when so many in a row do not.
    """
    library = material.library(task)
    order = random.Random(f"{task}/{seed}").sample(range(len(library.questions)), len(library.questions))
    refused: list[TooShort] = []
    for n in order:
        rng = random.Random(f"{task}/{length}/{seed}/{n}")
        try:
            yield fill(questions.draft(library, library.questions[n], rng), length, BUDGETS[task], encode)
            refused = []
        except TooShort as error:
            refused.append(error)
            if len(refused) == min(UNFIT, len(order)):
                raise min(refused, key=lambda error: error.smallest or 0) from None
