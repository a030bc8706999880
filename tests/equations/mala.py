"""Magnitude-aware linear attention, arXiv:2507.00698, each row over the tokens so far, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import K, convolved, heads, joined


def cases(draw):
    return {"plain": {"scale": K**-0.5, "eps": 1e-6}}


def phi(x):
    return [float(c) + 1 if c > 0 else exp(c) for c in x]


def attend(q, k, v, scale, eps):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        n, read = t + 1, phi(q[b, h, t])
        dots = [sum(i * j for i, j in zip(read, phi(k[b, h, s]), strict=True)) for s in range(n)]
        z = scale / n * sum(dots)
        for s in range(n):
            y[b, h, t] += ((1 + 1 / (z + eps)) * scale / n * dots[s] - z / n) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    D, H = x_TD.shape[1], mixer.heads
    z_TX = mixer.inner(x_TD)
    q, k, v = (z_TX[:, i * D : (i + 1) * D] for i in range(3))
    y_TD = joined(attend(heads(q, H), heads(k, H), heads(v, H), (D // H) ** -0.5, mixer.eps))
    y_TD = y_TD if mixer.lepe_DW is None else y_TD + convolved(v, mixer.lepe_DW)
    return mixer.out(y_TD * z_TX[:, 3 * D :] if z_TX.shape[1] > 3 * D else y_TD)
