"""What each mechanism costs on one thread of the CPU, as a ratio to fused attention, at the shapes that are run here.

    python -m benchmarks.mechanisms                          every mechanism, forward and backward of its layer
    python -m benchmarks.mechanisms --step mesa vla          whole training steps of these
    python -m benchmarks.mechanisms --shape lm --json results/benchmarks/mechanisms.json

All take turns in one process, round after round, in CPU seconds; a ratio is taken inside a round, so that a slow moment
of the machine hits both of its sides. Printed and written are the median of the ratios and their range, then
milliseconds. The shapes are those of the laptop profile's two tasks and width 128 at lengths 256 and 1,024.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.table import Table

import impls
from benchmarks.train_step import BASELINE, Fused, model, settings, stepper
from harness.files import write_json

PROFILE = Path(__file__).parents[1] / "config" / "profiles" / "laptop.yaml"
WIDE = {"width": 128, "layers": 2, "heads": 4, "mlp": 256, "vocab": 4096}


def shapes() -> dict[str, dict[str, int]]:
    """By name: width, heads, length, batch and, for whole steps, layers, mlp and vocab."""
    profile = yaml.safe_load(PROFILE.read_text())
    found = {}
    for name, task in profile["tasks"].items():
        sizes = task["model"] | {key: task[key] for key in ("length", "batch")}
        found[name] = {"vocab": profile["data"]["vocab"]} | sizes
    return found | {"256": WIDE | {"length": 256, "batch": 4}, "1024": WIDE | {"length": 1024, "batch": 1}}


def layer(impl: str, args: dict[str, Any], o: Namespace) -> Callable[[], float]:
    """A function that takes one layer forward and backward and returns its seconds."""
    torch.manual_seed(0)
    if impl == BASELINE:
        mixer = Fused(o.width, o.heads)
    else:
        known = {field.name for field in dataclasses.fields(impls.config(impl, args))}
        mixer = impls.build(impl, o.width, ({"heads": o.heads} if "heads" in known else {}) | args)
    x_BTD = torch.randn(o.batch, o.length, o.width, requires_grad=True)
    weight_BTD = torch.randn(o.batch, o.length, o.width)

    def run() -> float:
        start = time.process_time()
        mixer(x_BTD).backward(weight_BTD)
        return time.process_time() - start

    return run


def measure(names: list[str], o: Namespace) -> dict[str, dict[str, float]]:
    """By setting: median, least and greatest ratio, and median milliseconds."""
    runs = settings(names, o.length)
    ids_BT = torch.randint(o.vocab, (o.batch, o.length + 1), generator=torch.Generator().manual_seed(0))
    timed = {
        label: stepper(model(impl, args, o), ids_BT) if o.step else layer(impl, args, o)
        for label, (impl, args) in runs.items()
    }
    rounds = [{label: run() for label, run in timed.items()} for _ in range(o.warmup + o.rounds)][o.warmup :]
    found = {}
    for label in timed:
        ratios = [seconds[label] / seconds[BASELINE] for seconds in rounds]
        found[label] = {
            "ratio": round(statistics.median(ratios), 3),
            "low": round(min(ratios), 3),
            "high": round(max(ratios), 3),
            "milliseconds": round(1e3 * statistics.median(seconds[label] for seconds in rounds), 3),
        }
    return found


def table(found: dict[str, dict[str, float]], name: str, o: Namespace) -> Table:
    what = "training step" if o.step else "layer, forward and backward"
    view = Table(title=f"{name}: {what}; d {o.width}, T {o.length}, batch {o.batch}, {o.heads} heads")
    for column in ("mechanism", "ratio", "range", "ms"):
        view.add_column(column, justify="left" if column == "mechanism" else "right")
    for label, z in sorted(found.items(), key=lambda item: item[1]["ratio"]):
        view.add_row(label, f"{z['ratio']:.2f}", f"{z['low']:.2f} – {z['high']:.2f}", f"{z['milliseconds']:.2f}")
    return view


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("impl", nargs="*", help="mechanisms; all when none is named")
    parser.add_argument("--shape", nargs="+", choices=list(shapes()), default=list(shapes()), help="default: all")
    parser.add_argument("--step", action="store_true", help="whole training steps in place of layers")
    parser.add_argument("--rounds", type=int, default=9, help="default 9")
    parser.add_argument("--warmup", type=int, default=2, help="default 2")
    parser.add_argument("--json", type=Path, help="where to write what was measured; nowhere by default")
    o = parser.parse_args()
    unknown = sorted(set(o.impl) - set(impls.names()))
    if unknown:
        parser.error(f"no mechanism {unknown[0]!r} in impls/; there are {', '.join(impls.names())}")
    torch.set_num_threads(1)
    found = {}
    for name in o.shape:
        sizes = Namespace(**vars(o), **shapes()[name])
        found[name] = shapes()[name] | {"step": o.step, "settings": measure(o.impl or impls.names(), sizes)}
        Console(width=120).print(table(found[name]["settings"], name, sizes))
    if o.json:
        write_json(o.json, {"torch": torch.__version__, "threads": 1, "shapes": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
