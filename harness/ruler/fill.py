"""As much filler as a length holds: a draft says how its prompt looks with n units of filler, `fill` finds n."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Encode = Callable[[str], Sequence[int]]  # text to token ids, exactly as the model will read them

TRIES = 40  # prompts encoded for one sample, at most
GUIDED = 12  # of them placed by interpolation, the others by halving


class TooShort(ValueError):
    """A length cannot hold a task. `smallest` is the shortest that would have held this sample, if it is known."""

    def __init__(self, text: str, smallest: int | None = None):
        super().__init__(text)
        self.smallest = smallest


@dataclass(frozen=True)
class Draft:
    """A sample but for the amount of filler."""

    render: Callable[[int], tuple[str, tuple[float, ...]]]  # units of filler -> prompt, depths of the needles in it
    outputs: tuple[str, ...]  # reference answers
    least: int  # units of filler without which the task is not posed
    most: int  # units that there are
    answer: str  # the longest text that a right answer needs


@dataclass(frozen=True)
class Sample:
    """One question. The model reads `prompt`, which ends with the answer prefix, and may add `budget` tokens."""

    prompt: str
    outputs: tuple[str, ...]
    depths: tuple[float, ...]  # where the fact behind each output lies: 0 the start of the text, 1 its end
    tokens: int  # of the prompt
    budget: int  # tokens

    def slack(self, length: int) -> int:
        """Tokens of the length that are left over."""
        return length - self.tokens - self.budget


def budget(length: int, upstream: int, needed: int) -> int:
    """Tokens for the answer: RULER's number, but at most a quarter of the length and at least what is needed."""
    return max(needed, min(upstream, length // 4))


def fill(draft: Draft, length: int, upstream: int, encode: Encode) -> Sample:
    """The sample with the most filler that fits. Raises TooShort when not even the least does."""
    needed = len(encode(draft.answer))
    spare = budget(length, upstream, needed)
    room = length - spare
    fits, tokens = draft.least, _tokens(draft, draft.least, encode)
    if tokens > room:
        smallest = next(
            n for n in range(tokens, tokens + upstream + needed + 1) if tokens + budget(n, upstream, needed) <= n
        )
        raise TooShort(f"needs at least {smallest} tokens, {spare} of {length} being for the answer", smallest)
    over = over_tokens = None
    rate = 1.0  # tokens a unit, until two prompts tell
    for attempt in range(TRIES):
        ceiling = draft.most + 1 if over is None else over
        if ceiling - fits <= 1:
            break
        if attempt >= GUIDED:
            n = (fits + ceiling) // 2
        elif attempt == 0:
            n = fits + 8
        else:
            if over is not None and over_tokens is not None:
                rate = (over_tokens - tokens) / (over - fits)
            n = fits + int((room - tokens) / max(rate, 0.01))
        n = min(max(n, fits + 1), ceiling - 1)
        found = _tokens(draft, n, encode)
        if found <= room:
            rate = (found - tokens) / (n - fits)
            fits, tokens = n, found
        else:
            over, over_tokens = n, found
    prompt, depths = draft.render(fits)
    return Sample(prompt, draft.outputs, depths, tokens, spare)


def _tokens(draft: Draft, n: int, encode: Encode) -> int:
    return len(encode(draft.render(n)[0]))
