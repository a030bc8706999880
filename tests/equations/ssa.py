"""Softmax of tau_t s_ts, tau_t = 1 + exp(-exp(beta)) ln(t + 1) + token part; arXiv:2411.12892, one number at a time."""

from itertools import product
from math import exp, log

import torch


def attend(q, k, v, pos_beta, scale, tau_token=None):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        tau = 1 + exp(-exp(float(pos_beta))) * log(t + 1)
        if tau_token is not None:
            tau += float(tau_token[b, h, t])
        e = [exp(tau * scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        for s in range(t + 1):
            y[b, h, t] += e[s] / sum(e) * v[b, h, s]
    return y
