"""What was measured, read for judging: values and items by run, cell and seed; and why a value is missing.

measurements.csv or .parquet   one measurement a row (harness.aggregate)
runs.json                      trainings with the state of their suites (harness.aggregate)
items.parquet                  optional: the scores behind a value in the order of its items, for suites whose items
                               are the same in every seed (harness.items)
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.files import read_json, verify
from harness.yamlio import shorten

COLUMNS = {"run", "seed", "suite", "task", "length", "metric", "value", "n"}


class Place(NamedTuple):
    """One thing that a suite measures; `length` in tokens, None where it has none."""

    suite: str
    task: str
    metric: str
    length: int | None

    def __str__(self) -> str:
        return f"{self.suite}/{self.task}/{self.metric}" + ("" if self.length is None else f"@{self.length}")


class Value(NamedTuple):
    """One measurement: a mean over n items."""

    value: float
    n: int


@dataclass
class Measurements:
    """Everything measured. `values` holds finite numbers only; what is not there was not measured."""

    values: dict[tuple[str, Place], dict[int, Value]] = field(default_factory=dict)  # by run and place, then seed
    trainings: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)  # by run, task and seed
    items: dict[tuple[str, Place], dict[int, NDArray[Any]]] = field(default_factory=dict)  # like values

    def at(self, run: str, place: Place) -> Mapping[int, Value]:
        """Values by seed."""
        return self.values.get((run, place), {})

    def paired_items(self, run: str, baseline: str, place: Place, seeds: list[int]) -> NDArray[np.float64] | None:
        """d_SI = score of the run − score of the baseline on each item, scaled so that its mean is their difference.

        None where a seed lacks items, where their number differs, or where there are fewer than 2.
        """
        rows = []
        for seed in seeds:
            scores = [self._scaled(name, place, seed) for name in (run, baseline)]
            if scores[0] is None or scores[1] is None or len(scores[0]) != len(scores[1]):
                return None
            rows.append(scores[0] - scores[1])
        return np.stack(rows) if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1 else None

    def _scaled(self, run: str, place: Place, seed: int) -> NDArray[np.float64] | None:
        items = self.items.get((run, place), {}).get(seed)
        if items is None or not len(items) or not np.isfinite(items).all():
            return None
        mean, value = float(items.mean()), self.values[run, place][seed].value
        return items * (value / mean) if mean else items * 1.0


def read(measurements: Path, runs: Path, items: Path | None = None) -> Measurements:
    """Read the tables. Raises UserError that names the file and the step that makes it, where one is damaged too."""
    found = Measurements()
    for path in filter(None, (measurements, runs, items)):
        with _whole(path):
            verify(path, "python -m harness.aggregate")
    with _whole(measurements):
        for row in _rows(measurements):
            key, seed = (str(row["run"]), _place(row)), int(row["seed"])
            value = Value(float(row["value"] or "nan"), int(row["n"] or 0))
            if math.isfinite(value.value) and found.values.setdefault(key, {}).setdefault(seed, value) != value:
                raise UserError(
                    f"{measurements}: {key[0]} seed {seed} has two values of {key[1]}; run python -m harness.aggregate"
                )
    with _whole(runs):
        for training in read_json(runs):
            found.trainings[training["run"], training["task"], training["seed"]] = training
    if items is not None and items.is_file():
        with _whole(items):
            _read_items(items, found)
    return found


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """What a missing or damaged file makes its reader raise becomes one sentence of a UserError."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} is not there; make it with python -m harness.aggregate") from None
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        RecursionError,
        csv.Error,
    ) as error:
        why = shorten(" ".join(str(error).split()), 120)
        raise UserError(f"{path} cannot be read ({why}); make it again with python -m harness.aggregate") from None


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
    else:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    lacking = COLUMNS - set(rows[0]) if rows else set()
    if lacking:
        raise UserError(f"{path} lacks the column {min(lacking)!r}; make it again with python -m harness.aggregate")
    return rows


def _place(row: Mapping[str, Any]) -> Place:
    length = row["length"]
    return Place(row["suite"], row["task"], row["metric"], None if length in (None, "") else int(length))


def _read_items(path: Path, found: Measurements) -> None:
    """Keep the scores of every measured value, as views of a batch's array."""
    from pyarrow import parquet

    for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024):
        lists = batch.column("items")
        scores, ends = lists.values.to_numpy(zero_copy_only=False), lists.offsets.to_numpy()
        for row, start, stop in zip(batch.drop_columns(["items"]).to_pylist(), ends[:-1], ends[1:], strict=True):
            key = (row["run"], _place(row))
            if row["seed"] in found.values.get(key, {}):
                found.items.setdefault(key, {})[row["seed"]] = scores[start:stop]
