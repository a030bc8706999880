"""Causal scaled dot-product attention, arXiv:1706.03762 eq. 1, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import K, heads, joined, rotated


def cases(draw):
    return {"scaled": {"scale": K**-0.5}, "steep": {"scale": 20.0}}


def attend(q, k, v, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        weight = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        for s in range(t + 1):
            y[b, h, t] += weight[s] / sum(weight) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    if mixer.rope:
        q, k = rotated(q), rotated(k)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5)))
