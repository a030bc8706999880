"""A = (1 - g) softmax(s) + g softmax(pos_bias of the distance); arXiv:2103.10697 on prefixes, one number at a time."""

from itertools import product
from math import exp

import torch


def attend(q, k, v, pos_bias, gate_logit, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        g = 1 / (1 + exp(-float(gate_logit[h])))
        content = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        place = [exp(float(pos_bias[h, t - s])) for s in range(t + 1)]
        for s in range(t + 1):
            y[b, h, t] += ((1 - g) * content[s] / sum(content) + g * place[s] / sum(place)) * v[b, h, s]
    return y
