"""What decays leave of earlier writes inside the chunks of a scan. Axis letters: see `impls.base`; N chunks of C."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Decays(NamedTuple):
    """What decays leave inside chunks: K = 1 for one number a step, L = 1 unless there is one a channel."""

    mask: Tensor  # [C,C] or [B,H,N,C,C]: 1 or exp(g_{s+1} + ... + g_t) for s <= t, else 0; by level [L,C,C]
    level: Tensor | None  # [B,H,N,L,C,K], see `by_halves`
    from_start: Tensor  # [B,H,N,C,K] exp(g_1 + ... + g_t)
    to_end: Tensor  # [B,H,N,C,K] exp(g_{t+1} + ... + g_C)
    whole: Tensor  # [B,H,N,K,1] exp(g_1 + ... + g_C)


def decays(log_decay: Tensor | None, T: int, like: Tensor, size: int) -> Decays:
    """Exponentials of sums of g over ranges of steps.

    Each sum is a product with a matrix of 0 and 1. A difference of two cumulative sums would lose the small terms
    that follow a reset, and exp(-sum) would overflow; here every exponent is a sum of terms <= 0.
    """
    lower_TS = like.new_ones(size, size).tril()
    if log_decay is None:
        one = like.new_ones(1, 1, 1, 1, 1)
        return Decays(lower_TS, None, one, one, one)
    g_BHTK = log_decay.unsqueeze(-1) if log_decay.dim() == 3 else log_decay
    g = chunked(g_BHTK.to(like.dtype).expand(*g_BHTK.shape[:2], T, -1), size)
    if g.shape[-1] > 1:
        range_LTS, mask = by_halves(size, like)
        level = (range_LTS.flatten(0, 1) @ g).exp().unflatten(3, range_LTS.shape[:2])
    else:
        mask, level = (lower_TS @ (g * lower_TS.tril(-1))).exp().tril(), None
    from_start = (lower_TS @ g).exp()
    return Decays(mask, level, from_start, ((1 - lower_TS) @ g).exp(), from_start[..., -1:, :].mT)


def by_halves(size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """(range_LTS, mask_LTS) that give q_t . exp(g_{s+1} + ... + g_t) k_s for s < t as a sum over levels L.

    Level l cuts the chunk into blocks of 2^(l+1) steps, and mask[l] is 1 where t is in the second half of a block and s
    in its first: each pair s < t meets there once. Both are brought to the block's middle m, the one by
    exp(g_{m+1} + ... + g_t), the other by exp(g_{s+1} + ... + g_m): the sums that range[l] takes.
    """
    t = torch.arange(size, device=like.device)
    half_L1 = 2 ** torch.arange(size.bit_length() - 1, device=like.device)[:, None]
    middle_LT = t // (2 * half_L1) * 2 * half_L1 + half_L1 - 1  # last step of the first half
    late_LT, low_LT, high_LT = t > middle_LT, torch.minimum(t, middle_LT), torch.maximum(t, middle_LT)
    range_LTS = (t > low_LT[..., None]) & (t <= high_LT[..., None])
    mask_LTS = (middle_LT[..., None] == middle_LT[:, None]) & late_LT[..., None] & ~late_LT[:, None]
    return range_LTS.to(like.dtype), mask_LTS.to(like.dtype)


def pairs(q: Tensor, k: Tensor, inside: Decays) -> Tensor:
    """A_BHNTS = q_t . exp(g_{s+1} + ... + g_t) k_s for s <= t, else 0."""
    if inside.level is None:
        return q @ k.mT * inside.mask
    before = ((q.unsqueeze(3) * inside.level) @ (k.unsqueeze(3) * inside.level).mT * inside.mask).sum(dim=3)
    return before + torch.diag_embed((q * k).sum(dim=-1))


def chunked(x_BHTK: Tensor, size: int) -> Tensor:
    """[B,H,T,K] -> [B,H,N,C,K] without gaps, which each product would close again by a copy; the last chunk is filled
    up with zeros, which neither write nor decay."""
    missing = -x_BHTK.shape[2] % size
    whole_BHTK = nn.functional.pad(x_BHTK, (0, 0, 0, missing)) if missing else x_BHTK
    return whole_BHTK.contiguous().unflatten(2, (-1, size))
