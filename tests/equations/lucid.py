"""v'_t = (v_t - sum_{s<t} P_ts v'_s) / P_tt, then softmax over v'; arXiv:2602.10410, row by row."""

from itertools import product
from math import exp, sqrt

import torch

from tests.equations import K, joined
from tests.equations._scores import projected


def cases(draw):
    return {"released": {"scale": K**-0.5, "eps": 1e-5}, "steep": {"scale": 2.0, "eps": 0.1}}


def attend(q, k, v, scale, eps):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        K = k.shape[-1]
        unit = [k[b, h, t] / sqrt(float(k[b, h, t] @ k[b, h, t]) / K + eps) for t in range(k.shape[2])]
        solved = []
        for t in range(q.shape[2]):
            P = [exp(scale * float(unit[t] @ unit[s]) - 1 / scale) for s in range(t + 1)]
            rest = v[b, h, t].clone()
            for s in range(t):
                rest -= P[s] * solved[s]
            solved.append(rest / P[t])
            e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
            for s in range(t + 1):
                y[b, h, t] += e[s] / sum(e) * solved[s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, mixer.eps)))
