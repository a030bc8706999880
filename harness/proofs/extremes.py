"""Inputs at the ends of the numbers: outputs and gradients must stay finite in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from harness.proofs.cases import tokens
from harness.proofs.gauge import Found, Violation
from impls.base import ScoreMixer, TokenMixer

STEEP = 60.0  # a score whose exponential leaves float16, and whose square leaves float32
T = 66


def layer(mixer: TokenMixer) -> Found:
    """Zeros, equal, tiny, huge, alternating and spiked rows, and scores of ±60, leave outputs and gradients finite;
    600 tokens do not make outputs grow without end."""
    mixer = copy.deepcopy(mixer).float()
    tried = 0
    for name, extreme_BTD in inputs(mixer):
        extreme_BTD.requires_grad_()
        mixer.zero_grad()
        check(name, mixer(extreme_BTD), {"input": extreme_BTD, **dict(mixer.named_parameters())})
        tried += 1
    if isinstance(mixer, ScoreMixer):
        for name, moved in steep(mixer):
            check(name, mixer.mix(*moved), dict(zip("qkv", moved, strict=False)))
            tried += 1
    with torch.no_grad():
        y_BTD = mixer(tokens(mixer, 600, B=1))
    early, late = y_BTD[:, :100].abs().max().item(), y_BTD[:, -100:].abs().max().item()
    if not late < 1e3 * max(early, 1e-3):
        raise Violation(f"outputs grow from {early:.2g} to {late:.2g} over 600 tokens", late / early, 1e3)
    return Found(tried, None, "extremes tried")


def inputs(mixer: TokenMixer) -> Iterator[tuple[str, Tensor]]:
    x_BTD = tokens(mixer, T)
    one_BTD, sign_T1 = torch.ones_like(x_BTD), (1 - 2 * (torch.arange(float(T)) % 2))[:, None]
    spike_BTD = x_BTD.clone()
    spike_BTD[:, 5] *= 1e4
    yield "zeros", 0 * one_BTD
    yield "ones", one_BTD.clone()
    yield "tiny", 1e-6 * x_BTD
    yield "x 30", 30 * x_BTD
    yield "x 1000", 1e3 * x_BTD
    yield "equal rows of 1000", 1e3 * one_BTD
    yield "equal rows of -1000", -1e3 * one_BTD
    yield "alternating ±50", 50 * sign_T1 * one_BTD
    yield "a spike", spike_BTD


def steep(mixer: ScoreMixer) -> Iterator[tuple[str, list[Tensor]]]:
    """q, k, v and gates with scores of 60 everywhere, of -60 everywhere, and of both."""
    x_BTD = tokens(mixer, T)
    with torch.no_grad():
        q_BHTK, k_BHSK, v_BHSV = mixer.project(x_BTD)
        gates = mixer.gates(x_BTD)
    if q_BHTK.shape != k_BHSK.shape:  # it is more than a query
        return
    for name, sign_T in (("+60", torch.ones(T)), ("-60", -torch.ones(T)), ("±60", 1 - 2 * (torch.arange(T) % 2.0))):
        same_BHSK = torch.ones_like(k_BHSK)
        q_BHTK = STEEP * k_BHSK.shape[-1] ** -0.5 * same_BHSK  # q . k / sqrt(K) = 60
        moved = [q_BHTK, sign_T[:, None] * same_BHSK, v_BHSV, *gates]
        yield f"scores of {name}", [z.clone().requires_grad_() if z.is_floating_point() else z for z in moved]


def operator(attend: Callable[..., Tensor], given: dict[str, Any]) -> int:
    """`attend` at the ends of each of its inputs; the number of ends tried."""
    floats = {n: z.float() if isinstance(z, Tensor) and z.is_floating_point() else z for n, z in given.items()}
    ends = dict(_ends(floats))
    for name, changed in ends.items():
        moving = {n: z.clone().requires_grad_() if _moves(z) else z for n, z in changed.items()}
        check(name, attend(**moving), {n: z for n, z in moving.items() if _moves(z)})
    return len(ends)


def _ends(given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    unit = torch.nn.functional.normalize
    k_BHSK, scale = unit(given["k"], dim=-1), float(given.get("scale") or 1.0)
    if given["q"].shape == k_BHSK.shape:  # else q is more than a query
        for sign in (1, -1):
            q_BHTK = sign * STEEP / abs(scale) * k_BHSK[:, :, :1].expand_as(k_BHSK)
            yield f"scores up to {sign * STEEP:g}", given | {"q": q_BHTK, "k": k_BHSK}
    yield "equal rows", given | {n: unit(given[n], dim=-1)[:, :, :1].expand_as(given[n]).clone() for n in "qkv"}
    yield "zero rows", given | {n: torch.zeros_like(given[n]) for n in "qkv"}
    for name, ends in (("log_decay", (0.0, -1e4, -1e30)), ("beta", (0.0, 1.0)), ("existence", (0.0, 1.0))):
        if isinstance(given.get(name), Tensor):
            for end in ends:
                yield f"{name} of {end:g}", given | {"k": k_BHSK, name: torch.full_like(given[name], end)}


def _moves(z: Any) -> bool:
    return isinstance(z, Tensor) and z.is_floating_point()


def check(name: str, y: Tensor, moved: dict[str, Tensor]) -> None:
    """y and the gradients of its sum by what moved are finite. Raises Violation."""
    if not y.isfinite().all():
        raise Violation(f"{name}: output is not finite")
    live = {what: z for what, z in moved.items() if z.requires_grad}
    grads = torch.autograd.grad(y.sum(), list(live.values()), allow_unused=True) if y.requires_grad else ()
    for what, grad in zip(live, grads, strict=False):
        if grad is not None and not grad.isfinite().all():
            raise Violation(f"{name}: the gradient of {what} is not finite")
