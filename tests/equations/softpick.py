"""Softpick, arXiv:2504.20966, one number at a time. Nothing is subtracted from the scores, so eps grows instead."""

from itertools import product
from math import exp, expm1

import torch

from tests.equations import K, heads, joined, rotated


def cases(draw):
    return {"scaled": {"scale": K**-0.5, "eps": 1e-8}, "steep": {"scale": 10.0, "eps": 1e-3}}


def attend(q, k, v, scale, eps):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        score = [scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)]
        e = [expm1(x) for x in score]
        for s in range(t + 1):
            y[b, h, t] += max(e[s], 0) / (sum(map(abs, e)) + eps * exp(max(score))) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    if mixer.rope:
        q, k = rotated(q), rotated(k)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, mixer.eps)))
