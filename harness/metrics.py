"""What a suite measures, and the keys that claims use to name it.

A key is `<suite>/<task>/<metric>`, then optionally `@8x` (a multiple of the training length) or `@1024` (tokens):
`loss/test/bits_per_byte@8x`, `recall/mqar-32/accuracy`.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from harness.errors import UserError, suggest

SUITES = Path(__file__).parent / "suites"
KEY = re.compile(r"([a-z0-9_]+)/([a-z0-9_-]+)/([a-z0-9_]+)(?:@(?:([0-9]{1,12}(?:\.[0-9]{1,12})?)x|([0-9]{1,12})))?")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured quantity: its unit, the better direction, the score of a guesser (if known), one line on it."""

    unit: str
    better: Literal["higher", "lower", "none"]
    chance: float | None = None
    summary: str = ""
    timed: bool = False  # a clock measures it, so that it differs from one evaluation of a model to the next


@dataclass(frozen=True)
class Key:
    """A parsed metric key; at most one of `length` (tokens) and `multiple` (of the training length) is set."""

    suite: str
    task: str
    metric: str
    length: int | None = None
    multiple: float | None = None

    def tokens(self, train_length: int) -> int | None:
        """The length in tokens that the key asks for, or None when it names none."""
        return self.length if self.multiple is None else round(self.multiple * train_length)

    def __str__(self) -> str:
        at = "" if self.length is None else f"@{self.length}"
        at = at if self.multiple is None else f"@{self.multiple:g}x"
        return f"{self.suite}/{self.task}/{self.metric}{at}"


def parse_key(text: str) -> Key:
    """The parts of a metric key. Raises UserError when the text has another form."""
    match = KEY.fullmatch(text)
    if match is None:
        raise UserError(f"{text!r} is not a metric; write <suite>/<task>/<metric>, then @8x or @1024 if it has lengths")
    suite, task, metric, multiple, length = match.groups()
    key = Key(suite, task, metric, int(length) if length else None, float(multiple) if multiple else None)
    if 0 in (key.length, key.multiple):
        raise UserError(f"{text!r} asks for a length of 0 tokens; lengths start at 1")
    return key


def suite_names() -> list[str]:
    """Every suite, in alphabetical order: the modules of `harness/suites`."""
    return sorted(path.stem for path in SUITES.glob("*.py") if not path.stem.startswith("_"))


@lru_cache
def load_suite(name: str) -> ModuleType:
    """The module of a suite. Raises UserError with the nearest name when there is none."""
    if name not in suite_names():
        raise UserError(f"unknown suite {name!r}{suggest(name, suite_names())}")
    return importlib.import_module(f"harness.suites.{name}")


@cache
def timed(place: str) -> bool:
    """Whether a clock measures what a key names: two builds that differ in nothing else found out the same."""
    key = parse_key(place)
    known = load_suite(key.suite).METRICS.get(key.metric) if key.suite in suite_names() else None
    return known is not None and known.timed
