"""A = sign(s) softmax(|s|); arXiv:2411.07176, one number at a time."""

from itertools import product
from math import copysign, exp

import torch

from tests.equations import K, joined
from tests.equations._scores import projected


def cases(draw):
    return {"scaled": {"scale": K**-0.5}, "steep": {"scale": 10.0}}


def attend(q, k, v, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        score = [scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)]
        total = sum(exp(abs(x)) for x in score)
        for s in range(t + 1):
            if score[s] != 0:
                y[b, h, t] += copysign(exp(abs(score[s])) / total, score[s]) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5)))
