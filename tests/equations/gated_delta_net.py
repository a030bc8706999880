"""The gated delta rule, arXiv:2412.06464: the state is a (I - beta k k^T) times the last one, plus the new pair."""

from itertools import product

import torch

from tests.equations import B, H, T, convolved, heads, joined, rms_normed, sigmoid, silu, unit


def cases(draw):
    beta = torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    mild = -torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    reset = torch.where(torch.arange(T) % 3 == 1, -1e4, mild / 100)
    return {
        "mild": {"beta": beta, "log_decay": mild, "scale": 0.5},
        "reset": {"beta": beta, "log_decay": reset, "scale": 1.0},
    }


def attend(q, k, v, beta, log_decay, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    one = torch.eye(k.shape[-1], dtype=k.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        state = torch.zeros(k.shape[-1], v.shape[-1], dtype=v.dtype)
        for t in range(q.shape[2]):
            erase = torch.exp(log_decay[b, h, t]) * (one - beta[b, h, t] * torch.outer(k[b, h, t], k[b, h, t]))
            state = erase @ state + beta[b, h, t] * torch.outer(k[b, h, t], v[b, h, t])
            y[b, h, t] = scale * state.T @ q[b, h, t]
    return y


def forward(mixer, x_TD):
    H, value = mixer.heads, mixer.out.in_features
    z_TX = mixer.inner(x_TD)
    key = (mixer.conv_DW.shape[0] - value) // 2 if mixer.conv_DW is not None else mixer.key
    qkv, gate, beta, dt = z_TX.split([2 * key + value, z_TX.shape[1] - 2 * key - value - 2 * H, H, H], dim=-1)
    q, k, v = silu(convolved(qkv, mixer.conv_DW)).split([key, key, value], dim=-1)
    decay = -torch.exp(mixer.A_log_H) * torch.log(1 + torch.exp(dt + mixer.dt_bias_H))
    q, k, v, beta, decay = (heads(z, H) for z in (q, k, v, sigmoid(beta), decay))
    y = rms_normed(attend(unit(q), unit(k), v, beta[..., 0], decay[..., 0], 1.0), mixer.norm_V)
    return mixer.out(silu(gate) * joined(y) if gate.shape[1] else joined(y))
