"""Mamba-2, arXiv:2405.21060, as a sum over pairs: what was written at s, times every decay since."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, convolved, heads, joined, silu


def cases(draw):
    dt = torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    mild = -torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    reset = torch.where(torch.arange(T) % 3 == 1, -1e4, mild / 100)
    return {
        "mild": {"dt": dt, "log_decay": mild, "scale": 1.0},
        "reset": {"dt": dt, "log_decay": reset, "scale": K**-0.5},
    }


def attend(q, k, v, dt, log_decay, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        for s in range(t + 1):
            since = exp(sum(float(g) for g in log_decay[b, h, s + 1 : t + 1]))
            y[b, h, t] += scale * float(q[b, h, t] @ k[b, h, s]) * since * dt[b, h, s] * v[b, h, s]
    return y


def forward(mixer, x_TD):
    H, K, V = mixer.heads, mixer.key, mixer.value
    z_TX = mixer.inner(x_TD)
    qkv, gate, dt = z_TX[:, : 2 * K + V], z_TX[:, 2 * K + V : 2 * K + 2 * V], z_TX[:, 2 * K + 2 * V :]
    qkv = convolved(qkv, mixer.conv_DW)
    qkv = silu(qkv if mixer.conv_bias_D is None else qkv + mixer.conv_bias_D)
    q, k = (z[None, None].expand(1, H, -1, -1) for z in (qkv[:, :K], qkv[:, K : 2 * K]))
    v, dt = heads(qkv[:, 2 * K :], H), torch.log(1 + torch.exp(dt + mixer.dt_bias_H))
    log_decay = heads(-torch.exp(mixer.A_log_H) * dt, H)[..., 0]
    y = attend(q, k, v, heads(dt, H)[..., 0], log_decay, 1.0) + mixer.skip_H[:, None, None] * v
    y = joined(y) * silu(gate)
    return mixer.out(y / torch.sqrt((y**2).mean(-1, keepdim=True) + 1e-5) * mixer.norm_V)
