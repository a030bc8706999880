"""Softmax with bias log p_k - log p_q for keys after the query; arXiv:2601.21768, one number at a time."""

from itertools import product
from math import exp, log

import torch

from tests.equations import B, K, T, joined
from tests.equations._scores import projected


def cases(draw):
    existence = torch.rand(B, T, generator=draw, dtype=torch.float64).sort(descending=True).values
    both = {"existence": existence, "scale": K**-0.5}
    return {"bidirectional": both, "causal": {**both, "causal": True}}


def attend(q, k, v, existence, scale, causal=False):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        p = [float(x) for x in existence[b]]
        if p[t] == 0:
            continue
        weight = []
        for s in range(k.shape[2]):
            hidden = p[s] == 0 or (causal and s > t)
            bias = 0.0 if s <= t or hidden else log(p[s]) - log(p[t])
            weight.append(0.0 if hidden else exp(scale * float(q[b, h, t] @ k[b, h, s]) + bias))
        for s in range(k.shape[2]):
            y[b, h, t] += weight[s] / sum(weight) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, torch.ones(1, len(x_TD)), q.shape[-1] ** -0.5, causal=True)))
