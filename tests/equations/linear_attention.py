"""Linear attention, arXiv:2006.16236 with eq. 7 in the quadratic form, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import K, heads, joined


def cases(draw):
    return {
        "normalized": {"scale": 1.0, "eps": 1e-6, "normalize": True},
        "summed": {"scale": K**-0.5, "eps": 0.0, "normalize": False},
    }


def phi(x):
    return [float(c) + 1 if c > 0 else exp(c) for c in x]


def attend(q, k, v, scale, eps, normalize):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        weight = [
            scale * sum(i * j for i, j in zip(phi(q[b, h, t]), phi(k[b, h, s]), strict=True)) for s in range(t + 1)
        ]
        for s in range(t + 1):
            y[b, h, t] += weight[s] / (sum(weight) + eps if normalize else 1) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    return mixer.out(joined(attend(q, k, v, 1.0, mixer.eps, True)))
