"""Time and memory of judging 200 papers × 10 claims × 5 seeds with 1,000 shared items behind each number.

    python -m benchmarks.judge [--papers 200] [--items 1000]

Every paper has a run and a baseline of its own, so nothing is shared: 20,000 numbers with 20 million items. They are
drawn in a temporary folder; `python -m harness.judge` is timed as a process of its own, with the peak of its memory.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from harness.metrics import parse_key
from harness.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
SEEDS = (0, 1, 2, 3, 4)
METRICS = [f"mqar-{pairs}/accuracy" for pairs in (4, 8, 16, 32)]
METRICS += [f"needle-8/accuracy@{multiple}x" for multiple in (1, 2, 4, 8)] + [
    "needle-1/accuracy@1x",
    "needle-1/accuracy@8x",
]
SPEC = """title: Paper {k}
arxiv: "2000.{k:05}"
year: 2020
authors: [A]
summary: drawn
scale_gap: drawn
runs:
  run: {{impl: softmax, recipe: {{recall: {{lr: {run}}}}}}}
  base: {{impl: softmax, recipe: {{recall: {{lr: {base}}}}}}}
claims:
"""
CLAIM = (
    "  - {{id: c{k}, quote: q, where: abstract, kind: compare, run: run, baseline: base, metric: recall/{metric}, "
    "expect: {expect}, margin: 0.05, margin_from: drawn}}\n"
)
JUDGE = """
import re, sys, time
from harness import judge
judge.main(sys.argv[1:])
print(time.process_time(), re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""  # the kernel's peak of this process alone: ru_maxrss would count the parent it was forked from


def write_papers(folder: Path, papers: int) -> None:
    """Specs whose runs are all different, and the repository's configuration beside them."""
    (folder / "papers").mkdir()
    (folder / "config").symlink_to(ROOT / "config")
    expects = ("higher", "lower", "within", "not_lower", "not_higher")
    for k in range(papers):
        spec = SPEC.format(k=k, run=f"{0.001 + k * 1e-6:.6f}", base=f"{0.002 + k * 1e-6:.6f}")
        claims = (CLAIM.format(k=c, metric=metric, expect=expects[c % 5]) for c, metric in enumerate(METRICS))
        (folder / "papers" / f"paper-{k}.yaml").write_text(spec + "".join(claims))


def rows(folder: Path, items: int) -> Iterator[tuple[dict[str, object], np.ndarray]]:
    """Each number with its items: right or wrong answers, easier for some items than for others."""
    os.chdir(folder)
    plan = Plan.load({"profile": "laptop", "seeds": list(SEEDS)})
    length = plan.profile.tasks["recall"].length
    rng = np.random.default_rng(0)
    easy = rng.random(items)
    for run in plan.runs:
        for metric in METRICS:
            key = parse_key(f"recall/{metric}")
            for seed in SEEDS:
                right = (rng.random(items) < easy).astype(float)
                place = {
                    "suite": "recall",
                    "task": key.task,
                    "length": key.tokens(length) or length,
                    "metric": "accuracy",
                }
                yield {"run": run, "seed": seed, **place, "value": float(right.mean()), "n": items}, right


def write_tables(folder: Path, items: int) -> int:
    """measurements.csv, runs.json and items.parquet; the number of numbers."""
    names, scores = [], []
    for name, right in rows(folder, items):
        names.append(name)
        scores.append(right)
    with (folder / "m.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(names[0]))
        writer.writeheader()
        writer.writerows(names)
    (folder / "r.json").write_text(json.dumps([]))
    columns: dict[str, Any] = {
        key: [name[key] for name in names] for key in ("run", "seed", "suite", "task", "length", "metric")
    }
    offsets = pa.array(np.arange(len(scores) + 1) * items, pa.int32())
    columns["items"] = pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(scores)))
    parquet.write_table(pa.table(columns), folder / "i.parquet")
    return len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=int, default=200)
    parser.add_argument("--items", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_papers(folder, given.papers)
        numbers = write_tables(folder, given.items)
        arguments = ["--profile", "laptop", "--seeds", *map(str, SEEDS), "--measurements", "m.csv", "--runs", "r.json"]
        arguments += ["--items", "i.parquet", "--out", "v.json"]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", JUDGE, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        )
        wall = time.perf_counter() - start
        verdicts = json.loads((folder / "v.json").read_text())
    assert all(verdict["item_error"] is not None for verdict in verdicts)
    cpu, peak = done.stdout.split()[-2:]
    print(f"{len(verdicts):,} claims over {numbers:,} numbers of {given.items:,} items")
    print(f"{wall:.1f} s ({float(cpu):.1f} s of CPU), {int(peak) / 1024:,.0f} MB at the peak")


if __name__ == "__main__":
    main()
