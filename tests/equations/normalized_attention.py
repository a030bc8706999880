"""A_ts = gain (l_ts - mean) / (std + eps) + bias over the visible keys; arXiv:2005.09561, one number at a time."""

from itertools import product
from math import sqrt

import torch

from tests.equations import H, joined
from tests.equations._scores import projected


def cases(draw):
    gain, bias = torch.randn(2, H, generator=draw, dtype=torch.float64)
    return {"plain": {"gain": gain, "bias": bias, "scale": 1.0, "eps": 1e-3}}


def attend(q, k, v, gain, bias, scale, eps):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        score = [scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)]
        mean = sum(score) / len(score)
        std = sqrt(sum((x - mean) ** 2 for x in score) / len(score))
        for s in range(t + 1):
            y[b, h, t] += (float(gain[h]) * (score[s] - mean) / (std + eps) + float(bias[h])) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    y = joined(attend(q, k, v, mixer.gain, mixer.bias, mixer.scale, mixer.eps))
    norm, _, project = mixer.out
    y = y - y.mean(-1, keepdim=True)
    y = y / torch.sqrt((y**2).mean(-1, keepdim=True) + 1e-5) * norm.weight + norm.bias
    return project(y * (1 + torch.erf(y / 2**0.5)) / 2)
