"""y_t = S_t^T q_t / eta(n_t), S_t = S_{t-1} + k_t v_t^T; arXiv:2405.15731, one step at a time."""

from itertools import product
from math import exp, log

import torch

from tests.equations import B, H, T, heads, joined

ETA = {"exp": exp, "softplus": lambda n: log(1 + exp(n)), "sigmoid": lambda n: 1 / (1 + exp(-n))}


def cases(draw):
    norm_logit = torch.randn(B, H, T, generator=draw, dtype=torch.float64)
    return {name: {"norm_logit": norm_logit, "norm_fn": name, "scale": 1.0} for name in ETA}


def attend(q, k, v, norm_logit, norm_fn, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        state = torch.zeros(k.shape[-1], v.shape[-1], dtype=v.dtype)
        for t in range(q.shape[2]):
            for i, j in product(range(k.shape[-1]), range(v.shape[-1])):
                state[i, j] += k[b, h, t, i] * v[b, h, t, j]
            for i in range(k.shape[-1]):
                y[b, h, t] += scale * q[b, h, t, i] * state[i] / ETA[norm_fn](float(norm_logit[b, h, t]))
    return y


def forward(mixer, x_TD):
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    return mixer.out(joined(attend(q, k, v, mixer.norm(x_TD).T[None], mixer.norm_fn, mixer.scale)))
