"""The least and the greatest score of each row, 0 counted in, with gradients to the scores that they are."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from impls.kernels.score_launch import Tiles, interpreted, launch, rows_last, rowwise, shapes, strides
from impls.kernels.score_maps import load, store

TILES = Tiles(usual=((128, 64, 4, 3), (64, 64, 4, 3)), wide=((64, 32, 4, 2), (32, 32, 4, 2)))


@triton.jit
def narrow(low, high, low_at, high_at, q, k_ptr, k_s, first, last, sees, S, scale, K: tl.constexpr,
           BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """The keys first, …, last - 1, N at a time; masked scores count as 0."""
    for start in range(first, last, N):
        keys = start + tl.arange(0, N)
        k = load(k_ptr, keys, k_s, S, K, BLOCK_K, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        if MASKED:
            s = tl.where(keys[None, :] <= sees[:, None], s, 0.0)
        least, at = tl.min(s, 1, return_indices=True)
        low_at = tl.where(least < low, start + at, low_at)
        low = tl.minimum(low, least)
        most, at = tl.max(s, 1, return_indices=True)
        high_at = tl.where(most > high, start + at, high_at)
        high = tl.maximum(high, most)
    return low, high, low_at, high_at


@triton.jit(do_not_specialize=["T", "S", "bucket"])
def forward(
    q_ptr, k_ptr, ends_ptr, at_ptr, q_b, q_h, q_t, k_b, k_h, k_s, T, S, bucket, rows_in_all, scale,
    H: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """ends [2,B,H,T], the least and greatest score, and at [2,B,H,T], their keys; -1 where it is the 0."""
    blocks = tl.cdiv(T, M)
    pid = tl.program_id(0)
    block = blocks - 1 - pid % blocks
    b = (pid // blocks // H).to(tl.int64)
    h = (pid // blocks % H).to(tl.int64)
    k_ptr += b * k_b + (h // GROUP) * k_h
    rows = block * M + tl.arange(0, M)
    sees = rows + (S - T)
    q = load(q_ptr + b * q_b + h * q_h, rows, q_t, T, K, BLOCK_K, True)
    low = tl.zeros([M], tl.float32)
    high = tl.zeros([M], tl.float32)
    low_at = tl.zeros([M], tl.int32) - 1
    high_at = tl.zeros([M], tl.int32) - 1
    middle = tl.maximum(block * M + S - T + 1, 0) // N * N
    end = tl.minimum(block * M + M + S - T, S)
    low, high, low_at, high_at = narrow(
        low, high, low_at, high_at, q, k_ptr, k_s, 0, middle, sees, S, scale, K, BLOCK_K, PRECISION, N, False
    )
    low, high, low_at, high_at = narrow(
        low, high, low_at, high_at, q, k_ptr, k_s, middle, end, sees, S, scale, K, BLOCK_K, PRECISION, N, True
    )
    row_at = (b * H + h) * T + rows
    tl.store(ends_ptr + row_at, low, mask=rows < T)
    tl.store(ends_ptr + rows_in_all + row_at, high, mask=rows < T)
    tl.store(at_ptr + row_at, low_at, mask=rows < T)
    tl.store(at_ptr + rows_in_all + row_at, high_at, mask=rows < T)


@triton.jit(do_not_specialize=["T", "S", "bucket"])
def keys(
    q_ptr, dends_ptr, at_ptr, dk_ptr, q_b, q_h, q_t, T, S, bucket, rows_in_all, scale,
    H: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """dk [B,S,H/GROUP,K]: each key gathers from the rows whose least or greatest score it made, in a fixed order."""
    blocks = tl.cdiv(S, N)
    SHARED: tl.constexpr = H // GROUP
    pid = tl.program_id(0)
    first_key = pid % blocks * N
    b = (pid // blocks // SHARED).to(tl.int64)
    h = (pid // blocks % SHARED).to(tl.int64)
    cols = first_key + tl.arange(0, N)
    dk = tl.zeros([N, BLOCK_K], tl.float32)
    first = tl.maximum(first_key - (S - T), 0) // M * M
    for member in range(GROUP):
        head = h * GROUP + member
        for start in range(first, T, M):
            rows = start + tl.arange(0, M)
            q = load(q_ptr + b * q_b + head * q_h, rows, q_t, T, K, BLOCK_K, True)
            row_at = (b * H + head) * T + rows
            g = tl.zeros([N, M], tl.float32)
            for end in tl.static_range(2):
                slope = tl.load(dends_ptr + end * rows_in_all + row_at, mask=rows < T, other=0.0)
                at = tl.load(at_ptr + end * rows_in_all + row_at, mask=rows < T, other=-1)
                g += tl.where(at[None, :] == cols[:, None], slope[None, :], 0.0)
            dk = tl.dot(g.to(q.dtype), q, dk, input_precision=PRECISION)
    store(dk_ptr + (b * S * SHARED + h) * K, dk * scale, cols, SHARED * K, S, K, BLOCK_K)


class Ends(torch.autograd.Function):
    """ends [2,B,H,T] of q and k, float32."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, scale: float) -> Tensor:
        B, H, T, _ = q.shape
        ends, at = q.new_empty(2, B, H, T, dtype=torch.float32), q.new_empty(2, B, H, T, dtype=torch.int32)
        told = {name: size for name, size in shapes(q, k, k).items() if name not in ("V", "BLOCK_V")}
        ctx.told = told | {"rows_in_all": B * H * T, "scale": scale}
        launch(
            forward, TILES, "M", B * H, T,
            q_ptr=q, k_ptr=k, ends_ptr=ends, at_ptr=at, **strides(q=q, k=k), **ctx.told,
        )  # fmt: skip
        ctx.save_for_backward(q, k, at)
        return ends

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dends: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, at = ctx.saved_tensors
        (B, H, _, K), (_, shared, S, _) = q.shape, k.shape
        dends = dends.contiguous()
        dk = rows_last(q, shared, S, K)
        launch(
            keys, TILES, "N", B * shared, S,
            q_ptr=q, dends_ptr=dends, at_ptr=at, dk_ptr=dk, **strides(q=q), **ctx.told,
        )  # fmt: skip
        by_head = k.unsqueeze(2).expand(B, shared, H // shared, S, K).flatten(1, 2)
        dq = sum(
            (slope * (where >= 0))[..., None] * by_head.take_along_dim(where.clamp(min=0).long()[..., None], dim=2)
            for slope, where in zip(dends, at, strict=True)
        )
        return (dq * ctx.told["scale"]).to(q.dtype), dk, None


def ends(q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """(lo_BHT, hi_BHT) = (min(0, least score), max(0, greatest score)) of the keys that each row sees."""
    dtype = torch.float32 if interpreted() else q.dtype
    low_BHT, high_BHT = Ends.apply(rowwise(q.to(dtype)), rowwise(k.to(dtype)), float(scale))
    return low_BHT, high_BHT
