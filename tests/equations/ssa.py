"""Softmax of tau_t s_ts, tau_t = 1 + exp(-exp(beta)) ln(t + 1) + token part; arXiv:2411.12892, one number at a time."""

from itertools import product
from math import exp, log

import torch

from tests.equations import B, H, K, T, heads, joined
from tests.equations._scores import projected


def cases(draw):
    beta = torch.randn((), generator=draw, dtype=torch.float64)
    tau = torch.randn(B, H, T, generator=draw, dtype=torch.float64).tanh()
    return {
        "position": {"pos_beta": beta, "scale": K**-0.5},
        "token": {"pos_beta": beta, "scale": 1.0, "tau_token": tau},
    }


def attend(q, k, v, pos_beta, scale, tau_token=None):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        tau = 1 + exp(-exp(float(pos_beta))) * log(t + 1)
        if tau_token is not None:
            tau += float(tau_token[b, h, t])
        e = [exp(tau * scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        for s in range(t + 1):
            y[b, h, t] += e[s] / sum(e) * v[b, h, s]
    return y


def temperature(z, w):
    """tanh(w_h . gelu(z)), [1,H,T]."""
    return torch.tanh((z * (1 + torch.erf(z / 2**0.5)) / 2 * w[None, :, None]).sum(-1))


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    tau = None
    if mixer.query_HK is not None:
        raw = heads(mixer.qkv(x_TD).chunk(3, dim=-1)[0], mixer.heads)
        tau = temperature(raw, mixer.query_HK)
        v = v * (1 + temperature(v, mixer.value_HV))[..., None]
    return mixer.out(joined(attend(q, k, v, mixer.pos_beta, q.shape[-1] ** -0.5, tau)))
