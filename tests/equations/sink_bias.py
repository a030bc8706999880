"""Softmax with one more column, a logit or a key of its own; arXiv:2410.10781 and GPT-OSS, one number at a time."""

from itertools import product
from math import exp

import torch


def attend(q, k, v, scale, sink_logit=None, sink_key=None, sink_value=None):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        if sink_key is not None:
            extra = scale * float(q[b, h, t] @ sink_key[h])
        elif sink_logit is not None:
            extra = float(sink_logit[h])
        else:
            raise ValueError("a sink needs a logit or a key")
        e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        total = exp(extra) + sum(e)
        for s in range(t + 1):
            y[b, h, t] += e[s] / total * v[b, h, s]
        if sink_value is not None:
            y[b, h, t] += exp(extra) / total * sink_value[h]
    return y
