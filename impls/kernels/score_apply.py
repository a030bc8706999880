"""The place of `score_map`'s kernels in autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from impls.kernels import score_backward, score_forward
from impls.kernels.score_launch import interpreted, launch, rows_last, rowwise, run, shapes, strides

PROGRAMS, SHORTEST = 256, 256  # enough to fill a GPU of 132 processors twice; keys worth a program of their own
LOG2E = 1.4426950408889634
PEAKED = ("softmax", "softpick", "cog", "adjust", "reweight")  # subtract a running maximum
NORMED = (*PEAKED, "softplus")  # divide by a sum over the row


class ScoreMap(torch.autograd.Function):
    """(y_BHTV, stat_BHT) of q, k, v and perhaps row [B,H,T]; the last two as in `score_maps`."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, row: Tensor | None, name: str, scale: float, bias: float
    ) -> tuple[Tensor, Tensor]:
        (B, H, T), V = q.shape[:3], v.shape[3]
        y, stat = rows_last(q, H, T, V), q.new_empty(B, H, T, dtype=torch.float32)
        given = stat if row is None else row
        told = shapes(q, k, v) | {"MAP": name, "NORMED": name in NORMED, "ROW": row is not None}
        told["c"] = scale if name.startswith("relu") else scale * LOG2E
        told["bias"] = bias * LOG2E if name == "sigmoid" else bias
        parts = parts_of(B * H, k.shape[2]) if T == 1 else 1
        sums = (y, stat) if parts == 1 else (stat.new_empty(parts, B, H, V), stat.new_empty(parts, 2, B, H))
        launch(
            score_forward.forward, score_forward.TILES, "M", B * H, T, parts,
            q_ptr=q, k_ptr=k, v_ptr=v, row_ptr=given, y_ptr=sums[0], stat_ptr=sums[1],
            **strides(q=q, k=k, v=v, row=given), **told, PEAKED=name in PEAKED, B=B, PARTS=parts,
        )  # fmt: skip
        if parts > 1:
            shared = {key: told[key] for key in ("S", "bias", "V", "BLOCK_V", "MAP", "NORMED")}
            run(
                score_forward.merge, (B * H,), *sums, y, stat, heads=B * H, PEAKED=name in PEAKED, PARTS=parts, **shared
            )
        ctx.save_for_backward(q, k, v, row, y, stat)
        ctx.set_materialize_grads(False)
        ctx.told = told | {"scale": scale}
        return y, stat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (dy, dstat), (q, k, v, row, y, stat) = grads, ctx.saved_tensors
        dy = rowwise(torch.zeros_like(y) if dy is None else dy)
        (B, H, T, K), (_, shared, S, V) = q.shape, v.shape
        dq, dk, dv = rows_last(q, H, T, K), rows_last(q, shared, S, K), rows_last(q, shared, S, V)
        delta, drow, given = torch.empty_like(stat), torch.empty_like(stat), stat if row is None else row
        told = ctx.told | strides(q=q, k=k, v=v, dy=dy, row=given)
        told |= {"q_ptr": q, "k_ptr": k, "v_ptr": v, "row_ptr": given, "dy_ptr": dy}
        told |= {"stat_ptr": stat, "delta_ptr": delta}
        launch(
            score_backward.queries, score_backward.QUERIES, "M", B * H, T,
            **told, y_ptr=y, dstat_ptr=delta if dstat is None else dstat.contiguous(), dq_ptr=dq, drow_ptr=drow,
            DSTAT=dstat is not None,
        )  # fmt: skip
        launch(
            score_backward.keys, score_backward.KEYS, "N", B * shared, S,
            **told, dk_ptr=dk, dv_ptr=dv,
        )  # fmt: skip
        return dq, dk, dv, None if row is None else drow.to(row.dtype), None, None, None


def parts_of(heads: int, S: int) -> int:
    """Into how many parts, a power of two, the keys of a single query are cut, so that few heads fill a GPU."""
    wanted = min(PROGRAMS // heads, S // SHORTEST, 64)
    return 1 << max(wanted.bit_length() - 1, 0)


def score_map(
    q: Tensor, k: Tensor, v: Tensor, name: str, scale: float, bias: float = 0.0, row: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, stat_BHT), causal, the queries being the last T of S positions; k and v may have fewer heads than q.

    q and k take the dtype of v. Raises ValueError when heads, lengths or widths do not fit.
    """
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit together")
    row = None if row is None else row.expand(q.shape[:3])
    dtype = v.dtype
    if interpreted():  # whose products of bfloat16 are wrong
        v = v.float()
    q, k, v = (rowwise(z.to(v.dtype)) for z in (q, k, v))
    y, stat = ScoreMap.apply(q, k, v, row, name, float(scale), float(bias))
    return y.to(dtype), stat
