"""What needles are made of: words of wonderwords' lists (MIT), numbers of seven digits, version-4 UUIDs."""

from __future__ import annotations

import importlib.util
import random
import re
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path

from harness.errors import UserError

PACKAGE = "wonderwords"
VERSION = "3.0.1"


@cache
def listed(kind: str) -> tuple[str, ...]:
    """The plain words of `noun`, `adjective` or `verb`, sorted; the package is read, not imported.

    Raises UserError when it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise UserError(
            f"the words of RULER's tasks are those of {PACKAGE}=={VERSION}, which is not installed; "
            f"mend it with: pip install {PACKAGE}=={VERSION}"
        )
    text = (Path(next(iter(folders))) / "assets" / f"{kind}list.txt").read_text(encoding="utf-8")
    return tuple(sorted({word for word in text.split("\n") if re.fullmatch("[a-z]+", word)}))


@cache
def every() -> tuple[str, ...]:
    """All of them, for lists of words."""
    return tuple(sorted({word for kind in ("noun", "adjective", "verb") for word in listed(kind)}))


def word(rng: random.Random) -> str:
    """A key as RULER makes them, adjective-noun."""
    return f"{rng.choice(listed('adjective'))}-{rng.choice(listed('noun'))}"


def number(rng: random.Random) -> str:
    """Seven digits."""
    return str(rng.randrange(10**6, 10**7))


def identifier(rng: random.Random) -> str:
    """A version-4 UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def letters(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


MAKERS: dict[str, Callable[[random.Random], str]] = {"words": word, "numbers": number, "uuids": identifier}


def new(make: Callable[[], str], taken: set[str]) -> str:
    """A text that is not among the taken, and is then. Raises RuntimeError when a thousand draws all were."""
    for _ in range(1000):
        text = make()
        if text not in taken:
            taken.add(text)
            return text
    raise RuntimeError(f"a thousand draws gave nothing new beside {len(taken)} texts")
