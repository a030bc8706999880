"""Pure functions that three or more mechanisms share. Axis letters: see `impls.base`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def head_dim(d_model: int, heads: int) -> int:
    """Width of one head. Raises ValueError when the heads do not divide the model's width."""
    if heads < 1 or d_model % heads:
        raise ValueError(f"heads={heads} does not divide d_model={d_model}; choose a divisor")
    return d_model // heads


def linear(d_in: int, d_out: int, *, bias: bool = False) -> nn.Linear:
    """A projection with weights N(0, 0.02) and zero bias, the start of openai/gpt-2, src/model.py: conv1d."""
    layer = nn.Linear(d_in, d_out, bias=bias)
    nn.init.normal_(layer.weight, std=0.02)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """[B, T, H·K] -> [B, H, T, K]."""
    return x_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(y_BHTV: Tensor) -> Tensor:
    """[B, H, T, V] -> [B, T, H·V]."""
    return y_BHTV.transpose(1, 2).flatten(2)


def causal(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Boolean mask_TS, True where query t (the last T of S positions) may see key s: s <= t + S - T."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


def scores(q_BHTK: Tensor, k_BHSK: Tensor, scale: float) -> Tensor:
    """s_BHTS = scale · q · k, not masked."""
    return torch.einsum("bhtk,bhsk->bhts", q_BHTK * scale, k_BHSK)


def rope(x_BHTK: Tensor, start: int = 0, base: float = 10_000.0) -> Tensor:
    """Rotate pairs (i, i + K/2) of x at positions start, start + 1, … (RoPE, arXiv:2104.09864 eq. 34).

    Angles are made in float32 or wider whatever the input's dtype. Raises ValueError when K is odd.
    """
    T, K = x_BHTK.shape[-2:]
    if K % 2:
        raise ValueError(f"rotary positions need an even head width, got K={K}")
    wide = torch.promote_types(x_BHTK.dtype, torch.float32)
    frequency_F = base ** (-torch.arange(0, K, 2, device=x_BHTK.device, dtype=wide) / K)
    angle_TF = torch.arange(start, start + T, device=x_BHTK.device, dtype=wide)[:, None] * frequency_F
    cos_TF, sin_TF = angle_TF.cos().to(x_BHTK.dtype), angle_TF.sin().to(x_BHTK.dtype)
    a_BHTF, b_BHTF = x_BHTK.chunk(2, dim=-1)
    return torch.cat([a_BHTF * cos_TF - b_BHTF * sin_TF, b_BHTF * cos_TF + a_BHTF * sin_TF], dim=-1)
