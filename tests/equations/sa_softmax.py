"""A = s softmax(s), or softmax(s) (s - lo)/(hi - lo), 0 among the bounds; arXiv:2502.18277, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import K, joined
from tests.equations._scores import projected


def cases(draw):
    return {
        "v1": {"scale": K**-0.5, "variant": "v1", "eps": 0.0},
        "v2": {"scale": K**-0.5, "variant": "v2", "eps": 0.0},
        "v2_eps": {"scale": 2.0, "variant": "v2", "eps": 0.1},
    }


def attend(q, k, v, scale, variant, eps):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        score = [scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)]
        total = sum(exp(x) for x in score)
        lo, hi = min([0.0, *score]), max([0.0, *score])
        for s in range(t + 1):
            factor = score[s] if variant == "v1" else (score[s] - lo) / (hi - lo + eps)
            y[b, h, t] += factor * exp(score[s]) / total * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, mixer.variant, mixer.eps)))
