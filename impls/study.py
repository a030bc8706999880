"""A study: a controlled experiment that measures something itself, where a paper is about no layer to be trained.

    from impls import study
    from impls.study import Cell, Metric, Row

    class Study(study.Study):
        METRICS = {"error": Metric(unit="1", better="lower", summary="distance from softmax")}
        AXES = {"order": "order of the expansion"}
        …

Claims name what it measures as `study/<task>/<metric>[@<at>]`; `at` is a whole number from 1, such as an order or a
prompt's length, over which a trend is taken. One run and seed is one job of a few seconds on a thread: sizes follow
`effort`, which a profile sets. No file is read but what `files` names, so that equal (Config, effort, seed) and files
give equal rows, except of metrics that are `timed`.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import torch

from harness.metrics import Metric
from harness.suites import Cell, Row

__all__ = ["Cell", "Log", "Metric", "Row", "Study", "generator"]
PART = re.compile("[a-z0-9]+(-[a-z0-9]+)*")


class Log:
    """What keeps the rows of finished parts, so that a killed study goes on; this one keeps nothing."""

    def kept(self, part: str) -> list[Row] | None:
        """The rows of a part that an earlier attempt finished."""
        return None

    def keep(self, part: str, rows: list[Row]) -> None:
        """Take the rows of a finished part."""


class Study(ABC):
    """Subclasses add `Config`, a frozen keyword-only dataclass whose every field is read, and what is abstract."""

    Config: ClassVar[type]
    METRICS: ClassVar[Mapping[str, Metric]]
    AXES: ClassVar[Mapping[str, str]] = {}  # what `at` counts in a task; no entry: nothing

    def __init__(self, config: Any, effort: float = 1.0):
        if not 0 < effort <= 1:
            raise ValueError(f"effort={effort} is not in (0, 1]")
        self.config, self.effort = config, effort

    def scaled(self, n: int, least: int = 1) -> int:
        """A number of steps or samples at this effort."""
        return max(least, round(n * self.effort))

    def files(self) -> list[str]:
        """Paths of all files that it reads; where one changes, it is made again."""
        return []

    @abstractmethod
    def cells(self) -> list[Cell]:
        """(task, at or None, metric) of all that it measures; the same at every effort and seed."""

    @abstractmethod
    def parts(self) -> list[str]:
        """Independent pieces of the work in order, each of some seconds; a killed study loses one at most."""

    @abstractmethod
    def measure(self, part: str, seed: int, device: str) -> Iterable[Row]:
        """The rows of one part. torch's global generator is seeded for it and put back after; `generator` makes others.

        A row whose value is not finite counts as not measured.
        """

    def run(self, seed: int, device: str = "cpu", log: Log | None = None) -> Iterator[Row]:
        """The rows of every part, those of finished ones from the log. Not to be overridden."""
        log, parts = log or Log(), self.parts()
        if len(set(parts)) < len(parts) or not all(map(PART.fullmatch, parts)):
            raise ValueError(f"parts {parts} are not distinct names of a-z, 0-9 and -")
        for part in parts:
            rows = log.kept(part)
            if rows is None:
                with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
                    torch.manual_seed(number(seed, part))
                    rows = list(self.measure(part, seed, device))
                log.keep(part, rows)
            yield from rows


def generator(seed: int, *names: object, device: str = "cpu") -> torch.Generator:
    """A stream of its own for each seed and names, such as the part and the purpose."""
    return torch.Generator(device).manual_seed(number(seed, *names))


def number(*names: object) -> int:
    """A number below 2⁶³ that is the same for equal names in every process."""
    digest = hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
