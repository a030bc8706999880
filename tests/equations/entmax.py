"""p_s = [(alpha - 1) s_s - tau]_+^(1/(alpha - 1)) with sum 1, tau by bisection; arXiv:1909.00015, one row at a time."""

from itertools import product
from math import exp

import torch


def attend(q, k, v, scale, alpha):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        a = float(alpha[h]) if isinstance(alpha, torch.Tensor) else alpha
        p = row([scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)], a)
        for s in range(t + 1):
            y[b, h, t] += p[s] * v[b, h, s]
    return y


def row(score, alpha):
    if alpha == 1:
        return [exp(x) / sum(map(exp, score)) for x in score]

    def p(tau):
        return [max((alpha - 1) * x - tau, 0) ** (1 / (alpha - 1)) for x in score]

    below, above = (alpha - 1) * max(score) - 1, (alpha - 1) * max(score)
    for _ in range(200):
        middle = (below + above) / 2
        below, above = (middle, above) if sum(p(middle)) >= 1 else (below, middle)
    return [x / sum(p(below)) for x in p(below)]
