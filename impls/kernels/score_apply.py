"""How the kernels of `score_map` are launched, and their place in autograd."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import knobs

from impls.kernels import score_backward, score_forward

LOG2E = 1.4426950408889634
PEAKED = ("softmax", "softpick", "cog", "adjust")  # subtract a running maximum
NORMED = (*PEAKED, "softplus")  # divide by a sum over the row
KEY = ["bucket", "H", "GROUP", "K", "V", "MAP", "SINK", "PRECISION"]
TILES = {  # M queries, N keys, warps, stages
    "forward": [(128, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3), (64, 64, 4, 3), (64, 32, 4, 4), (16, 64, 4, 3)],
    "queries": [(128, 64, 8, 3), (128, 32, 4, 3), (64, 64, 4, 2), (64, 32, 4, 3), (32, 32, 4, 2)],
    "keys": [(64, 128, 8, 2), (32, 128, 4, 3), (64, 64, 4, 2), (32, 64, 4, 3), (32, 32, 4, 2)],
}
KERNELS = {"forward": score_forward.forward, "queries": score_backward.queries, "keys": score_backward.keys}
SMALL = {"M": 16, "N": 16}  # for the interpreter, which measures nothing


@cache
def tuned(kernel: str) -> Any:
    """The kernel with the fastest tiles, measured once for each device and shape and kept on disk, so that the next
    process adds up in the same order."""
    configs = [triton.Config({"M": m, "N": n}, num_warps=w, num_stages=s) for m, n, w, s in TILES[kernel]]
    names = [name for name in KEY if name in KERNELS[kernel].arg_names]
    return triton.autotune(configs, key=names, cache_results=True)(KERNELS[kernel])


def launch(kernel: str, programs: Any, **arguments: Any) -> None:
    """Run a kernel with `programs(meta)` programs."""
    if knobs.runtime.interpret:
        KERNELS[kernel][programs](**arguments, **SMALL)
    else:
        with torch.cuda.device(arguments["q_ptr"].device):
            tuned(kernel)[programs](**arguments)


def constants(q: Tensor, k: Tensor, v: Tensor, map_name: str, scale: float, bias: float) -> dict[str, Any]:
    """What all three kernels are told, but for tensors."""
    K, V = q.shape[3], v.shape[3]
    exact = q.dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    longest = max(q.shape[2], k.shape[2])
    return {
        "T": q.shape[2],
        "S": k.shape[2],
        "bucket": min(1 << (longest - 1).bit_length(), 8192) + (q.shape[2] == 1),
        "c": scale if map_name.startswith("relu") else scale * LOG2E,
        "bias": bias * LOG2E if map_name == "sigmoid" else bias,
        "H": q.shape[1],
        "GROUP": q.shape[1] // k.shape[1],
        "K": K,
        "V": V,
        "BLOCK_K": max(16, triton.next_power_of_2(K)),
        "BLOCK_V": max(16, triton.next_power_of_2(V)),
        "MAP": map_name,
        "NORMED": map_name in NORMED,
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


class ScoreMap(torch.autograd.Function):
    """(y_BHTV, stat_BHT) of q, k, v and, for softmax, a sink's logits [B,H,T]; `stat` as in `score_maps`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        map_name: str,
        scale: float,
        bias: float,
    ) -> tuple[Tensor, Tensor]:
        (B, H, T), V = q.shape[:3], v.shape[3]
        told = constants(q, k, v, map_name, scale, bias)
        y, stat = rows_last(q, H, T, V), q.new_empty(B, H, T, dtype=torch.float32)
        logits = stat if sink is None else sink
        launch(
            "forward", lambda meta: (B * H * triton.cdiv(T, meta["M"]),),
            q_ptr=q, k_ptr=k, v_ptr=v, sink_ptr=logits, y_ptr=y, stat_ptr=stat, **strides(q=q, k=k, v=v, sink=logits),
            **told, PEAKED=map_name in PEAKED, SINK=sink is not None,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, sink, y, stat)
        ctx.set_materialize_grads(False)
        ctx.told, ctx.scale = told, scale
        return y, stat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (dy, dstat), (q, k, v, sink, y, stat) = grads, ctx.saved_tensors
        dy = rowwise(torch.zeros_like(y) if dy is None else dy)
        (B, H, T, K), (_, shared, S, V) = q.shape, v.shape
        dq, dk, dv = rows_last(q, H, T, K), rows_last(q, shared, S, K), rows_last(q, shared, S, V)
        delta = torch.empty_like(stat)
        told = ctx.told | {"scale": ctx.scale} | strides(q=q, k=k, v=v, dy=dy)
        tensors = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "dy_ptr": dy, "stat_ptr": stat, "delta_ptr": delta}
        launch(
            "queries", lambda meta: (B * H * triton.cdiv(T, meta["M"]),),
            **tensors, y_ptr=y, dstat_ptr=delta if dstat is None else dstat.contiguous(), dq_ptr=dq,
            **told, DSTAT=dstat is not None,
        )  # fmt: skip
        launch(
            "keys", lambda meta: (B * shared * triton.cdiv(S, meta["N"]),),
            **tensors, dk_ptr=dk, dv_ptr=dv, **told,
        )  # fmt: skip
        dsink = None if sink is None else (-delta * torch.exp2(sink.float() * LOG2E - stat)).to(sink.dtype)
        return dq, dk, dv, dsink, None, None, None


def rowwise(x: Tensor) -> Tensor:
    """x with adjacent columns, which is all that kernels ask of strides."""
    return x if x.stride(-1) == 1 else x.contiguous()


def score_map(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    map_name: str,
    scale: float,
    bias: float = 0.0,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, stat_BHT), causal, the queries being the last T of S positions; k and v may have fewer heads than q.

    Everything takes the dtype of v, sums are float32. Raises ValueError when heads, lengths or widths do not fit.
    """
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit together")
    sink = None if sink is None else sink.expand(q.shape[:3])
    dtype = v.dtype
    if knobs.runtime.interpret:  # numpy has no bfloat16
        v = v.float()
    q, k, v = (rowwise(z.to(v.dtype)) for z in (q, k, v))
    y, stat = ScoreMap.apply(q, k, v, sink, map_name, float(scale), float(bias))
    return y.to(dtype), stat
