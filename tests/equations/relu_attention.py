"""A_ts = max(scale q_t . k_s, 0) / r_t, r_t = max(t, 1) or 1; arXiv:2603.11487, one number at a time."""

from itertools import product

import torch

from tests.equations import K, joined
from tests.equations._scores import projected


def cases(draw):
    return {"counted": {"scale": 1.0, "normalizer": "max(i,1)"}, "plain": {"scale": K**-0.5, "normalizer": "none"}}


def attend(q, k, v, scale, normalizer):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        divisor = 1 if normalizer == "none" or t == 0 else t
        for s in range(t + 1):
            score = scale * float(q[b, h, t] @ k[b, h, s])
            if score > 0:
                y[b, h, t] += score / divisor * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    return mixer.out(joined(attend(q, k, v, mixer.scale, mixer.normalizer)))
