"""A_ts = exp(s_ts) / (1 + sum_r exp(s_tr)), E. Miller 2023, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import K, joined
from tests.equations._scores import projected


def cases(draw):
    return {"scaled": {"scale": K**-0.5}, "steep": {"scale": 10.0}}


def attend(q, k, v, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        for s in range(t + 1):
            y[b, h, t] += e[s] / (1 + sum(e)) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5)))
