"""Our chunked recurrences in torch beside other people's, forward and backward, in turns in one process.

    python -m benchmarks.recurrent                  beside transformers
    pip install --no-deps --target FOLDER fla-core einops
    python -m benchmarks.recurrent --fla FOLDER     and beside the naive forms of flash-linear-attention

Opponents are `torch_chunk_gated_delta_rule` of transformers (models/qwen3_next) and what flash-linear-attention tests
its kernels against (fla/ops/*/naive.py). The latter's files are read one by one: the package itself wants a GPU, and
transformers would call it in place of its own form. Every opponent must first give our numbers. A gain is the median
over rounds of their seconds / ours; the exit code is 1 when one is below its limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from harness.errors import UserError, leave
from harness.timing import Rounds, clock_of, in_turns
from impls import delta_net, gated_delta_net, gla

Form = Callable[..., Tensor]  # y_BTHV of the inputs, each [B,T,H,..]


@dataclass(frozen=True)
class Race:
    """One of our forms, an opponent, the names of the inputs of both, and how many times as fast ours must be."""

    name: str
    opponent: str
    limit: float
    given: tuple[str, ...]
    ours: Form
    theirs: Form


def naive(folder: Path, rule: str) -> ModuleType:
    """The module fla/ops/<rule>/naive.py below the folder. Raises UserError where it or einops is not there."""
    spec = importlib.util.spec_from_file_location(f"naive_{rule}", folder / "fla" / "ops" / rule / "naive.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(folder))  # for einops, and no longer: transformers must not find fla
    try:
        spec.loader.exec_module(module)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        raise UserError(f"--fla {folder} does not hold fla-core and einops ({error})") from None
    finally:
        sys.path.remove(str(folder))
    return module


def heads_first(form: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """A form of [B,H,T,..], given [B,T,H,..]."""
    return form(*(z.transpose(1, 2) for z in inputs)).transpose(1, 2)


def races(scale: float, fla: Path | None) -> Iterator[Race]:
    """Limits are what our forms were made to reach at T 1,024."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule as qwen

    gated, delta, decayed = ("q", "k", "v", "beta", "g"), ("q", "k", "v", "beta"), ("q", "k", "v", "g_K")
    ours = partial(heads_first, partial(gated_delta_net.attend, scale=scale))
    yield Race("gated delta", "transformers, chunks", 1.1, gated, ours, lambda q, k, v, b, g: qwen(q, k, v, g, b)[0])
    if fla is None:
        return
    chunks = naive(fla, "gated_delta_rule").naive_chunk_gated_delta_rule
    yield Race("gated delta", "fla naive, chunks", 1.8, gated, ours, lambda q, k, v, b, g: chunks(q, k, v, g, b)[0])
    rule = naive(fla, "delta_rule").delta_rule_chunkwise
    ours = partial(heads_first, partial(delta_net.attend, scale=scale))
    yield Race("delta", "fla naive, chunks", 1.3, delta, ours, partial(heads_first, lambda *inputs: rule(*inputs)[0]))
    steps = naive(fla, "gla").naive_recurrent_gla
    ours = partial(heads_first, partial(gla.attend, scale=scale))
    yield Race("gla", "fla naive, steps", 5.0, decayed, ours, lambda *inputs: steps(*inputs)[0])


def drawn(o: argparse.Namespace) -> dict[str, Tensor]:
    """Inputs [B,T,H,..] in float32; keys and queries of unit length, decays as layers start with."""
    torch.manual_seed(0)
    shape = o.batch, o.length, o.heads
    q, k, v = torch.randn(*shape, o.key), torch.randn(*shape, o.key), torch.randn(*shape, o.value)
    given = {"q": normalize(q, dim=-1), "k": normalize(k, dim=-1), "v": v, "beta": torch.rand(*shape)}
    given |= {"g": logsigmoid(torch.randn(*shape) + 3), "g_K": logsigmoid(torch.randn(*shape, o.key)) / 16}
    return {name: z.requires_grad_() for name, z in given.items()}


def measure(race: Race, o: argparse.Namespace) -> Rounds:
    """Raises AssertionError where the two sides' numbers differ by more than rounding."""
    inputs = [drawn(o)[name] for name in race.given]
    grad = torch.randn(o.batch, o.length, o.heads, o.value)

    def both(form: Form) -> tuple[Tensor, ...]:
        y = form(*inputs)
        return y, *torch.autograd.grad(y, inputs, grad)

    for ours, theirs in zip(both(race.ours), both(race.theirs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
    turns = in_turns(partial(both, race.ours), partial(both, race.theirs), clock_of("cpu"))
    return Rounds(*zip(*islice(turns, o.rounds), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"length": 1024, "batch": 1, "heads": 4, "key": 64, "value": 64, "rounds": 15, "threads": 1}
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--fla", type=Path, metavar="FOLDER", help="where fla-core and einops are unpacked")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    view = Table(title=f"T {o.length}, batch {o.batch}, {o.heads} heads of {o.key} keys and {o.value} values, float32")
    for column in ("recurrence", "opponent", "ours, ms", "times as fast", "range", "limit"):
        view.add_column(column, justify="left" if column in ("recurrence", "opponent") else "right")
    slow = False
    for race in races(o.key**-0.5, o.fla):
        rounds = measure(race, o)
        gains, gain = sorted(1 / ratio for ratio in rounds.ratios), 1 / rounds.ratio
        slow |= gain < race.limit
        shown = f"{1e3 * rounds.seconds:.1f}", f"{gain:.2f}", f"{gains[0]:.2f}–{gains[-1]:.2f}", f"{race.limit:.1f}"
        view.add_row(race.name, race.opponent, *shown)
    Console().print(view)
    return int(slow)


if __name__ == "__main__":
    leave(main)
