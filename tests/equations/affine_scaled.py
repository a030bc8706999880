"""A_ts = alpha_t softmax_s + (alpha_ma - alpha_t) / N_t on visible keys; arXiv:2602.23057, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, joined
from tests.equations._scores import projected


def cases(draw):
    alpha = torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    alpha_ma = torch.rand(H, generator=draw, dtype=torch.float64)
    gates = {"alpha": alpha, "alpha_ma": alpha_ma, "scale": K**-0.5}
    return {str(n_mode): {**gates, "n_mode": n_mode} for n_mode in ("visible", "length", 40)}


def attend(q, k, v, alpha, alpha_ma, n_mode, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        gate, average = float(alpha[b, h, t]), float(alpha_ma[h])
        keys = {"visible": t + 1, "length": q.shape[2]}.get(n_mode, n_mode)
        for s in range(t + 1):
            y[b, h, t] += (gate * e[s] / sum(e) + (average - gate) / keys) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    alpha = (0.1 * x_TD @ mixer.gate.weight.T + 0.5).clamp(0, 1).T[None]
    return mixer.out(joined(attend(q, k, v, alpha, mixer.alpha_ma, mixer.count, q.shape[-1] ** -0.5)))
