"""Text to tokens and back, as the model that is asked was taught it.

Every text is opened as in training: once by `<end>` for our runs (`harness.data`), by what the tokenizer itself adds
for a model of the Hub, which is one token or none. The `hf` model of lm-eval 0.4.13 does the same, but where it scores
a whole text it puts one more token before what the tokenizer added (two beginnings for LLaMA), and scores the second
of them too, unless it is made with `add_bos_token=False`. Here one token opens a whole text, and it is not scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from harness.adapter import Answerer, over


class Text(Protocol):
    """A tokenizer with its opening token."""

    first: int  # what a text's first token is predicted from
    end: int  # ends a generation

    def encode(self, text: str, opened: bool = True) -> list[int]:
        """Token ids; `opened` puts before them what training put there."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text, without special tokens."""
        ...


class CorpusText:
    """The tokenizer of the corpus that our runs are trained on."""

    def __init__(self, tokenizer: Any):
        from harness.data import END_ID

        self.tokenizer, self.first, self.end = tokenizer, END_ID, END_ID

    def encode(self, text: str, opened: bool = True) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        return [self.first, *ids] if opened else ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)


class HubText:
    """The tokenizer of a model of the Hub."""

    def __init__(self, tokenizer: Any):
        self.tokenizer, self.end = tokenizer, tokenizer.eos_token_id
        self.first = self.end if tokenizer.bos_token_id is None else tokenizer.bos_token_id

    def encode(self, text: str, opened: bool = True) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=opened)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)


def split(context: str, continuation: str, encode: Callable[[str], list[Any]]) -> tuple[list[Any], list[Any]]:
    """(tokens of the context, tokens of the continuation): the tokens of both texts written as one, cut in two.

    Spaces at the end of the context belong to the continuation's first word and go there. A token that spans the border
    goes to the continuation, so that this has a token and no letter is lost or doubled.
    """
    spaces = len(context) - len(context.rstrip())
    context, continuation = context[: len(context) - spaces], context[len(context) - spaces :] + continuation
    whole, before = encode(context + continuation), encode(context)
    cut = next((n for n, pair in enumerate(zip(before, whole, strict=False)) if pair[0] != pair[1]), len(before))
    cut = min(cut, len(whole) - 1)
    return whole[:cut], whole[cut:]


def asked(model: Any, settings: Any, profile: Any, window: int | None = None) -> tuple[Answerer, Text]:
    """Who answers, and in which tokens: a run trained under `settings`, or a model of the Hub (`settings.hf`).

    The window is what the suite says, and else what the model was trained on.
    """
    text: Text
    if hasattr(settings, "hf"):
        from harness import pretrained

        text = HubText(pretrained.tokenizer(settings.hf, profile.hub))
        window = min(window or settings.length, settings.length)  # positions beyond were never trained, or do not exist
    else:
        from harness.data import Corpus

        text = CorpusText(Corpus(profile.data.folder).tokenizer())
    return Answerer(over(model), window or settings.length), text
