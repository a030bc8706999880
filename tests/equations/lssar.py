"""LSSA and LSSAR, the row maximum left in; arXiv:2501.13428, one number at a time."""

from itertools import product
from math import exp, log, log1p, sqrt

import torch

from tests.equations import joined
from tests.equations._scores import projected


def cases(draw):
    return {"lssa": {"p": None}, "lssar_3": {"p": 3.0}, "lssar_15": {"p": 15.0}}


def attend(q, k, v, p):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        n = t + 1
        a = []
        for s in range(n):
            lengths = sqrt(float(q[b, h, t] @ q[b, h, t])) * sqrt(float(k[b, h, s] @ k[b, h, s]))
            cosine = float(q[b, h, t] @ k[b, h, s]) / lengths
            a.append(log1p(exp(log(q.shape[-1]) * log(n) * cosine)))
        a = [x / sum(a) for x in a]
        if p is not None:
            offset = 0 if t <= 2 else 1
            r = [max(n * x - offset, 0) ** p for x in a]
            a = [x / sum(r) for x in r]
        for s in range(n):
            y[b, h, t] += a[s] * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, mixer.p)))
