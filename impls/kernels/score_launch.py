"""Launches: tiles, measured where there is a GPU, and what kernels are told about shapes and strides."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import knobs

Choice = tuple[tuple[int, int, int, int], ...]  # M queries, N keys, warps, stages
KEY = ("bucket", "H", "GROUP", "K", "V", "MAP", "ROW", "PRECISION")  # tiles are measured anew when one of these changes
SMALL = {"M": 16, "N": 16}  # tiles of the interpreter


class Tiles(NamedTuple):
    """What to choose from: usually, for widths above 128 or float32, and for one query."""

    usual: Choice
    wide: Choice
    single: Choice = ()

    def choice(self, told: dict[str, Any]) -> Choice:
        if told["T"] == 1 and self.single:
            return self.single
        large = max(told["BLOCK_K"], told.get("BLOCK_V", 0)) > 128 or told["q_ptr"].dtype == torch.float32
        return self.wide if large else self.usual


@cache
def tuned(kernel: Any, choice: Choice) -> Any:
    """The kernel with the quickest tiles. They are measured once for each device and shape and kept on disk, so that
    a later process adds up in the same order."""
    configs = [triton.Config({"M": m, "N": n}, num_warps=w, num_stages=s) for m, n, w, s in choice]
    return triton.autotune(configs, [name for name in KEY if name in kernel.arg_names], cache_results=True)(kernel)


def launch(kernel: Any, tiles: Tiles, side: str, heads: int, length: int, parts: int = 1, **arguments: Any) -> None:
    """Run one program for each of the heads, each tile of the length, which `side`, M or N, cuts, and each part."""

    def grid(meta: dict[str, int]) -> tuple[int, int]:
        return heads * -(-length // meta[side]), parts

    if interpreted():
        run(kernel, grid, **arguments, **SMALL)
    else:
        run(tuned(kernel, tiles.choice(arguments)), grid, **arguments)


def run(kernel: Any, grid: Any, *tensors: Tensor, **arguments: Any) -> None:
    """Start a kernel on the device of its first tensor."""
    first = tensors[0] if tensors else arguments["q_ptr"]
    with torch.cuda.device(first.device) if first.is_cuda else nullcontext():
        kernel[grid](*tensors, **arguments)


def interpreted() -> bool:
    """Whether kernels run on the CPU, in Triton's interpreter."""
    return bool(knobs.runtime.interpret)


def shapes(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Any]:
    """Sizes, and how exact products are. Lengths share tiles by the power of two above them, single queries too."""
    (_, H, T, K), (_, shared, S, _), V = q.shape, k.shape, v.shape[3]
    exact = q.dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    return {
        "T": T,
        "S": S,
        "bucket": min(triton.next_power_of_2(max(T, S)), 8192) + (T == 1),
        "H": H,
        "GROUP": H // shared,
        "K": K,
        "V": V,
        "BLOCK_K": max(16, triton.next_power_of_2(K)),
        "BLOCK_V": max(16, triton.next_power_of_2(V)),
        "PRECISION": "ieee" if exact else "tf32",
    }


def strides(**tensors: Tensor) -> dict[str, int]:
    """q_b, q_h, q_t and so on, in elements; the rows of `k` and `v` are named s."""
    found = {}
    for name, tensor in tensors.items():
        axes = ("b", "h", "s" if name in ("k", "v") else "t")
        found |= {f"{name}_{axis}": step for axis, step in zip(axes, tensor.stride(), strict=False)}
    return found


def rows_last(like: Tensor, heads: int, length: int, width: int) -> Tensor:
    """An unwritten [B,T,H,D] seen as [B,H,T,D]: merging its heads costs nothing."""
    return like.new_empty(like.shape[0], length, heads, width).transpose(1, 2)


def rowwise(x: Tensor) -> Tensor:
    """x with adjacent columns, which is all that kernels ask of strides."""
    return x if x.stride(-1) == 1 else x.contiguous()
