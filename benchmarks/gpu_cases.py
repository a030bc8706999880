"""What `benchmarks.gpu` checks and races: kernels, their equations, their opponents, the shapes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from impls.kernels import score_map

Form = Callable[..., Tensor]
Inputs = Callable[[], dict[str, Tensor]]
TOKENS = 32_768  # of all rows of a batch together
HEADS_WIDTH = 1024  # of all heads together


@dataclass(frozen=True)
class Check:
    """Called with `inputs()` by keyword, `kernel` and `reference` are the same function."""

    kernel_name: str
    inputs: Inputs
    kernel: Form
    reference: Form


@dataclass(frozen=True)
class Race:
    """Forms called with `inputs()` by keyword, the kernel first; `flops` are those of the forward pass."""

    kernel_name: str
    shape: dict[str, int]  # B, H, T, S, K, V
    inputs: Inputs
    forms: dict[str, Form]
    flops: float
    backward: bool = True


def checks() -> Iterator[Check]:
    """All kernels."""
    from benchmarks import gpu_recurrent  # which imports this module

    for name, quantities in SCORES.items():
        attend = importlib.import_module(f"impls.{name}").attend
        yield Check(
            name,
            partial(drawn, 2, 4, 301, 301, 64, 64, name),
            partial(getattr(score_map, name), **quantities),
            partial(attend.reference, **quantities),
        )
    yield from gpu_recurrent.checks()


def races() -> Iterator[Race]:
    """The most telling first: fused softmax, its relatives, recurrences, decoding, equations."""
    from benchmarks import gpu_recurrent

    for K in (64, 128):
        for T in (4096, 8192, 16_384, 32_768):
            yield scores("softmax", TOKENS // T, T, T, K, {"sdpa": sdpa})
    for T, K in ((4096, 64), (16_384, 64), (4096, 128), (16_384, 128)):
        for name in ("sigmoid", "softpick"):
            yield scores(name, TOKENS // T, T, T, K, {"our softmax": ours("softmax", K)})
    yield from gpu_recurrent.races()
    for name in SCORES:
        yield scores(
            name, 2, 2048, 2048, 64, {"our softmax": plain(ours("softmax", 64)), "equations": equations(name, 64)}
        )
    for S in (4096, 32_768):
        yield scores("softmax", 8, 1, S, 128, {"sdpa": decoded}, backward=False)
        yield scores("softmax", 1, 1024, S, 128, {"equations": equations("softmax", 128)}, backward=False)


SCORES: dict[str, dict[str, object]] = {
    "softmax": {"scale": 0.125},
    "sigmoid": {"scale": 0.125, "bias": -6.0},
    "softpick": {"scale": 0.125, "eps": 1e-8},
    "softmax_plus_one": {"scale": 0.125},
    "sink_bias": {"scale": 0.125},
    "ssa": {"scale": 0.125},
    "affine_scaled": {"scale": 0.125, "n_mode": "visible"},
    "relu_attention": {"scale": 0.125, "normalizer": "max(i,1)"},
    "cog_attention": {"scale": 0.125},
    "sa_softmax": {"scale": 0.125, "variant": "v2", "eps": 0.0},
    "lssar": {"p": 3.0},
}


def drawn(B: int, H: int, T: int, S: int, K: int, V: int, name: str = "softmax") -> dict[str, Tensor]:
    """q, k, v in bfloat16 as a model hands them over, views whose heads lie inside a row; learned quantities."""
    q, k, v = (
        torch.randn(B, n, H, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        for n, d in ((T, K), (S, K), (S, V))
    )
    shapes = {"sink_bias": {"sink_logit": (H,)}, "ssa": {"pos_beta": ()}}
    shapes |= {"affine_scaled": {"alpha": (B, H, T), "alpha_ma": (H,)}}
    learned = {n: torch.rand(shape, device="cuda") for n, shape in shapes.get(name, {}).items()}
    return {"q": q, "k": k, "v": v} | learned


def scores(name: str, B: int, T: int, S: int, K: int, opponents: dict[str, Form], backward: bool = True) -> Race:
    H = HEADS_WIDTH // K
    pairs = T * (S - T) + T * (T + 1) / 2
    return Race(
        name,
        {"B": B, "H": H, "T": T, "S": S, "K": K, "V": K},
        partial(drawn, B, H, T, S, K, K, name),
        {"kernel": ours(name, K)} | opponents,
        4.0 * B * H * K * pairs,
        backward,
    )


def at_width(name: str, K: int) -> dict[str, object]:
    return SCORES[name] | ({"scale": K**-0.5} if "scale" in SCORES[name] else {})


def ours(name: str, K: int) -> Form:
    return partial(getattr(score_map, name), **at_width(name, K))


def plain(form: Form) -> Form:
    """A form that knows q, k and v alone, for inputs that hold more."""
    return lambda q, k, v, **learned: form(q, k, v)


def equations(name: str, K: int) -> Form:
    return partial(importlib.import_module(f"impls.{name}").attend.reference, **at_width(name, K))


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """FlashAttention where PyTorch has it for the shape and the GPU."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def decoded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query, which sees all keys."""
    return scaled_dot_product_attention(q, k, v)
