"""The delta rule, arXiv:2406.06484, with the state as the product of (I - beta k k^T) that it is."""

from itertools import product

import torch

from tests.equations import B, H, T, convolved, heads, joined, rms_normed, sigmoid, silu, unit


def cases(draw):
    beta = torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    return {"mild": {"beta": beta, "scale": 0.5}, "overwrite": {"beta": torch.ones_like(beta), "scale": 1.0}}


def attend(q, k, v, beta, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    one = torch.eye(k.shape[-1], dtype=k.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        state = torch.zeros(k.shape[-1], v.shape[-1], dtype=v.dtype)
        for t in range(q.shape[2]):
            erase = one - beta[b, h, t] * torch.outer(k[b, h, t], k[b, h, t])
            state = erase @ state + beta[b, h, t] * torch.outer(k[b, h, t], v[b, h, t])
            y[b, h, t] = scale * state.T @ q[b, h, t]
    return y


def forward(mixer, x_TD):
    D, W = x_TD.shape[1], mixer.out.in_features
    z_TX = mixer.inner(x_TD)
    q, k, v = silu(convolved(z_TX[:, : 2 * D + W], mixer.conv_DW)).split([D, D, W], dim=-1)
    q, k, v, beta = (heads(z, mixer.heads) for z in (q, k, v, sigmoid(z_TX[:, 2 * D + W :])))
    return mixer.out(joined(rms_normed(attend(unit(q), unit(k), v, beta[..., 0], 1.0), mixer.norm_V)))
