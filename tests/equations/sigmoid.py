"""Sigmoid attention, arXiv:2409.04431, one number at a time; the layer with LayerNorm on q and k."""

from itertools import product
from math import exp, log

import torch

from tests.equations import K, T, heads, joined, rotated


def cases(draw):
    return {"scaled": {"scale": K**-0.5, "bias": -log(T)}, "no_bias": {"scale": 1.0, "bias": 0.0}}


def attend(q, k, v, scale, bias):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        for s in range(t + 1):
            y[b, h, t] += v[b, h, s] / (1 + exp(-scale * float(q[b, h, t] @ k[b, h, s]) - bias))
    return y


def normed(x, layer):
    """Mean 0 and variance 1 over a head's channels, then the layer's weight and bias."""
    if not hasattr(layer, "weight"):
        return x
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * layer.weight + layer.bias


def forward(mixer, x_TD):
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    q, k = normed(q, mixer.q_norm), normed(k, mixer.k_norm)
    if mixer.rope:
        q, k = rotated(q), rotated(k)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, mixer.bias)))
