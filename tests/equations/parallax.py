"""y_t = sum p v - sum p (r . (k - mean k)) v, the second sum a covariance; arXiv:2605.29157, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, heads, joined, rotated
from tests.equations._scores import projected


def cases(draw):
    r = torch.randn(B, H, T, K, generator=draw, dtype=torch.float64)
    return {"scaled": {"r": r, "scale": K**-0.5}, "steep": {"r": r, "scale": 5.0}}


def attend(q, r, k, v, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        p = [x / sum(e) for x in e]
        probe = [float(r[b, h, t] @ k[b, h, s]) for s in range(t + 1)]
        mean_probe = sum(w * x for w, x in zip(p, probe, strict=True))
        for s in range(t + 1):
            y[b, h, t] += (p[s] - p[s] * (probe[s] - mean_probe)) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    r = heads(mixer.probe(x_TD), mixer.heads)
    return mixer.out(joined(attend(q, rotated(r) if mixer.rope else r, k, v, q.shape[-1] ** -0.5)))
