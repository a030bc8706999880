"""Retention, arXiv:2307.08621 eq. 5 and 8, one number at a time."""

from itertools import product

import torch

from tests.equations import K, heads, joined, rotated, silu


def cases(draw):
    return {"scaled": {"scale": K**-0.5}}


def attend(q, k, v, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        gamma = 1 - 2 ** (-5 - h)
        for s in range(t + 1):
            y[b, h, t] += scale * gamma ** (t - s) * float(q[b, h, t] @ k[b, h, s]) * v[b, h, s]
    return y


def normed(x):
    """Mean 0 and variance 1 over a head's channels."""
    x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6)


def forward(mixer, x_TD):
    D, W = x_TD.shape[1], mixer.out.in_features
    z_TX = mixer.inner(x_TD)
    q, k, v = (heads(z, mixer.heads) for z in (z_TX[:, :D], z_TX[:, D : 2 * D], z_TX[:, 2 * D : 2 * D + W]))
    y_TW = joined(normed(attend(rotated(q), rotated(k), v, q.shape[-1] ** -0.5)))
    return mixer.out(silu(z_TX[:, 2 * D + W :]) * y_TW if z_TX.shape[1] > 2 * D + W else y_TW)
