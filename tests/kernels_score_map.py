"""Each kernel of `score_map` beside its torch form in float64: a process of its own, because Triton reads the switch of
its interpreter when it is imported. Prints a line of JSON a case: its name, {tensor: [error, that of the torch form in
the precision of the kernel]}.

    TRITON_INTERPRET=1 python -m tests.kernels_score_map [form …]

An error is the largest difference over the largest number of the tensor that is held against, or over 0.1.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from impls.kernels import score_apply, score_launch, score_map

LENGTHS = ((1, 1), (2, 2), (15, 15), (16, 16), (17, 17), (33, 33), (65, 65), (1, 33), (5, 38))  # queries, keys
TILES = ({"M": 32, "N": 16}, {"M": 16, "N": 32})
WIDTHS = ((16, 16), (24, 40), (5, 3))
Make = Callable[[int, int, int, int, int], dict[str, Any]]  # arguments from B, H, T, K, V


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


FORMS: dict[str, tuple[str, Make]] = {
    "softmax": ("softmax", lambda B, H, T, K, V: {"scale": K**-0.5}),
    "plus one": ("softmax_plus_one", lambda B, H, T, K, V: {"scale": K**-0.5}),
    "sink logit": ("sink_bias", lambda B, H, T, K, V: {"scale": K**-0.5, "sink_logit": drawn(H)}),
    "sink key": ("sink_bias", lambda B, H, T, K, V: {"scale": K**-0.5, "sink_key": drawn(H, K)}),
    "sink key, value": (
        "sink_bias",
        lambda B, H, T, K, V: {"scale": K**-0.5, "sink_key": drawn(H, K), "sink_value": drawn(H, V)},
    ),
    "selective": ("ssa", lambda B, H, T, K, V: {"scale": K**-0.5, "pos_beta": torch.tensor(0.3).double()}),
    "selective, token": (
        "ssa",
        lambda B, H, T, K, V: {"scale": K**-0.5, "pos_beta": torch.tensor(0.3).double(), "tau_token": drawn(B, H, T)},
    ),
    "affine": (
        "affine_scaled",
        lambda B, H, T, K, V: {
            "scale": K**-0.5,
            "alpha": drawn(B, H, T).sigmoid(),
            "alpha_ma": drawn(H).sigmoid().detach(),
            "n_mode": "visible",
        },
    ),
    "sigmoid": ("sigmoid", lambda B, H, T, K, V: {"scale": K**-0.5, "bias": -3.0}),
    "relu": ("relu_attention", lambda B, H, T, K, V: {"scale": K**-0.5, "normalizer": "none"}),
    "relu, index": ("relu_attention", lambda B, H, T, K, V: {"scale": 1.0, "normalizer": "max(i,1)"}),
    "softpick": ("softpick", lambda B, H, T, K, V: {"scale": K**-0.5, "eps": 1e-8}),
    "cog": ("cog_attention", lambda B, H, T, K, V: {"scale": K**-0.5}),
    "self-adjust v1": ("sa_softmax", lambda B, H, T, K, V: {"scale": K**-0.5, "variant": "v1", "eps": 0.0}),
    "self-adjust v2": ("sa_softmax", lambda B, H, T, K, V: {"scale": K**-0.5, "variant": "v2", "eps": 0.0}),
    "LSSA": ("lssar", lambda B, H, T, K, V: {"p": None}),
    "LSSAR": ("lssar", lambda B, H, T, K, V: {"p": 3.0}),
}


def compare(
    form: str, q: Tensor, k: Tensor, v: Tensor, given: dict[str, Any], dtype: torch.dtype = torch.float32
) -> dict[str, tuple[float, float]]:
    """{tensor: (error, the torch form's own)} of output and gradients; k and v may have fewer heads than q."""
    name = FORMS[form][0]
    reference = importlib.import_module(f"impls.{name}").attend.reference
    group = q.shape[1] // k.shape[1]

    def run(attend: Callable[..., Tensor], kind: torch.dtype, repeats: int) -> dict[str, Tensor]:
        inputs = {"q": q, "k": k, "v": v} | given
        inputs = {n: z.to(kind).requires_grad_() if isinstance(z, Tensor) else z for n, z in inputs.items()}
        moving = {n: z for n, z in inputs.items() if isinstance(z, Tensor) and n != "alpha_ma"}
        whole = inputs | {n: inputs[n].repeat_interleave(repeats, 1) for n in ("k", "v")}
        y = attend(**whole)
        assert y.dtype == kind
        torch.manual_seed(1)
        grads = torch.autograd.grad((y * drawn(*y.shape).to(kind)).sum(), list(moving.values()))
        return {"y": y.detach()} | dict(zip(moving, grads, strict=True))

    want, own = (run(reference, kind, group) for kind in (torch.float64, dtype))
    got = run(getattr(score_map, name), dtype, 1)
    return {n: (difference(got[n].double(), want[n]), difference(own[n].double(), want[n])) for n in want}


def difference(got: Tensor, want: Tensor) -> float:
    """NaN where either has one."""
    return ((got - want).abs().max() / want.abs().max().clamp(min=0.1)).item()


def inputs(H: int, G: int, T: int, S: int, K: int, V: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of H and G heads as a model hands them over: views whose heads lie inside a row."""
    q, k, v = (drawn(1, n, h, d).transpose(1, 2) for n, h, d in ((T, H, K), (S, G, K), (S, G, V)))
    return q, k, v


def cases(forms: list[str]) -> Iterator[tuple[str, dict[str, tuple[float, float]]]]:
    """Lengths about the edges of tiles, then what is special. Tiles are higher than wide, then wider than high."""
    for number, form in enumerate(forms):
        make = FORMS[form][1]
        for turn, (T, S) in enumerate(LENGTHS):
            score_launch.SMALL = TILES[turn % 2]
            K, V = WIDTHS[(number + turn) % 3]
            q, k, v = inputs(1, 1, T, S, K, V)
            yield f"{form}: {T} of {S}, {K} and {V} wide", compare(form, q, k, v, make(1, 1, T, K, V))
        q, k, v = inputs(4, 2, 18, 18, 16, 24)
        yield f"{form}: shared heads", compare(form, q, k, v, make(1, 4, 18, 16, 24))
        q, k, v = inputs(1, 1, 20, 20, 16, 16)
        given = make(1, 1, 20, 16, 16)
        yield f"{form}: bfloat16", compare(form, q.bfloat16(), k.bfloat16(), v.bfloat16(), given, torch.bfloat16)
        largest = (q @ k.mT).abs().max() * given.get("scale", 1.0)
        yield f"{form}: scores to 60", compare(form, q * 60 / largest, k, v, given)
        if form != "self-adjust v2":  # among equal scores torch shares the gradient
            yield f"{form}: no query", compare(form, q * 0, k, v, given)
        if "scale" in given:
            yield f"{form}: negative scores", compare(form, -q.abs() - 0.1, k.abs() + 0.1, v, given)


def blind() -> float:
    """The largest number in rows that see no key, four queries of the first being before the first of three keys."""
    q, k, v = (z.float() for z in inputs(1, 1, 7, 3, 16, 16))
    return max(score_map.softmax(q, k, v, 0.25)[:, :, :4].abs().max().item(), 0.0)


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    score_apply.SHORTEST = 8  # so that the 33 keys of a single query are cut in four
    warnings.simplefilter("ignore")  # numpy's, of overflow that the kernels allow for
    for case, errors in cases(sys.argv[1:] or list(FORMS)):
        print(json.dumps([case, errors]), flush=True)
    print(json.dumps(["softmax: rows without a key", {"y": (blind(), 0.0)}]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
