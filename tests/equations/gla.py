"""Gated linear attention, arXiv:2312.06635, as a sum over pairs: what k_s wrote, times every decay since."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, heads, joined, rms_normed, silu


def cases(draw):
    mild = -torch.rand(B, H, T, K, generator=draw, dtype=torch.float64)
    reset = torch.where(torch.rand(B, H, T, K, generator=draw) < 0.3, -1e4, mild / 100)
    return {"mild": {"log_decay": mild, "scale": K**-0.5}, "reset": {"log_decay": reset, "scale": 1.0}}


def attend(q, k, v, log_decay, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        for s, c in product(range(t + 1), range(q.shape[-1])):
            since = exp(sum(float(g) for g in log_decay[b, h, s + 1 : t + 1, c]))
            y[b, h, t] += scale * q[b, h, t, c] * since * k[b, h, s, c] * v[b, h, s]
    return y


def forward(mixer, x_TD):
    key, value, rank = mixer.decay.out_features, mixer.out.in_features, mixer.decay.in_features
    z_TX = mixer.inner(x_TD)
    q, k, v, gate, low = z_TX.split([key, key, value, z_TX.shape[1] - 2 * key - value - rank, rank], dim=-1)
    decay = (1 / (1 + torch.exp(-mixer.decay(low)))) ** (1 / mixer.temperature)
    q, k, v, log_decay = (heads(z, mixer.heads) for z in (q, k, v, decay.log()))
    y_TV = joined(rms_normed(attend(q, k, v, log_decay, q.shape[-1] ** -0.5), mixer.norm_V))
    return mixer.out(silu(gate) * y_TV if gate.shape[1] else y_TV)
