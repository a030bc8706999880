"""How long a training step of each mechanism takes, as a ratio to the same model with PyTorch's fused attention.

    python -m benchmarks.train_step                       every mechanism
    python -m benchmarks.train_step gla delta_net         these

One thread of the CPU, float32, CPU seconds. All models take turns, round after round, in one process, so that a slow
moment of the machine hits them alike; the ratio is the median over rounds of step / step of the fused model in the
same round. Settings are those that papers run. What is compared, and why it is fair, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import impls
from harness import cost
from harness.model import LM, Layer, Shape, build, param_groups
from harness.references import TRAIN_LENGTH
from harness.spec import load_papers
from impls import ops

LIMITS = {"softmax": 1.05, "linear_attention": 1.1, "gla": 1.2, "delta_net": 1.5, "gated_delta_net": 1.5}
BASELINE = "fused attention"


class Fused(nn.Module):
    """Attention in the fewest calls that PyTorch offers: the yardstick, which no change to `impls` makes slower."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = ops.linear(d_model, 3 * d_model), ops.linear(d_model, d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return self.out(ops.merge_heads(scaled_dot_product_attention(ops.rope(q), ops.rope(k), v, is_causal=True)))


def settings(names: list[str], length: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """(mechanism, arguments) by label: each setting that a run of a paper has; without one, the defaults."""
    found: dict[str, tuple[str, dict[str, Any]]] = {BASELINE: (BASELINE, {})}
    runs = [run for paper in load_papers().values() for run in paper.runs.values()]
    for name in names:
        for args in [run.args for run in runs if run.impl == name] or [{}]:
            known = {key: length if value == TRAIN_LENGTH else value for key, value in args.items()}
            found[" ".join([name, *(f"{key}={value}" for key, value in sorted(known.items()))])] = name, known
    return found


def model(impl: str, args: dict[str, Any], o: argparse.Namespace) -> LM:
    """The backbone around one mechanism, its MLP as wide as the reference's parameters allow."""
    fused = impl == BASELINE
    known = {field.name for field in dataclasses.fields(impls.config("softmax" if fused else impl, args))}
    shape = Shape(
        impl="softmax" if fused else impl,
        args=({"heads": o.heads} if "heads" in known else {}) | args,
        vocab=o.vocab,
        width=o.width,
        layers=o.layers,
        mlp=o.mlp,
        conv=4,
    )
    lm = build(cost.match(shape, o.heads).shape, seed=0)
    for layer in lm.layers if fused else ():
        assert isinstance(layer, Layer)
        layer.mixer = Fused(o.width, o.heads)  # pyright: ignore[reportAttributeAccessIssue]
    return lm


def stepper(lm: LM, ids_BT: Tensor) -> Callable[[], float]:
    """A function that takes one training step and returns its seconds."""
    optimizer = torch.optim.AdamW(param_groups(lm, weight_decay=0.0), lr=1e-4)

    def step() -> float:
        start = time.process_time()
        loss = cross_entropy(lm(ids_BT[:, :-1]).flatten(0, 1), ids_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.process_time() - start

    return step


def measure(names: list[str], o: argparse.Namespace) -> dict[str, tuple[int, float, float, float]]:
    """By name: parameters, median milliseconds, median ratio and the ratios' interquartile range."""
    ids_BT = torch.randint(o.vocab, (o.batch, o.length + 1), generator=torch.Generator().manual_seed(0))
    models = {label: model(name, args, o) for label, (name, args) in settings(names, o.length).items()}
    steps = {name: stepper(lm, ids_BT) for name, lm in models.items()}
    rounds = [{name: step() for name, step in steps.items()} for _ in range(o.warmup + o.rounds)][o.warmup :]
    found = {}
    for name, lm in models.items():
        ratios = sorted(seconds[name] / seconds[BASELINE] for seconds in rounds)
        low, _, high = statistics.quantiles(ratios, n=4)
        milliseconds = 1e3 * statistics.median(seconds[name] for seconds in rounds)
        found[name] = sum(p.numel() for p in lm.parameters()), milliseconds, statistics.median(ratios), high - low
    return found


def table(found: dict[str, tuple[int, float, float, float]], o: argparse.Namespace) -> Table:
    title = f"training step: d {o.width}, T {o.length}, batch {o.batch}, {o.layers} layers, vocabulary {o.vocab}"
    view = Table(title=title, caption="ratio to the same model with fused attention; ± half the interquartile range")
    for column in ("mechanism", "parameters", "ms", "ratio", "±", "limit"):
        view.add_column(column, justify="left" if column == "mechanism" else "right")
    for name, (parameters, milliseconds, ratio, spread) in sorted(found.items(), key=lambda item: item[1][2]):
        limit = LIMITS.get(name.split()[0])
        shown = "" if limit is None else f"{limit:.2f}" if ratio <= limit else f"[bold red]{limit:.2f}"
        view.add_row(name, f"{parameters:,}", f"{milliseconds:.1f}", f"{ratio:.2f}", f"{spread / 2:.2f}", shown)
    return view


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("impl", nargs="*", help="mechanisms; all when none is named")
    defaults = {"width": 128, "length": 256, "batch": 4, "layers": 2, "heads": 4, "mlp": 256, "vocab": 4096}
    for name, value in (defaults | {"rounds": 21, "warmup": 2, "threads": 1}).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    o = parser.parse_args()
    unknown = sorted(set(o.impl) - set(impls.names()))
    if unknown:
        parser.error(f"no mechanism {unknown[0]!r} in impls/; there are {', '.join(impls.names())}")
    torch.set_num_threads(o.threads)
    found = measure(o.impl or impls.names(), o)
    Console().print(table(found, o))
    return int(any(ratio > LIMITS.get(name.split()[0], ratio) for name, (_, _, ratio, _) in found.items()))


if __name__ == "__main__":
    raise SystemExit(main())
