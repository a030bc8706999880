"""The place of `delta_chunk`'s kernels in autograd. R rows of all sequences together, n sequences, N chunks of C."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from impls.kernels import delta_backward, delta_forward
from impls.kernels.score_launch import interpreted


def chunk(K: int, decay: int) -> int:
    """Steps of a chunk; with one decay a channel products cost more the longer it is."""
    return 16 if interpreted() or decay == 2 or K > 128 else 32


def values(K: int) -> int:
    """Columns of the state that one program holds: with more, registers run over."""
    return 32 if K <= 64 else 16


def last(K: int) -> dict[str, int]:
    """What one program of the last kernel holds."""
    return {"BLOCK_K": min(32, block(K)), "BLOCK_V": 16}


def block(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def warps(kernel: Any, K: int) -> int:
    return 4 if K <= 64 or kernel is delta_backward.chunks else 8


class Rows(NamedTuple):
    """Where sequences lie among the rows, and their chunks among all chunks."""

    cu: Tensor  # [n + 1] first row of each sequence, then R
    before: Tensor  # [n + 1] chunks before each sequence, then N
    of: Tensor  # [N] the sequence of each chunk
    chunks: int  # N


def rows_of(batch: int, length: int, lengths: list[int] | None, size: int, device: torch.device) -> Rows:
    """Of a batch of equal sequences, or of one row that holds documents of these lengths."""
    if lengths is None:
        each = -(-length // size)
        steps = torch.arange(batch + 1, device=device, dtype=torch.int32)
        of = torch.arange(batch * each, device=device, dtype=torch.int32) // each
        return Rows(steps * length, steps * each, of, batch * each)
    lens, counts = torch.tensor([0, *lengths]), torch.tensor([0, *(-(-z // size) for z in lengths)])
    of = torch.arange(len(lengths)).repeat_interleave(counts[1:])
    cu, before, of = (z.to(device, torch.int32) for z in (lens.cumsum(0), counts.cumsum(0), of))
    return Rows(cu, before, of, int(counts.sum()))


class DeltaChunk(torch.autograd.Function):
    """(y [R,H,V], final [n,H,K,V] in float32) of rows q, w [R,H,K], v [R,H,V] and, where given, k [R,H,K] (a delta
    rule), g [R,H] or [R,H,K], initial [n,H,K,V]."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor | None, w: Tensor, v: Tensor, g: Tensor | None, initial: Tensor | None,
        rows: Rows, size: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        (R, H, K), V, n = q.shape, v.shape[2], len(rows.cu) - 1
        keep = any(ctx.needs_input_grad)
        y, final = v.new_empty(R, H, V), v.new_empty(n, H, K, V, dtype=torch.float32)
        states = final.new_empty((rows.chunks, H, K, V) if keep else (1,))
        e = v if k is None else final.new_empty((R, H, V) if keep else (1, 1, 1))
        inverse = final.new_empty((rows.chunks, H, size, size) if k is not None else (1,))
        told = {
            "H": H, "K": K, "BLOCK_K": block(K), "C": size,
            "LEVELS": size.bit_length() - 1, "DECAY": 0 if g is None else g.dim() - 1,
            "PRECISION": precision(q),
        }  # fmt: skip
        given = {"q": q, "k": w if k is None else k, "w": w, "v": v, "g": w if g is None else g}
        places = {"cu_ptr": rows.cu, "before_ptr": rows.before}
        if k is not None:
            run(delta_forward.inverses, rows.chunks * H, told, given, places | {"of_ptr": rows.of},
                inverse_ptr=inverse)  # fmt: skip
        told |= {"V": V, "BLOCK_V": values(K), "DELTA": k is not None}
        run(
            delta_forward.forward, n * H * -(-V // values(K)), told | {"INITIAL": initial is not None, "KEEP": keep},
            given, places, inverse_ptr=inverse, initial_ptr=final if initial is None else initial, y_ptr=y, e_ptr=e,
            states_ptr=states, final_ptr=final,
        )  # fmt: skip
        ctx.save_for_backward(q, k, w, v, g, initial, inverse, e, states, *rows[:3])
        ctx.told, ctx.chunks = told, rows.chunks
        ctx.set_materialize_grads(False)
        return y, final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, w, v, g, initial, inverse, e, states, cu, before, of = ctx.saved_tensors
        (R, H, K), V, n = q.shape, v.shape[2], len(cu) - 1
        dy = v.new_zeros(R, H, V) if grads[0] is None else flat(grads[0])
        dfinal = states.new_zeros(n, H, K, V) if grads[1] is None else grads[1].contiguous()
        dq, dk, dw, dv = (
            torch.empty(z.shape, dtype=z.dtype, device=z.device) for z in (q, q if k is None else k, w, v)
        )
        dinitial, dstates = torch.empty_like(dfinal), torch.empty_like(states)
        parts = -(-K // last(K)["BLOCK_K"])
        dg = dfinal.new_empty((1,) if g is None else (R, H, parts) if g.dim() == 2 else g.shape)
        given = {"q": q, "k": w if k is None else k, "w": w, "e": e, "g": w if g is None else g, "dy": dy}
        places = {"cu_ptr": cu, "before_ptr": before}
        run(
            delta_backward.walk_back, n * H * -(-V // values(K)), ctx.told, given, places, inverse_ptr=inverse,
            dfinal_ptr=dfinal, dv_ptr=dv, dstates_ptr=dstates, dinitial_ptr=dinitial,
        )  # fmt: skip
        run(
            delta_backward.chunks, ctx.chunks * H * parts, ctx.told | last(K), given,
            places | {"of_ptr": of}, states_ptr=states, dv_ptr=dv, dstates_ptr=dstates, dq_ptr=dq, dk_ptr=dk,
            dw_ptr=dw, dg_ptr=dg,
        )  # fmt: skip
        dg = dg.sum(dim=2) if g is not None and g.dim() == 2 else dg
        return (
            dq, None if k is None else dk, dw, dv, None if g is None else dg.to(g.dtype),
            None if initial is None else dinitial, None, None,
        )  # fmt: skip


def run(kernel: Any, programs: int, told: dict[str, Any], given: dict[str, Tensor], places: dict[str, Tensor],
        **more: Tensor) -> None:  # fmt: skip
    """One launch, told of each input what the kernel asks for: pointer, steps from row to row and from head to head."""
    found = {**told, **places, **more, "num_warps": warps(kernel, told["K"]), "num_stages": 1}
    for name, z in given.items():
        found |= {f"{name}_ptr": z, f"{name}_t": z.stride(0), f"{name}_h": z.stride(1)}
    asked = {*kernel.arg_names, "num_warps", "num_stages"}
    if interpreted():
        kernel[(programs,)](**{name: value for name, value in found.items() if name in asked})
        return
    with torch.cuda.device(given["q"].device):
        kernel[(programs,)](**{name: value for name, value in found.items() if name in asked})


def precision(q: Tensor) -> str:
    """Products of float32 are exact where torch's are; tf32 keeps all that half precision and bfloat16 hold."""
    exact = q.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact else "tf32"


def flat(x: Tensor) -> Tensor:
    """Rows whose columns are adjacent."""
    return x if x.stride(-1) == 1 else x.contiguous()
