"""Pure functions that three or more mechanisms share. Axis letters: see `impls.base`."""

from __future__ import annotations

from collections.abc import Callable

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


def decay_scan(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTV: Tensor,
    log_decay: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, S_T) of S_t = exp(g_t) S_{t-1} + k_t v_t^T, y_t = S_t^T q_t, a chunk at a time.

    `log_decay` g <= 0 is absent, one number a step ([B,H,T], or 1 where it is shared) or one a channel ([B,H,T,K]).
    S is float32 or wider; the result depends on `chunk` (a power of two) by rounding only.
    """
    with torch.autocast(q_BHTK.device.type, enabled=False):
        size = min(chunk, 1 << (q_BHTK.shape[2] - 1).bit_length())
        q, k, v = (chunked(wide(z), size) for z in (q_BHTK, k_BHTK, v_BHTV))
        total = cumulative(log_decay, q_BHTK.shape[2], size)
        per_channel = total is not None and total.shape[-1] > 1
        y = channel_decay_within(q, k, v, total) if per_channel else decayed_pairs(q, k, total) @ v
        starts, state = carry(kept(total, k), to_end(k, total).mT @ v, state_BHKV, torch.mul)
        y = y + from_start(q, total) @ starts
        return y.flatten(2, 3)[:, :, : q_BHTK.shape[2]].to(v_BHTV.dtype), state


def delta_scan(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTV: Tensor,
    write_BHTK: Tensor,
    log_decay: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, S_T) of S'_t = exp(g_t) S_{t-1}, S_t = S'_t + w_t (v_t - S'_t^T k_t)^T, y_t = S_t^T q_t.

    The delta rule has w = beta k. All errors e_t = v_t - S'_t^T k_t of a chunk solve one unit triangular system
    (arXiv:2406.06484, §3): e_t + sum_{s<t} exp(g_{s+1} + … + g_t) (k_t . w_s) e_s = v_t - exp(g_1 + … + g_t) S_0^T k_t.
    Arguments and precision as in `decay_scan`; the decay is one number a step.
    """
    with torch.autocast(q_BHTK.device.type, enabled=False):
        size = min(chunk, 1 << (q_BHTK.shape[2] - 1).bit_length())
        q, k, v, write = (chunked(wide(z), size) for z in (q_BHTK, k_BHTK, v_BHTV, write_BHTK))
        total = cumulative(log_decay, q_BHTK.shape[2], size)
        sides = torch.cat([v, from_start(k, total)], dim=-1)
        solved = torch.linalg.solve_triangular(decayed_pairs(k, write, total), sides, upper=False, unitriangular=True)
        e, seen = solved.split([v.shape[-1], k.shape[-1]], dim=-1)  # the errors are e - seen @ S_0
        reads, writes = decayed_pairs(q, write, total), to_end(write, total).mT
        keep = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device) * kept(total, k) - writes @ seen
        starts, state = carry(keep, writes @ e, state_BHKV, torch.matmul)
        y = reads @ e + (from_start(q, total) - reads @ seen) @ starts
        return y.flatten(2, 3)[:, :, : q_BHTK.shape[2]].to(v_BHTV.dtype), state


def wide(x: Tensor) -> Tensor:
    """x in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def chunked(x_BHTK: Tensor, size: int) -> Tensor:
    """[B,H,T,K] -> [B,H,N,C,K]; the last chunk is filled up with zeros, which neither write nor decay."""
    return nn.functional.pad(x_BHTK, (0, 0, 0, -x_BHTK.shape[2] % size)).unflatten(2, (-1, size))


def cumulative(log_decay: Tensor | None, T: int, size: int) -> Tensor | None:
    """G_BHNCK, the sum of log-decays from the chunk's start to each step; K = 1 for one number a step.

    In float64, since what is used are differences of G: after a reset, float32 would have lost the small ones.
    For the same reason a log-decay stops at -1000, where exp is 0 in both types.
    """
    if log_decay is None:
        return None
    g_BHTK = log_decay.unsqueeze(-1) if log_decay.dim() == 3 else log_decay
    g_BHTK = g_BHTK.expand(*g_BHTK.shape[:2], T, -1).double().clamp(min=-1000)
    return chunked(g_BHTK, size).cumsum(dim=3)


def exp(difference: Tensor, dtype: torch.dtype) -> Tensor:
    return difference.to(dtype).exp()


def kept(total: Tensor | None, x: Tensor) -> Tensor:
    """What a whole chunk leaves of the state, [B,H,N,K,1] of x's type."""
    return x.new_ones(1, 1, 1, 1, 1) if total is None else exp(total[..., -1:, :], x.dtype).mT


def from_start(x: Tensor, total: Tensor | None) -> Tensor:
    """x_t decayed from the chunk's start to t."""
    return x if total is None else x * exp(total, x.dtype)


def to_end(x: Tensor, total: Tensor | None) -> Tensor:
    """x_t decayed from t to the chunk's end."""
    return x if total is None else x * exp(total[..., -1:, :] - total, x.dtype)


def decayed_pairs(q: Tensor, k: Tensor, total: Tensor | None) -> Tensor:
    """(q_t . k_s) exp(G_t - G_s) for s <= t, else 0. Masked before exp: above the diagonal it would overflow."""
    if total is None:
        return (q @ k.mT).tril()
    mask = causal(q.shape[-2], k.shape[-2], q.device)
    return q @ k.mT * (total - total.mT).to(q.dtype).masked_fill(~mask, float("-inf")).exp()


def channel_decay_within(q: Tensor, k: Tensor, v: Tensor, total: Tensor) -> Tensor:
    """y_t = sum_{s<=t} (q_t . exp(G_t - G_s) k_s) v_s inside each chunk, decays per channel.

    exp(G_t) exp(-G_s) would overflow. Instead the chunk is halved again and again: each pair s < t is parted at
    exactly one middle m, s <= m < t, and both G_t - G_m and G_m - G_s are <= 0.
    """
    y = (q * k).sum(dim=-1, keepdim=True) * v
    half = 1
    while half < q.shape[3]:
        (_, q_t), (k_s, _), (v_s, _), (G_s, G_t) = (z.unflatten(3, (-1, 2, half)).unbind(4) for z in (q, k, v, total))
        G_m = G_s[..., -1:, :]
        y_t = (q_t * exp(G_t - G_m, q.dtype)) @ (k_s * exp(G_m - G_s, q.dtype)).mT @ v_s
        y = y + torch.stack([torch.zeros_like(y_t), y_t], dim=4).flatten(3, 5)
        half *= 2
    return y


def carry(keep: Tensor, write: Tensor, state: Tensor | None, apply: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """(S_BHNKV at the start of each chunk, S_BHKV at the end) of S <- apply(keep, S) + write; keep is over N too."""
    S = torch.zeros_like(write[:, :, 0]) if state is None else state.to(write.dtype)
    starts = []
    for a, b in zip(keep.expand(*keep.shape[:2], write.shape[2], -1, -1).unbind(2), write.unbind(2), strict=True):
        starts.append(S)
        S = apply(a, S) + b
    return torch.stack(starts, dim=2), S
