"""Each form of `delta_chunk` beside its recurrence in float64: a process of its own, because Triton reads the switch of
its interpreter when it is imported. Prints JSON, {case: {tensor: error}}.

    TRITON_INTERPRET=1 python -m tests.kernels_delta_chunk

An error is the largest difference over the largest number of the tensor that is held against.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from impls import delta_net, gated_delta_net, gla, linear_attention, mamba2, ops, retnet
from impls.kernels import delta_chunk
from impls.parts import phi

LENGTHS = (1, 15, 16, 17, 50)  # around the interpreter's chunks of 16
WIDTHS = ((16, 16), (24, 40), (5, 3))
Tensors = dict[str, Tensor]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def recurrence(q: Tensor, k: Tensor, v: Tensor, w: Tensor | None = None, g: Tensor | None = None,
               s: Tensor | None = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(y_BHTV, S_T) a step at a time; w is given for a delta rule."""
    S = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None]) if s is None else s
    y_BHTV = []
    for t in range(q.shape[2]):
        if g is not None:
            S = g[:, :, t].exp().reshape(*g.shape[:2], -1, 1) * S
        e = v[:, :, t] if w is None else v[:, :, t] - (k[:, :, t, None] @ S)[:, :, 0]
        S = S + (k if w is None else w)[:, :, t, :, None] * e[:, :, None]
        y_BHTV.append((q[:, :, t, None] @ S)[:, :, 0])
    return torch.stack(y_BHTV, dim=2), S


def kernel(q: Tensor, k: Tensor, v: Tensor, w: Tensor | None = None, g: Tensor | None = None,
           s: Tensor | None = None, lengths: list[int] | None = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    return delta_chunk.scan(q, None if w is None else k, v, k if w is None else w, g, s, lengths)


def inputs(B: int, H: int, T: int, K: int, V: int, delta: bool, decay: int, state: bool) -> Tensors:
    """q, k, v as a model hands them over: views whose heads lie inside a row; keys of unit length."""
    q, k, v = (drawn(B, T, H, d).transpose(1, 2) for d in (K, K, V))
    found = {"q": q, "k": ops.unit(k), "v": v}
    if delta:
        found["w"] = torch.rand(B, H, T, 1).double() * ops.unit(k)
    if decay:
        found["g"] = -2 * torch.rand(*((B, H, T) if decay == 1 else (B, H, T, K))).double()
    return found | ({"s": drawn(B, H, K, V)} if state else {})


def compare(
    reference: Callable[..., tuple[Tensor, Tensor]], given: Tensors, dtype: torch.dtype = torch.float32, **more: object
) -> dict[str, float]:
    """{tensor: error} of output and final state, and of the gradient that both send back to each input."""

    def run(function: Callable[..., tuple[Tensor, Tensor]], kind: torch.dtype, **told: object) -> Tensors:
        moving = {name: z.detach().to(kind).requires_grad_() for name, z in given.items()}
        y, S = function(**moving, **told)
        torch.manual_seed(1)
        loss = (y * drawn(*y.shape).to(y.dtype)).sum() + (S * drawn(*S.shape).to(S.dtype)).sum()
        grads = torch.autograd.grad(loss, list(moving.values()))
        return {"y": y, "S": S} | {f"d{name}": z for name, z in zip(moving, grads, strict=True)}

    want, got = run(reference, torch.float64), run(kernel, dtype, **more)
    return {name: difference(got[name].double(), want[name]) for name in want}


def difference(got: Tensor, want: Tensor) -> float:
    """NaN where either has one."""
    return ((got - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()


def packed(given: Tensors, lengths: list[int]) -> dict[str, float]:
    """A row of documents beside each of them alone."""

    def apart(s: Tensor, **rows: Tensor) -> tuple[Tensor, Tensor]:
        parts = {name: z.split(lengths, dim=2) for name, z in rows.items()}
        found = [recurrence(**{name: z[n] for name, z in parts.items()}, s=s[n : n + 1]) for n in range(len(lengths))]
        return torch.cat([y for y, _ in found], dim=2), torch.cat([S for _, S in found])

    first = given["s"]
    many = given | {"s": torch.cat([first * (n + 1) for n in range(len(lengths))])}
    return compare(apart, many, lengths=lengths)


def cases() -> Iterator[tuple[str, dict[str, float]]]:
    for number, (delta, decay) in enumerate(itertools.product((False, True), (0, 1, 2))):
        form = f"{'delta' if delta else 'sum'}, {('no decay', 'one a step', 'one a channel')[decay]}"
        for turn, T in enumerate(LENGTHS):
            K, V = WIDTHS[(number + turn) % 3]
            yield (
                f"{form}: {T}, {K} and {V} wide",
                compare(recurrence, inputs(1, 2, T, K, V, delta, decay, turn % 2 == 0)),
            )
        yield f"{form}: two rows", compare(recurrence, inputs(2, 1, 20, 16, 16, delta, decay, True))
        yield f"{form}: packed", packed(inputs(1, 2, 40, 16, 8, delta, decay, True), [1, 16, 17, 6])
        low = {name: z.bfloat16() for name, z in inputs(1, 1, 18, 16, 16, delta, decay, False).items()}
        yield f"{form}: bfloat16", compare(recurrence, low, torch.bfloat16)
        if decay:
            given = inputs(1, 1, 20, 16, 16, delta, decay, True)
            given["g"][:, :, 5] = -1e4  # forgets everything
            yield f"{form}: a reset", compare(recurrence, given)
        if delta:  # one key again and again at full strength, the worst of what is inverted
            given = inputs(1, 1, 33, 16, 16, delta, decay, True)
            given["k"] = given["w"] = given["k"][:, :, :1].expand(-1, -1, 33, -1)
            yield f"{form}: one key", compare(recurrence, given)


def mechanisms() -> Iterator[tuple[str, dict[str, float]]]:
    """`attend.reference` of each mechanism in float64, and `scan` of what its `attend` hands to the torch scan."""
    q, k, v = (drawn(1, 2, 21, 8) for _ in range(3))
    beta, g, dt = torch.rand(1, 2, 21).double(), -torch.rand(1, 2, 21).double(), torch.rand(1, 2, 21).double()
    wide, unit = -torch.rand(1, 2, 21, 8).double(), ops.unit(k)
    plain, again = phi(q), phi(k)
    found = {
        "linear_attention": (linear_attention.attend.reference(q, k, v, 1.0, 0.0, False), (plain, None, v, again)),
        "retnet": (
            retnet.attend.reference(q, k, v, 1.0),
            (q, None, v, k, retnet.log_gamma(q)),
        ),
        "gla": (gla.attend.reference(q, k, v, wide, 1.0), (q, None, v, k, wide)),
        "mamba2": (mamba2.attend.reference(q, k, v, dt, g, 1.0), (q, None, dt[..., None] * v, k, g)),
        "delta_net": (delta_net.attend.reference(q, unit, v, beta, 1.0), (q, unit, v, beta[..., None] * unit)),
        "gated_delta_net": (
            gated_delta_net.attend.reference(q, unit, v, beta, g, 1.0),
            (q, unit, v, beta[..., None] * unit, g),
        ),
    }
    for name, (want, given) in found.items():
        y, _ = delta_chunk.scan(*(z if z is None else z.float() for z in given))  # pyright: ignore[reportArgumentType]
        yield name, {"y": difference(y.double(), want)}


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # numpy's, of underflow that the kernels allow for
    json.dump(dict(cases()) | dict(mechanisms()), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
