"""The scores behind the numbers, results/items.parquet: run, seed, suite, task, length, metric, items.

Written for suites whose items are the same in every seed (`SHARED_ITEMS`): there the choice of the items is a source of
chance that the spread over seeds does not show. Where each seed draws its own items, that noise is in the spread
already, and item k of one seed has nothing in common with item k of another; those scores stay in the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness import records, suites
from harness.files import read_json
from harness.metrics import load_suite
from harness.studies import OWN

NAMES = ("run", "seed", "suite", "task", "length", "metric")


class Scores(NamedTuple):
    """The scores of one measured cell, in the order of its items."""

    row: Mapping[str, Any]  # of the measurements table
    scores_I: NDArray[np.float64]


def gather(rows: Iterable[Mapping[str, Any]], runs: Path = records.RUNS) -> Iterator[Scores]:
    """The scores of these rows of the measurements table, in their order; rows whose record keeps none are passed over.

    The records are those that the table was made from, so their scores are finite (`aggregate.trust`).
    """
    for (run, seed, suite), cells in groupby(rows, key=lambda row: (row["run"], row["seed"], row["suite"])):
        if suite in OWN:  # each seed draws its own items
            continue
        module = load_suite(suite)
        if not getattr(module, "SHARED_ITEMS", False):
            continue
        path = records.folder(run, module.TASK, seed, runs) / f"{suite}.json"
        kept: dict[str, str] = read_json(path)["items"]
        for row in cells:
            name = suites.name((row["task"], row["length"], row["metric"]))
            if name in kept:
                yield Scores(row, records.unpacked(kept[name]))


def to_parquet(found: Iterable[Scores]) -> bytes:
    """A table with one list of scores a row; typed even when it is empty."""
    import pyarrow as pa
    from pyarrow import parquet

    listed = list(found)
    ends = np.cumsum([0, *(len(each.scores_I) for each in listed)])
    scores = np.concatenate([each.scores_I for each in listed]) if listed else np.zeros(0)
    kinds = {"seed": pa.int64(), "length": pa.int64()}
    columns: dict[str, Any] = {
        name: pa.array([each.row[name] for each in listed], kinds.get(name, pa.string())) for name in NAMES
    }
    columns["items"] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(scores))
    buffer = BytesIO()
    parquet.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()
