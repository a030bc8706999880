"""Softmax with one more column, a logit or a key of its own; arXiv:2410.10781 and GPT-OSS, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import H, K, V, joined
from tests.equations._scores import projected


def cases(draw):
    logit_H, key_HK, value_HV = (torch.randn(H, n, generator=draw, dtype=torch.float64) for n in (1, K, V))
    return {
        "logit": {"scale": K**-0.5, "sink_logit": logit_H[:, 0]},
        "key": {"scale": K**-0.5, "sink_key": key_HK},
        "key_value": {"scale": 2.0, "sink_key": key_HK, "sink_value": value_HV},
    }


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


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    sink = (mixer.sink_logit, mixer.sink_key, mixer.sink_value)
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, *sink)))
