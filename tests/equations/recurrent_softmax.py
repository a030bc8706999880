"""The variants of arXiv:2507.23632 as they are written, one number at a time."""

from itertools import product
from math import exp, sqrt

import torch

from tests.equations import B, H, K, T, V, joined
from tests.equations._scores import projected


def cases(draw):
    out_gate, in_gate = torch.randn(2, B, H, T, generator=draw, dtype=torch.float64)
    weight, bias = torch.randn(2, V, generator=draw, dtype=torch.float64)
    base = {"scale": K**-0.5, "clamp": 0.5}
    layer_norm = {"norm_eps": 1e-2, "norm_weight": weight, "norm_bias": bias}
    further = {
        "div_n": {},
        "clamp_denom": {"scale": 3.0},
        "gate": {"out_gate_logit": out_gate},
        "div_n_gate": {"out_gate_logit": out_gate},
        "layernorm": layer_norm,
        "rmsnorm": {"norm_eps": 1e-2, "norm_weight": weight},
        "div_n_rmsnorm": {"norm_eps": 1e-2, "norm_weight": weight, "clamp": None},
        "l2norm": {"norm_eps": 1e-3},
        "l2norm_noclamp": {"norm_eps": 0.5, "clamp": None},
        "in_out_gate_layernorm": {"out_gate_logit": out_gate, "in_gate_logit": in_gate, "clamp": None, **layer_norm},
    }
    return {variant: {**base, "variant": variant, **more} for variant, more in further.items()}


def sigmoid(x):
    return 1 / (1 + exp(-float(x)))


def attend(
    q,
    k,
    v,
    scale,
    variant,
    clamp,
    norm_eps=None,
    norm_weight=None,
    norm_bias=None,
    out_gate_logit=None,
    in_gate_logit=None,
):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        total, u = 0.0, [0.0] * v.shape[-1]
        for s in range(t + 1):
            score = scale * float(q[b, h, t] @ k[b, h, s])
            e = exp(score if clamp is None else min(score, clamp))
            total += e
            gate = sigmoid(in_gate_logit[b, h, s]) if in_gate_logit is not None else 1.0
            u = [x + e * gate * float(z) for x, z in zip(u, v[b, h, s], strict=True)]
        if variant == "clamp_denom":
            u = [x / max(total, 1) for x in u]
        if variant.startswith("div_n") or variant.endswith(("rmsnorm", "layernorm")):
            u = [x / (t + 1) for x in u]
        if out_gate_logit is not None:
            u = [x * sigmoid(out_gate_logit[b, h, t]) for x in u]
        y[b, h, t] = torch.tensor(normed(u, variant, norm_eps, norm_weight, norm_bias), dtype=v.dtype)
    return y


def normed(u, variant, eps, weight, bias):
    if variant.startswith("l2norm"):
        return [x / max(sqrt(sum(z * z for z in u)), eps) for x in u]
    if not variant.endswith(("rmsnorm", "layernorm")):
        return u
    mean = sum(u) / len(u) if variant.endswith("layernorm") else 0.0
    size = sqrt(sum((x - mean) ** 2 for x in u) / len(u) + eps)
    return [
        (x - mean) / size * (1.0 if weight is None else float(weight[i])) + (0.0 if bias is None else float(bias[i]))
        for i, x in enumerate(u)
    ]


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    gates = [None if gate is None else gate(x_TD).T[None] for gate in (mixer.out_gate, mixer.in_gate)]
    norm = (mixer.norm_eps, mixer.norm_weight, mixer.norm_bias)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, mixer.variant, mixer.clamp, *norm, *gates)))
