"""What an evaluation leaves on disk, `results/runs/<run>/<task>/seed<k>/<suite>.json`: closed, finite, of one run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from harness import suites
from harness.closed import Closed
from harness.errors import UserError
from harness.metrics import Metric
from harness.suites import Cell, Row
from harness.yamlio import shorten

RUNS = Path("results/runs")
PLAIN = re.compile("[a-z0-9_-]{1,100}")
MEND = "delete it and run snakemake again"


class Measurement(Closed):
    """One number of one run."""

    task: str  # the suite's, as in a metric key
    length: int | None
    metric: str
    value: float
    n: Annotated[int, Field(ge=1)]
    stderr: Annotated[float, Field(ge=0)] | None
    unit: str

    @property
    def cell(self) -> Cell:
        return self.task, self.length, self.metric


class Raw(Closed):
    """One question of a generation suite, with what the model wrote (`harness.suites.Sample`)."""

    task: str
    length: int | None
    prompt: str
    output: str
    answers: list[str]
    score: float | None


class Evaluation(Closed):
    """All that one suite found out about one run and seed; a `failed` one keeps the rows that it did measure."""

    run: str
    impl: str
    task: str  # what the model was trained on
    seed: int
    suite: str
    status: Literal["ok", "failed", "blocked"]
    reason: str | None
    commit: str
    seconds: float
    basis: str | None = None  # a digest of all that the numbers rest on (harness.held)
    rows: list[Measurement]
    items: dict[str, str] = {}  # noqa: RUF012  pydantic copies it. By `suites.name(cell)`: scores in the items' order
    gaps: dict[str, str] = {}  # noqa: RUF012  by `suites.name(cell)`: why this run cannot have it; no failure
    questions: dict[str, str] = {}  # noqa: RUF012  by task, with @length where it has one: SHA-256 of what was asked
    raw: list[Raw] = []  # noqa: RUF012  written beside the record, as `<suite>.raw.json`, for people to read


def folder(run: str, task: str, seed: int, runs: Path = RUNS) -> Path:
    """Where one trained model lies with everything about it. Raises UserError for what cannot name a folder there."""
    for name, what in ((run, "run"), (task, "task")):
        if not PLAIN.fullmatch(name):
            raise UserError(f"{shorten(name)!r} names no {what}; names have up to 100 of a-z, 0-9, _ and -")
    return runs / run / task / f"seed{seed}"


def measurement(row: Row, metric: Metric) -> Measurement:
    """A suite's row with its unit. Raises pydantic's ValidationError when a number is not finite."""
    return Measurement(
        task=row.task,
        length=row.length,
        metric=row.metric,
        value=row.value,
        n=row.n,
        stderr=row.stderr,
        unit=metric.unit,
    )


def packed(row: Row) -> dict[str, str]:
    """`{"needle-8/accuracy@1024": "8 7 8 0"}`: one line a cell, with integers written as such."""
    return {suites.name(row.cell): " ".join(f"{item:.7g}" for item in row.items)} if len(row.items) else {}


def unpacked(text: str) -> NDArray[np.float64]:
    """The scores of one line. Raises ValueError for anything but finite numbers."""
    scores = np.array(text.split(), dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("an item has no finite score")
    return scores


def read_training(path: Path, **identity: object) -> dict[str, Any]:
    """`run.json`. Raises ValueError with one sentence when it is missing, damaged or of another run, task or seed."""
    found = _read(path)
    if not isinstance(found, dict) or found.get("status") not in ("ok", "failed", "diverged"):
        raise ValueError(f"{path} is damaged (no record of a training); {MEND}")
    _check_identity(path, found, identity)
    return found


def read_evaluation(path: Path, **identity: object) -> Evaluation:
    """`<suite>.json`. Raises ValueError with one sentence when missing, damaged or of another run, suite or seed."""
    content = _read(path)
    try:
        found = Evaluation.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{path} is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']}); {MEND}") from None
    _check_identity(path, found.model_dump(), identity)
    return found


def _read(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path} is missing; run snakemake to make it")
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {MEND}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _check_identity(path: Path, found: dict[str, Any], identity: dict[str, object]) -> None:
    """A file must be of what its place says: else it was moved or copied there."""
    for key, wanted in identity.items():
        if found.get(key) != wanted:
            raise ValueError(f"{path} is of {key} {found.get(key)!r}, not {wanted!r}; {MEND}")
