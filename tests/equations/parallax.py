"""y_t = sum p v - sum p (r . (k - mean k)) v, the second sum a covariance; arXiv:2605.29157, one number at a time."""

from itertools import product
from math import exp

import torch


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
