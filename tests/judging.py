"""Papers, measurements and verdicts made by hand, for the tests of judging."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from harness import claims, settle
from harness.measured import Measurements, Place, Value
from harness.metrics import Metric
from harness.outcomes import Bench
from harness.spec import Paper

IDS = {"run": "run-1", "base": "base-1"}
CELLS = [
    ("toy", None, "error"),
    ("toy", None, "score"),
    ("far", 64, "loss"),
    ("far", 128, "loss"),
    ("far", 512, "loss"),
]
CELLS += [(f"mqar-{pairs}", None, "score") for pairs in (4, 8, 16)]
SUITE = SimpleNamespace(
    TASK="lm",
    METRICS={
        "error": Metric(unit="%", better="lower"),
        "score": Metric(unit="share", better="higher"),
        "loss": Metric(unit="nats/token", better="lower"),
    },
    cells=lambda profile: CELLS,
)
PROFILE = SimpleNamespace(name="tiny", suites={"s": None}, tasks={"lm": SimpleNamespace(length=64)})


def claim(kind="compare", id="c", **given):
    """A claim with what every claim needs, and usual values for the rest."""
    usual = {
        "compare": {"run": "run", "baseline": "base", "metric": "s/toy/score", "expect": "higher", "margin": 0.0},
        "value": {"run": "run", "metric": "s/toy/score", "value": 0.5, "tolerance": 0.1, "tolerance_from": "us"},
        "trend": {"run": "run", "metric": "s/far/loss", "over": "length", "expect": "rises", "margin": 0.0},
        "property": {"run": "run", "check": "rows_sum_to_one"},
    }.get(kind, {})
    source = {"margin_from": "us"} if kind in ("compare", "trend") else {}
    return {"id": id, "quote": "q", "where": "abstract", "kind": kind, **usual, **source, **given}


def part(kind="compare", **given):
    """The same as a part of a composite claim."""
    return {key: value for key, value in claim(kind, **given).items() if key not in ("id", "quote", "where")}


def paper(*given):
    return Paper.model_validate(
        {
            "title": "T",
            "arxiv": "2000.00001",
            "year": 2020,
            "authors": ["A"],
            "summary": "S",
            "scale_gap": "none",
            "runs": {"run": {"impl": "softmax"}, "base": {"impl": "softmax", "args": {"rope": False}}},
            "claims": list(given),
        }
    )


def table(columns: dict[str, Any] | None = None, n: int = 1000, **named: Any):
    """Measurements from columns like `run__toy__score=[…]`, a value a seed; None leaves a seed out."""
    found = Measurements()
    for name, values in {**(columns or {}), **named}.items():
        run, task, metric, *length = name.split("__")
        place = Place("s", task.replace("_", "-"), metric, int(length[0]) if length else None)
        cells = {seed: Value(value, n) for seed, value in enumerate(values) if value is not None}
        found.values[IDS[run], place] = cells
    return found


def records(found, *given, noise=None, seeds=(0, 1, 2)):
    """Records by claim id."""
    written = paper(*given)
    bench = Bench(PROFILE, seeds, ["s"], found, noise or {})  # type: ignore[arg-type]
    tests = {
        c.id: [bench.outcome(t, IDS, lambda name: ("softmax", {})) for _, t in claims.tests(c)] for c in written.claims
    }
    made = settle.judge_paper("p", written, tests)
    json.dumps(made, allow_nan=False)
    return {record["claim"]: record for record in made}


def judged(run, base, expect="higher", margin=0.0, n=1000, metric="s/toy/score", **more):
    """The record of one comparison."""
    column = metric.split("/")[2]
    found = table({f"run__toy__{column}": run, f"base__toy__{column}": base}, n)
    return records(found, claim(expect=expect, margin=margin, metric=metric), **more)["c"]


NEAR = [0.500, 0.512, 0.507]  # three seeds of a baseline
UP = [0.703, 0.711, 0.705]  # 0.2 above it, more or less, seed by seed
