"""How long the next token takes after 256 to 4,096 tokens: of each mixer with a state of fixed size, and of softmax.

    python -m benchmarks.decode                     every recurrent mechanism, and softmax with its cache
    python -m benchmarks.decode gla mesa            these

One mixer, one row, one thread of the CPU, float32. States after each length come from `prefill`; from then on all
lengths take turns, round after round, in one process. A recurrent mixer must be flat: its median after any length
within a tenth of that after the shortest; softmax must not be. The exit code is 1 where one is not.
"""

from __future__ import annotations

import argparse
import statistics
from importlib import import_module
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import impls
from benchmarks.train_step import BASELINE, settings
from harness.errors import leave
from harness.timing import FLAT, clock_of, growth
from impls.base import RecurrentMixer, TokenMixer

LENGTHS = (256, 512, 1024, 2048, 4096)


def recurrent() -> list[str]:
    """Mechanisms whose state does not grow."""
    classes = {name: import_module(f"impls.{name}").Mixer for name in impls.names()}
    return [name for name, mechanism in classes.items() if issubclass(mechanism, RecurrentMixer)]


def mixer(name: str, args: dict[str, Any], width: int, heads: int) -> TokenMixer:
    """A mechanism in a paper's setting, with so many heads where it has heads."""
    known = {"heads": heads} if hasattr(impls.config(name, args), "heads") else {}
    return impls.build(name, width, known | args).eval()


@torch.no_grad()
def medians(layer: TokenMixer, width: int, lengths: tuple[int, ...], rounds: int, steps: int) -> list[float]:
    """Seconds of one token after each length: the median over rounds of the mean over steps."""
    x_BTD = torch.randn(1, max(lengths) + 1, width)
    states = [layer.prefill(x_BTD[:, :length])[1] for length in lengths]
    clock, found = clock_of("cpu"), [[] for _ in lengths]
    for place in range(rounds + 1):
        turns = list(zip(lengths, states, found, strict=True))
        for length, state, seconds in turns if place % 2 else turns[::-1]:
            start = clock()
            for _ in range(steps):
                layer.step(x_BTD[:, length], state)
            seconds.append((clock() - start) / steps)
    return [statistics.median(seconds[1:]) for seconds in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("impl", nargs="*", help="mechanisms; all with a state of fixed size when none is named")
    for name, value in {"width": 256, "heads": 4, "rounds": 21, "steps": 50, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    fixed, wrong = set(recurrent()), False
    view = Table(title=f"one more token after so many, microseconds: width {o.width}, batch 1")
    for column in ("mechanism", *map(str, LENGTHS), "most / first", "grows"):
        view.add_column(column, justify="left" if column == "mechanism" else "right")
    for label, (name, args) in settings(["softmax", *(o.impl or sorted(fixed))], 256).items():
        if label == BASELINE:
            continue
        seconds = medians(mixer(name, args, o.width, o.heads), o.width, LENGTHS, o.rounds, o.steps)
        most = max(seconds) / seconds[0]
        wrong |= (most > 1 + FLAT) == (name in fixed)
        view.add_row(label, *(f"{1e6 * s:.0f}" for s in seconds), f"{most:.2f}", growth(LENGTHS, seconds))
    Console().print(view)
    return int(wrong)


if __name__ == "__main__":
    leave(main)
