"""Pure functions that three or more mechanisms share. Axis letters: see `impls.base`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from impls.decays import chunked, decays, pairs
from impls.kernels import delta_chunk, usable
from impls.rotary import rope as rope


def head_dim(d_model: int, heads: int) -> int:
    """Width of one head. Raises ValueError when the heads do not divide the model's width."""
    if heads < 1 or d_model % heads:
        raise ValueError(f"heads={heads} does not divide d_model={d_model}; choose a divisor")
    return d_model // heads


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Arithmetic in the precision of the inputs, on the device of x; a meta tensor knows no autocast."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def linear(d_in: int, d_out: int, *, bias: bool = False) -> nn.Linear:
    """A projection with zero bias and weights N(0, 1/(3 d_in)), the variance of torch's own start.

    At width 768 the deviation is 0.021, GPT-2's 0.02 (openai/gpt-2, src/model.py: conv1d); it grows as widths shrink,
    without which models of width 64 learn recall several times more slowly.
    """
    layer = nn.Linear(d_in, d_out, bias=bias)
    nn.init.normal_(layer.weight, std=(3 * d_in) ** -0.5)
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


def visible(T: int, S: int, like: Tensor) -> Tensor:
    """n_T1, how many keys each query (the last T of S positions) sees: t + S - T + 1, in the dtype of `like`."""
    return torch.arange(S - T + 1, S + 1, device=like.device, dtype=like.dtype)[:, None]


def scores(q_BHTK: Tensor, k_BHSK: Tensor, scale: float) -> Tensor:
    """s_BHTS = scale · q · k, not masked."""
    return torch.einsum("bhtk,bhsk->bhts", q_BHTK * scale, k_BHSK)


def hide(s_BHTS: Tensor, value: float) -> Tensor:
    """s_BHTS with 0 or -inf at the keys that a query (the last T of S positions) may not see; finite, if -inf."""
    T, S = s_BHTS.shape[-2:]
    if value == 0:
        return s_BHTS.tril(S - T)
    return s_BHTS + s_BHTS.new_full((T, S), value).triu(S - T + 1)  # on a CPU far faster than masked_fill


def causal_softmax(s_BHTS: Tensor) -> Tensor:
    """Softmax over the keys that each query (the last T of S positions) sees, in float32 or wider."""
    return hide(wide(s_BHTS), float("-inf")).softmax(dim=-1)


def expanded(d_model: int, factor: float, heads: int) -> int:
    """Width `factor · d_model` of all heads together. Raises ValueError when that is not a multiple of the heads."""
    width = factor * d_model
    if heads < 1 or width < heads or width % heads:
        raise ValueError(f"{factor} · d_model={width:g} is not a multiple of heads={heads}; change one of the three")
    return int(width)


def unit(x_BHTK: Tensor) -> Tensor:
    """x / |x|, with 1e-6 added to |x|^2 so that a zero vector stays zero and has a finite gradient."""
    return x_BHTK * (x_BHTK.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()


def head_norm(y_BHTV: Tensor, weight_V: Tensor) -> Tensor:
    """RMSNorm of each head (arXiv:1910.07467), its weight shared by the heads."""
    return nn.functional.rms_norm(y_BHTV, weight_V.shape, weight_V.to(y_BHTV.dtype), 1e-5)


def decay_scan(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTV: Tensor,
    log_decay: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    chunk: int = 32,
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, S_T) of S_t = exp(g_t) S_{t-1} + k_t v_t^T, y_t = S_t^T q_t, a chunk at a time.

    `log_decay` g, finite and <= 0, is absent, one number a step ([B,H,T], or 1 where it is shared) or one a channel
    ([B,H,T,K]: S_t = diag(exp(g_t)) S_{t-1} + ...). S is float32 or wider. `chunk`, a power of two, changes the
    result by rounding only; 16 is quickest with one decay a channel. A kernel does it where there is one for q, k, v.
    """
    if usable(q_BHTK, k_BHTK, v_BHTV):
        return delta_chunk.scan(q_BHTK, None, v_BHTV, k_BHTK, log_decay, state_BHKV)
    with no_autocast(q_BHTK):
        size = chunk_size(q_BHTK.shape[2], chunk)
        q, k, v = (chunked(wide(z), size) for z in (q_BHTK, k_BHTK, v_BHTV))
        inside = decays(log_decay, q_BHTK.shape[2], k, size)
        starts, state = carry(inside.whole, (k * inside.to_end).mT @ v, state_BHKV, torch.mul)
        y = pairs(q, k, inside) @ v + (q * inside.from_start) @ starts
        return y.flatten(2, 3)[:, :, : q_BHTK.shape[2]].to(v_BHTV.dtype), state


def delta_scan(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTV: Tensor,
    write_BHTK: Tensor,
    log_decay: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    chunk: int = 32,
    commit_BHN: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(y_BHTV, S_T) of S'_t = exp(g_t) S_{t-1}, S_t = S'_t + w_t (v_t - S'_t^T k_t)^T, y_t = S_t^T q_t.

    The delta rule writes w = beta k. The errors e_t = v_t - S'_t^T k_t of one chunk solve a unit triangular system,
    e_t + sum_{s<t} (k_t . exp(g_{s+1} + ... + g_t) w_s) e_s = v_t - (exp(g_1 + ... + g_t) k_t)^T S_0, for all chunks
    at once (the UT transform of arXiv:2406.06484 §3.2). Arguments and precision as in `decay_scan`. With `commit`,
    chunks are as long as told, and later ones see that part of what a chunk writes. A kernel does the rest where
    there is one for q, k, v.
    """
    if commit_BHN is None and usable(q_BHTK, k_BHTK, v_BHTV, write_BHTK):
        return delta_chunk.scan(q_BHTK, k_BHTK, v_BHTV, write_BHTK, log_decay, state_BHKV)
    with no_autocast(q_BHTK):
        size = chunk_size(q_BHTK.shape[2], chunk) if commit_BHN is None else chunk
        q, k, v, write = (chunked(wide(z), size) for z in (q_BHTK, k_BHTK, v_BHTV, write_BHTK))
        inside = decays(log_decay, q_BHTK.shape[2], k, size)
        sides = torch.cat([v, k * inside.from_start], dim=-1)
        solved = torch.linalg.solve_triangular(pairs(k, write, inside), sides, upper=False, unitriangular=True)
        e, seen = solved.split([v.shape[-1], k.shape[-1]], dim=-1)  # the errors are e - seen @ S_0
        stay = write * inside.to_end if commit_BHN is None else write * inside.to_end * commit_BHN[..., None, None]
        write_VT, read_TS = stay.mT, pairs(q, write, inside)
        keep = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device) * inside.whole - write_VT @ seen
        starts, state = carry(keep, write_VT @ e, state_BHKV, torch.matmul)
        y = read_TS @ e + (q * inside.from_start - read_TS @ seen) @ starts
        return y.flatten(2, 3)[:, :, : q_BHTK.shape[2]].to(v_BHTV.dtype), state


def carry(keep: Tensor, write: Tensor, state: Tensor | None, apply: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """(S_BHNKV at the start of each chunk, S_BHKV at the end) of S <- apply(keep, S) + write, chunk by chunk."""
    S = torch.zeros_like(write[:, :, 0]) if state is None else state.to(write.dtype)
    starts = []
    for a, b in zip(keep.expand(-1, -1, write.shape[2], -1, -1).unbind(2), write.unbind(2), strict=True):
        starts.append(S)
        S = apply(a, S) + b
    return torch.stack(starts, dim=2), S


def chunk_size(T: int, chunk: int) -> int:
    """The chunk's length, no longer than T needs. Raises ValueError unless `chunk` is a power of two."""
    if chunk < 1 or chunk & (chunk - 1):
        raise ValueError(f"chunk={chunk} is not a power of two")
    return min(chunk, 1 << (T - 1).bit_length())


def wide(x: Tensor) -> Tensor:
    """x in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
