"""A_ts = alpha_t softmax_s + (alpha_ma - alpha_t) / N_t on visible keys; arXiv:2602.23057, one number at a time."""

from itertools import product
from math import exp

import torch


def attend(q, k, v, alpha, alpha_ma, n_mode, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        gate, average = float(alpha[b, h, t]), float(alpha_ma[h])
        keys = {"visible": t + 1, "length": q.shape[2]}.get(n_mode, n_mode)
        for s in range(t + 1):
            y[b, h, t] += (gate * e[s] / sum(e) + (average - gate) / keys) * v[b, h, s]
    return y
