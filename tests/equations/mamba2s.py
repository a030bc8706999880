"""Mamba-2S, arXiv:2602.17363 Algorithm 4, with the decays multiplied along one at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, V, convolved, heads, joined


def cases(draw):
    dt = torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    decay = -torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    weight = torch.rand(H * V, generator=draw, dtype=torch.float64)
    plain = {"dt": dt, "log_decay": decay, "scale": K**-0.5}
    return {"plain": plain, "normed": plain | {"norm_weight": weight, "norm_eps": 1e-6}}


def attend(q, k, v, dt, log_decay, scale, norm_weight=None, norm_eps=0.0):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        since = 1.0
        for s in range(t, -1, -1):
            y[b, h, t] += scale * float(q[b, h, t] @ k[b, h, s]) * since * dt[b, h, s] * v[b, h, s]
            since *= exp(float(log_decay[b, h, s]))
    if norm_weight is not None:
        for b, t in product(range(q.shape[0]), range(q.shape[2])):
            row = torch.cat(list(y[b, :, t]))
            row = row / torch.sqrt((row**2).sum() / len(row) + norm_eps) * norm_weight
            y[b, :, t] = torch.stack(row.chunk(q.shape[1]))
    return y


def forward(mixer, x_TD):
    D, H = x_TD.shape[1], mixer.heads
    z_TX = mixer.inner(x_TD)
    qkv = convolved(z_TX[:, : 3 * D], mixer.conv_DW)
    qkv = qkv if mixer.conv_bias_D is None else qkv + mixer.conv_bias_D
    q, k, v = (heads(qkv[:, i * D : (i + 1) * D], H) for i in range(3))
    a_TH = z_TX[:, 3 * D + H :] + (0 if mixer.a_bias_H is None else mixer.a_bias_H)
    dt, a = (heads(torch.log(1 + torch.exp(z)), H)[..., 0] for z in (z_TX[:, 3 * D : 3 * D + H], a_TH))
    return mixer.out(joined(attend(q, k, v, dt, -a, (D // H) ** -0.5, mixer.norm_V, 1e-6)))
