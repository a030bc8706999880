"""Rotary positions (RoPE, Su et al. 2021, arXiv:2104.09864). Axis letters: see `impls.base`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def rope(x_BHTK: Tensor, start: int = 0, base: float = 10_000.0) -> Tensor:
    """Rotate pairs (i, i + K/2) of x at positions start, start + 1, … (eq. 34).

    Angles are made in float32 or wider whatever the input's dtype. Raises ValueError when K is odd.
    """
    T, K = x_BHTK.shape[-2:]
    if K % 2:
        raise ValueError(f"rotary positions need an even head width, got K={K}")
    return Turn.apply(x_BHTK, *_angles(T, K, start, base, x_BHTK.dtype, x_BHTK.device))  # pyright: ignore


@lru_cache(maxsize=64)
def _angles(T: int, K: int, start: int, base: float, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos_TK and sin_TK of each angle, twice side by side; the sine is negative in the first half."""
    wide = torch.promote_types(dtype, torch.float32)
    frequency_F = base ** (-torch.arange(0, K, 2, device=device, dtype=wide) / K)
    angle_TF = torch.arange(start, start + T, device=device, dtype=wide)[:, None] * frequency_F
    cos_TF, sin_TF = angle_TF.cos().to(dtype), angle_TF.sin().to(dtype)
    return torch.cat([cos_TF, cos_TF], dim=-1), torch.cat([-sin_TF, sin_TF], dim=-1)


class Turn(torch.autograd.Function):
    """x · cos + (x with its halves exchanged) · sin, without the copies that slices and their gradients would make.

    A rotation is linear: its derivative is itself, and the transpose turns back.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x_BHTK: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        F = x_BHTK.shape[-1] // 2
        y_BHTK = torch.empty_like(x_BHTK)
        y_BHTK[..., :F], y_BHTK[..., F:] = x_BHTK[..., F:], x_BHTK[..., :F]
        return y_BHTK.mul_(sin_TK).addcmul_(x_BHTK, cos_TK)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos_TK, sin_TK = ctx.saved_tensors
        return Turn.apply(grads[0], cos_TK, -sin_TK), None, None  # pyright: ignore

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return Turn.apply(tangents[0], *ctx.saved_tensors)  # pyright: ignore
