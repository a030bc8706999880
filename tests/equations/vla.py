"""Variational linear attention, arXiv:2605.11196: A_t as the inverse it is, not by the Sherman–Morrison update."""

from itertools import product

import torch

from tests.equations import B, H, K, T, heads, joined


def cases(draw):
    u = torch.randn(B, H, T, K, generator=draw, dtype=torch.float64)
    common = {"u": u, "stab_eps": 1e-4, "nudge_eps": 0.0, "nudge_period": 20}
    return {"exact": common | {"lambda0": 0.1}, "larger": common | {"lambda0": 1.0}}


def phi(x):
    return torch.stack([c + 1 if c > 0 else torch.exp(c) for c in x])


def length_one(x):
    return x / torch.sqrt((x**2).sum())


def attend(q, k, v, u, lambda0, stab_eps, nudge_eps=0.0, nudge_period=0):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    width = k.shape[-1]
    for b, h in product(*map(range, q.shape[:2])):
        penalty = lambda0 * torch.eye(width, dtype=v.dtype)
        state, total = torch.zeros(width, v.shape[-1], dtype=v.dtype), torch.zeros(width, dtype=v.dtype)
        for t in range(q.shape[2]):
            direction = length_one(u[b, h, t]) / width**0.5
            penalty = penalty + torch.outer(direction, direction)
            key = length_one(phi(k[b, h, t]))
            write = length_one(torch.linalg.inv(penalty) @ key)
            state = state + torch.outer(write, v[b, h, t] - key @ state)
            total = total + phi(k[b, h, t])
            read = phi(q[b, h, t])
            y[b, h, t] = read @ state / max(float(total @ read), stab_eps)
    return y


def forward(mixer, x_TD):
    q, k, v = mixer.qkv(x_TD).chunk(3, dim=-1)
    q, k, v, u = (heads(z, mixer.heads) for z in (q, k, v, mixer.penalty(k)))
    y = joined(attend(q, k, v, u, mixer.lambda0, mixer.eps))
    y = y - y.mean(-1, keepdim=True)
    y = y / torch.sqrt((y**2).mean(-1, keepdim=True) + 1e-5)
    return mixer.out(y * mixer.norm_D + mixer.norm_bias_D)
