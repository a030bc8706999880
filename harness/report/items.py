"""The scores behind a run's numbers, packed for the page that counts on which items one of two runs did better.

Scores are means over a run's seeds. Those of a cell are brought to the numbers 0 to 65,535 from the least to the
greatest of all runs, so that two runs compare by them; two bytes an item, little end first, in base64.
"""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.report.evidence import Cell

NAMES = ("run", "suite", "task", "length", "metric", "items")
LEVELS = 65_535

Scores = dict[str, NDArray[np.float64]]  # by run, one number an item


DETAIL = {"position"}  # tasks that only take another apart


def read(path: Path) -> dict[str, dict[str, str]]:
    """By run and the cell's id, its packed scores; nothing where no scores were kept."""
    found: dict[str, dict[str, str]] = {}
    for cell, scores in means(path).items():
        least = min(float(scores_I.min()) for scores_I in scores.values())
        span = max(float(scores_I.max()) for scores_I in scores.values()) - least
        for run, scores_I in scores.items():
            levels_I = np.zeros(len(scores_I)) if span == 0 else np.rint((scores_I - least) / span * LEVELS)
            found.setdefault(run, {})[cell.id] = base64.b64encode(levels_I.astype("<u2").tobytes()).decode()
    return found


def means(path: Path) -> dict[Cell, Scores]:
    """The mean score of every item over the seeds that have as many items as the first of them."""
    if not path.is_file():
        return {}
    columns = pq.read_table(path, columns=list(NAMES))
    plain = columns.drop_columns(["items"]).to_pydict()
    sums: dict[Cell, dict[str, tuple[NDArray[np.float64], int]]] = {}
    for place, scores in enumerate(columns.column("items")):
        if plain["task"][place] in DETAIL:
            continue
        run, suite, task, length, metric = (plain[name][place] for name in NAMES[:-1])
        scores_I = np.asarray(scores.values)
        total_I, seeds = sums.setdefault(Cell(suite, task, length, metric), {}).get(run, (np.zeros(len(scores_I)), 0))
        if len(total_I) == len(scores_I) > 0:
            sums[Cell(suite, task, length, metric)][run] = (total_I + scores_I, seeds + 1)
    return {cell: {run: total_I / n for run, (total_I, n) in by.items()} for cell, by in sums.items() if by}
