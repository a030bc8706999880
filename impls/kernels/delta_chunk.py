"""One chunkwise kernel family for recurrences over a state S [K,V],

    S_t = diag(exp(g_t)) S_{t-1} + w_t (v_t - (diag(exp(g_t)) S_{t-1})^T k_t)^T,   y_t = S_t^T q_t,

where the part in k, the delta rule, and g, one number a step or one a channel, may be absent: linear attention, RetNet,
Mamba-2 (g a step), GLA (g a channel), DeltaNet (w = beta k), Gated DeltaNet (both), and every mechanism whose state
comes from `ops.decay_scan` or `ops.delta_scan`, which call `scan` for CUDA tensors: HOLA's and VLA's states among them.

Two kernels forward (the inverses of all chunks at once, then a walk along the chunks of each sequence, head and block
of values), two backward (the walk back, then all chunks at once). State, sums and what lies between kernels are
float32; kept for the backward pass are the states as chunks begin, and e. Documents packed into one row are walked
apart. No sum is made by several programs at once, so equal inputs give equal bits.

Stays with torch: float64, widths above 256, `commit` (writes that later chunks do not see), the second-order sums of
Based and 2Mamba, the systems that Mesa, local linear attention and VLA solve, whose results VLA hands to `scan`.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor


def scan(
    q_BHTK: Tensor,
    k_BHTK: Tensor | None,
    v_BHTV: Tensor,
    write_BHTK: Tensor,
    log_decay: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    lengths: list[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, S_T); no delta rule without k. `log_decay` as in `ops.decay_scan`; y is of the dtype of v, and what is
    read of the widest one of the four, so that none loses bits. Imports Triton.

    With `lengths`, B is 1 and its row holds documents of these lengths in turn; S_T and the state before are then
    [n,H,K,V], one a document. Raises ValueError when lengths do not add up to T.
    """
    from impls.kernels import delta_apply
    from impls.kernels.score_launch import interpreted

    (B, H, T, _), dtype = q_BHTK.shape, v_BHTV.dtype
    if lengths is not None and (B != 1 or sum(lengths) != T or min(lengths) < 1):
        raise ValueError(f"documents of {lengths} tokens do not fill {B} rows of {T}")
    g = None
    if log_decay is not None:
        wide = log_decay.unsqueeze(-1) if log_decay.dim() == 3 else log_decay
        g = rows(wide.float().expand(B, H, T, -1))
        g = g[..., 0] if log_decay.dim() == 3 else g
    given = [z.dtype for z in (q_BHTK, k_BHTK, v_BHTV, write_BHTK) if z is not None]
    kind = torch.float32 if interpreted() else reduce(torch.promote_types, given)
    q, w, v = (rows(z.to(kind)) for z in (q_BHTK, write_BHTK, v_BHTV))
    k = None if k_BHTK is None else rows(k_BHTK.to(kind))
    size = delta_apply.chunk(q.shape[-1], 0 if g is None else g.dim() - 1)
    where = delta_apply.rows_of(B, T, lengths, size, q.device)
    initial = None if state_BHKV is None else state_BHKV.float().contiguous()
    y, final = delta_apply.DeltaChunk.apply(q, k, w, v, g, initial, where, size)
    return y.unflatten(0, (B, T)).transpose(1, 2).to(dtype), final


def rows(x_BHTK: Tensor) -> Tensor:
    """[B,H,T,K] seen as [B·T,H,K], without a copy where heads lie inside a row or share one; columns are adjacent."""
    x_BTHK = x_BHTK.transpose(1, 2)
    if x_BTHK.stride(0) != x_BTHK.shape[1] * x_BTHK.stride(1) or x_BTHK.stride(3) != 1:
        x_BTHK = x_BTHK.contiguous()
    return x_BTHK.flatten(0, 1)
