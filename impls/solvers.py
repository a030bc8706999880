"""Linear systems, one at each token, of the mechanisms that regress. Axis letters: see `impls.base`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def solve(apply: Callable[[Tensor], Tensor], b: Tensor, condition: Tensor) -> Tensor:
    """x [.., K] of P x = b, P symmetric and positive definite at each place; `apply` is P x.

    By conjugate gradients down to rounding, which takes a number of steps like the root of P's condition number, or,
    where `condition`, a bound on it, is large, directly. The gradient is that of x + P^-1 (b - P x) with x and P^-1
    held fixed: one more system, and nothing of the steps is kept.
    """
    with torch.no_grad():
        x = conjugate_gradients(apply, b) if condition < 1e4 else direct(apply, b)
    if not torch.is_grad_enabled():
        return x
    rest = b - apply(x)
    if rest.requires_grad:
        rest.register_hook(lambda grad: None if grad is None else solve(apply, grad, condition))
    return x + rest


def conjugate_gradients(apply: Callable[[Tensor], Tensor], b: Tensor) -> Tensor:
    """Hestenes and Stiefel 1952, all places at once, until the last of them is solved to rounding."""
    limits = torch.finfo(b.dtype)
    size = b.abs().amax(dim=-1, keepdim=True).clamp_min(limits.tiny)
    p = b / size
    x, r, left = torch.zeros_like(b), p.clone(), p.square().sum(dim=-1, keepdim=True)
    enough = left * (10 * limits.eps) ** 2
    for _ in range(10 * b.shape[-1]):
        Pp = apply(p)
        along = left / (p * Pp).sum(dim=-1, keepdim=True).clamp_min(limits.tiny)
        x.addcmul_(along, p)
        r.addcmul_(along, Pp, value=-1)
        left, before = r.square().sum(dim=-1, keepdim=True), left
        if not (left > enough).any():
            break
        p = torch.addcmul(r, left / before.clamp_min(limits.tiny), p)
    return x * size


def direct(apply: Callable[[Tensor], Tensor], b: Tensor) -> Tensor:
    """By elimination, P's columns being made one by one."""
    one_KK = torch.eye(b.shape[-1], dtype=b.dtype, device=b.device)
    P = torch.stack([apply(one_K.expand_as(b)) for one_K in one_KK], dim=-1)
    return torch.linalg.solve_ex(P, b[..., None])[0][..., 0]
