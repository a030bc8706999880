"""The cases of `benchmarks.gpu` for `delta_chunk`: each recurrence beside its equations, and in turns with the chunked
form in torch and, where the package fla (flash-linear-attention) is installed, with its kernel."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from benchmarks.gpu_cases import HEADS_WIDTH, TOKENS, Check, Form, Race
from impls import ops
from impls.kernels import delta_chunk

EXTRA: dict[str, tuple[str, ...]] = {  # what each mechanism has beside q, k, v
    "linear_attention": (),
    "retnet": (),
    "mamba2": ("log_decay", "dt"),
    "gla": ("log_decay",),
    "delta_net": ("beta",),
    "gated_delta_net": ("beta", "log_decay"),
}
CONSTANTS: dict[str, dict[str, Any]] = {"linear_attention": {"eps": 0.0, "normalize": False}}
# by the package's documentation: [B,T,H,K] in and out, (y, state) returned
FLA = {
    "gla": ("fla.ops.gla", "chunk_gla"),
    "delta_net": ("fla.ops.delta_rule", "chunk_delta_rule"),
    "gated_delta_net": ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
}


def checks() -> Iterator[Check]:
    for name in EXTRA:
        equations = importlib.import_module(f"impls.{name}").attend.reference
        told = {"scale": 1.0} | CONSTANTS.get(name, {})
        yield Check(name, partial(drawn, name, 2, 4, 301, 64, 64), partial(ours, name), partial(equations, **told))


def races() -> Iterator[Race]:
    """GLA and Gated DeltaNet first, for which another kernel is the measure."""
    for name in ("gla", "gated_delta_net", "delta_net", "mamba2", "retnet", "linear_attention"):
        for T, K in ((4096, 64), (4096, 128), (32_768, 64)) if name in FLA else ((4096, 64),):
            B, H = TOKENS // T, HEADS_WIDTH // K
            shape = {"B": B, "H": H, "T": T, "S": T, "K": K, "V": K}
            forms: dict[str, Form] = {"kernel": partial(ours, name), "torch": partial(torch_form, name)}
            if name in FLA and importlib.util.find_spec("fla"):
                forms["fla"] = partial(fla_form, name)
            yield Race(name, shape, partial(drawn, name, B, H, T, K, K), forms, flops(name, B, H, T, K, K))


def drawn(name: str, B: int, H: int, T: int, K: int, V: int, device: str = "cuda") -> dict[str, Tensor]:
    """Views whose heads lie inside a row, in bfloat16, keys of unit length; decays in float32."""
    q, k, v = (torch.randn(B, T, H, d, device=device).transpose(1, 2) for d in (K, K, V))
    found = {"q": q * K**-0.5, "k": ops.unit(k), "v": v}
    wanted = EXTRA[name]
    found |= {extra: torch.rand(B, H, T, device=device) for extra in ("beta", "dt") if extra in wanted}
    found = {n: z.bfloat16() for n, z in found.items()}
    if "log_decay" in wanted:
        shape = (B, H, T, K) if name == "gla" else (B, H, T)
        found["log_decay"] = logsigmoid(torch.randn(shape, device=device)) / 16
    return found


def handed_over(name: str, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """What the layer gives to a scan: `write` where there is a delta rule."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if name == "linear_attention":
        phi = importlib.import_module("impls.parts").phi
        q, k = phi(q), phi(k)
    g = importlib.import_module("impls.retnet").log_gamma(q) if name == "retnet" else inputs.get("log_decay")
    write = inputs["beta"][..., None] * k if "beta" in inputs else None
    return {"q": q, "k": k, "v": inputs["dt"][..., None] * v if "dt" in inputs else v, "write": write, "g": g}


def ours(name: str, **inputs: Tensor) -> Tensor:
    z = handed_over(name, inputs)
    if z["write"] is None:
        return delta_chunk.scan(z["q"], None, z["v"], z["k"], z["g"])[0]
    return delta_chunk.scan(z["q"], z["k"], z["v"], z["write"], z["g"])[0]


def torch_form(name: str, **inputs: Tensor) -> Tensor:
    z = handed_over(name, inputs)
    with patch.dict(os.environ, {"ATTEST_KERNELS": "0"}):
        if z["write"] is None:
            return ops.decay_scan(z["q"], z["k"], z["v"], z["g"], chunk=16 if name == "gla" else 32)[0]
        return ops.delta_scan(z["q"], z["k"], z["v"], z["write"], z["g"])[0]


def fla_form(name: str, **inputs: Tensor) -> Tensor:
    module, function = FLA[name]
    chunked: Callable[..., tuple[Tensor, Any]] = getattr(importlib.import_module(module), function)
    names = {"log_decay": "g"}
    swapped = {names.get(n, n): z.transpose(1, 2) for n, z in inputs.items()}
    return chunked(**swapped, scale=1.0)[0].transpose(1, 2)


def flops(name: str, B: int, H: int, T: int, K: int, V: int, chunk: int = 32) -> float:
    """Of the forward pass by chunks of 32: within a chunk, with the state, and, for a delta rule, of its errors."""
    inside, state = 2 * T * chunk * (K + V), 4 * T * K * V
    return B * H * (inside + state) * (2.0 if "beta" in EXTRA[name] else 1.0)
