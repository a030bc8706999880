"""A = (1 - g) softmax(s) + g softmax(pos_bias of the distance); arXiv:2103.10697 on prefixes, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import H, K, T, joined
from tests.equations._scores import projected


def cases(draw):
    pos_bias = torch.randn(H, T, generator=draw, dtype=torch.float64)
    gate_logit = torch.randn(H, generator=draw, dtype=torch.float64)
    return {"scaled": {"pos_bias": pos_bias, "gate_logit": gate_logit, "scale": K**-0.5}}


def attend(q, k, v, pos_bias, gate_logit, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        g = 1 / (1 + exp(-float(gate_logit[h])))
        content = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        place = [exp(float(pos_bias[h, t - s])) for s in range(t + 1)]
        for s in range(t + 1):
            y[b, h, t] += ((1 - g) * content[s] / sum(content) + g * place[s] / sum(place)) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    pos_bias = torch.zeros(mixer.heads, len(x_TD), dtype=x_TD.dtype)
    for h, d in product(range(mixer.heads), range(len(x_TD))):
        pos_bias[h, d] = mixer.place_H2[h, 0] * -d + mixer.place_H2[h, 1] * d**2
    return mixer.out(joined(attend(q, k, v, pos_bias, mixer.gate_logit, q.shape[-1] ** -0.5)))
