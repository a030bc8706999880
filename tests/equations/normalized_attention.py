"""A_ts = gain (l_ts - mean) / (std + eps) + bias over the visible keys; arXiv:2005.09561, one number at a time."""

from itertools import product
from math import sqrt

import torch


def attend(q, k, v, gain, bias, scale, eps):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        score = [scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)]
        mean = sum(score) / len(score)
        std = sqrt(sum((x - mean) ** 2 for x in score) / len(score))
        for s in range(t + 1):
            y[b, h, t] += (float(gain[h]) * (score[s] - mean) / (std + eps) + float(bias[h])) * v[b, h, s]
    return y
