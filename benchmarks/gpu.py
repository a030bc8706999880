"""Are the kernels right, how fast are they, how much memory do they take? All of it on one GPU, in one go.

    python -m benchmarks.gpu                              within 8 minutes, into results/benchmarks/gpu.json
    python -m benchmarks.gpu --only softmax sigmoid       these kernels alone

First every kernel is held against its equations in float64, its errors beside those of the same equations in the
kernel's own precision. Then kernels and their opponents take turns, round after round, between two CUDA events; a ratio
is taken inside a round. Memory is the peak above what the inputs occupy. Shapes and opponents are in `gpu_cases`.
What the time does not suffice for is listed as left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.gpu_cases import Check, Race, checks, races
from harness.errors import UserError, leave
from harness.files import write_json

JSON = Path("results/benchmarks/gpu.json")


def check(case: Check, dtype: torch.dtype) -> list[dict[str, Any]]:
    """A row for the output and each gradient: the kernel's error and the equations' own, over the largest number."""
    torch.manual_seed(0)
    inputs = {name: tensor.to(dtype) for name, tensor in case.inputs().items()}

    def run(form: Callable[..., Tensor], kind: torch.dtype) -> dict[str, Tensor]:
        moving = {name: tensor.to(kind).requires_grad_() for name, tensor in inputs.items()}
        y = form(**moving)
        torch.manual_seed(1)
        slope = torch.randn(y.shape, device=y.device).to(y.dtype)  # in one order, however y lies in memory
        return {"y": y.detach()} | dict(zip(moving, torch.autograd.grad(y, list(moving.values()), slope), strict=True))

    exact = run(case.reference, torch.float64)
    ours, theirs = run(case.kernel, dtype), run(case.reference, dtype)
    return [
        {"tensor": name, "error": apart(ours[name], want), "reference_error": apart(theirs[name], want)}
        for name, want in exact.items()
    ]


def apart(got: Tensor, want: Tensor) -> float:
    """NaN where either has one."""
    return ((got.double() - want).abs().max() / want.abs().max().clamp(min=1e-6)).item()


def race(case: Race, rounds: int) -> Iterator[dict[str, Any]]:
    """Rows of the forward pass and, where it has one, of both passes together; the first form is the kernel."""
    torch.manual_seed(0)
    inputs = case.inputs()
    for what in ("forward", "forward and backward")[: 1 + case.backward]:
        runs, peaks = {}, {}
        for name, form in case.forms.items():
            run = one_pass(form, inputs, what != "forward")
            try:
                peaks[name] = peak(run)
                runs[name] = run
            except torch.cuda.OutOfMemoryError:
                peaks[name] = None
        turns = [{name: milliseconds(run) for name, run in runs.items()} for _ in range(rounds)]
        ours = next(iter(case.forms))
        for name in case.forms:
            row = {"what": what, "form": name, "peak_mb": peaks[name]}
            if name in runs:
                times = [turn[name] for turn in turns]
                ratios = [turn[name] / turn[ours] for turn in turns]
                row |= {"ms": statistics.median(times), "low": min(times), "high": max(times)}
                row |= {"over_ours": statistics.median(ratios), "ratios": [min(ratios), max(ratios)]}
                row["tflops"] = case.flops * (1 if what == "forward" else 3.5) / statistics.median(times) / 1e9
            yield row


def one_pass(form: Callable[..., Tensor], inputs: dict[str, Tensor], backward: bool) -> Callable[[], object]:
    if not backward:
        return torch.no_grad()(lambda: form(**inputs))
    moving = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    with torch.no_grad():
        slope = torch.randn_like(form(**inputs))
    return lambda: torch.autograd.grad(form(**moving), list(moving.values()), slope, allow_unused=True)


def peak(run: Callable[[], object]) -> float:
    """Megabytes above what is there before; the first runs also choose tiles."""
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def milliseconds(run: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def machine() -> dict[str, Any]:
    import triton

    free = torch.cuda.get_device_properties(0)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    return versions | {
        "gpu": free.name,
        "capability": f"{free.major}.{free.minor}",
        "memory_mb": free.total_memory >> 20,
    }


def measure(only: list[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Everything, as it is written."""
    start, left_out = time.monotonic(), []
    found: dict[str, Any] = {"machine": machine(), "errors": [], "speed": []}
    for case in (case for case in checks() if not only or case.kernel_name in only):
        for dtype in (torch.bfloat16, torch.float32):
            about = {"kernel": case.kernel_name, "dtype": str(dtype).removeprefix("torch.")}
            if time.monotonic() - start > seconds / 2:
                left_out.append(f"errors of {case.kernel_name} in {about['dtype']}")
                continue
            found["errors"] += [about | row for row in check(case, dtype)]
    for case in (case for case in races() if not only or case.kernel_name in only):
        about = {"kernel": case.kernel_name} | case.shape
        if time.monotonic() - start > seconds:
            left_out.append(f"speed of {case.kernel_name} at {case.shape}")
            continue
        found["speed"] += [about | row for row in race(case, rounds)]
        torch.cuda.empty_cache()
    return found | {"left_out": left_out, "seconds": round(time.monotonic() - start, 1)}


def tables(found: dict[str, Any]) -> Iterator[Table]:
    view = Table("kernel", "dtype", "tensor", "error", "of the equations", title="Largest error over largest number")
    for row in found["errors"]:
        view.add_row(row["kernel"], row["dtype"], row["tensor"], f"{row['error']:.1e}", f"{row['reference_error']:.1e}")
    yield view
    view = Table("kernel", "shape", "what", "form", "ms", "over ours", "TFLOP/s", "MB", title="Speed")
    for row in found["speed"]:
        shape = " ".join(f"{axis}{row[axis]}" for axis in ("B", "H", "T", "S", "K", "V"))
        numbers = [f"{row[key]:.3g}" if row.get(key) is not None else "-" for key in ("ms", "over_ours", "tflops")]
        memory = "does not fit" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
        view.add_row(row["kernel"], shape, row["what"], row["form"], *numbers, memory)
    yield view


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="KERNEL", help="these kernels; default: all")
    parser.add_argument("--minutes", type=float, default=8.0, help="default 8")
    parser.add_argument("--rounds", type=int, default=20, help="default 20")
    parser.add_argument("--json", type=Path, default=JSON, help=f"default {JSON}")
    o = parser.parse_args()
    known = {case.kernel_name for case in (*checks(), *races())}
    if unknown := sorted(set(o.only) - known):
        parser.error(f"no kernel {unknown[0]!r}; there are {', '.join(sorted(known))}")
    if not torch.cuda.is_available():
        raise UserError(
            "benchmarks.gpu measures on a GPU, and PyTorch sees none here; run it where nvidia-smi shows one"
        )
    found = measure(o.only, 60 * o.minutes - 20, o.rounds)
    write_json(o.json, found)
    for view in tables(found):
        Console(width=140).print(view)
    for what in found["left_out"]:
        print(f"left out for want of time: {what}")
    return 0


if __name__ == "__main__":
    leave(main)
