"""MesaNet's layer, arXiv:2506.05233, as weighted ridge regression over all pairs so far, solved anew at each token."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, convolved, heads, joined, rms_normed, sigmoid, silu, unit


def cases(draw):
    beta, fall = (torch.rand(B, H, T, generator=draw, dtype=torch.float64) for _ in range(2))
    lamb = torch.rand(H, K, generator=draw, dtype=torch.float64) + 0.25
    reset = torch.where(torch.arange(T) % 3 == 1, -1e4, -fall / 100)
    return {
        "mild": {"beta": beta, "log_decay": -fall, "lamb": lamb},
        "reset": {"beta": beta, "log_decay": reset, "lamb": lamb},
    }


def attend(q, k, v, beta, log_decay, lamb):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        since = [exp(sum(float(g) for g in log_decay[b, h, s + 1 : t + 1])) for s in range(t + 1)]
        weight = torch.diag(torch.tensor(since, dtype=v.dtype) * beta[b, h, : t + 1])
        keys, values = k[b, h, : t + 1], v[b, h, : t + 1]
        M = torch.linalg.inv(keys.T @ weight @ keys + torch.diag(lamb[h])) @ keys.T @ weight @ values
        y[b, h, t] = q[b, h, t] @ M
    return y


def forward(mixer, x_TD):
    D, H = x_TD.shape[1], mixer.heads
    qkv = mixer.inner(x_TD)
    qk = silu(convolved(qkv[:, : 2 * D], mixer.conv_DW))
    q, k, v = (heads(z, H) for z in (qk[:, :D], qk[:, D:], qkv[:, 2 * D :]))
    a, b = (heads(sigmoid(z), H)[..., 0] for z in mixer.rates(x_TD).chunk(2, dim=-1))
    lamb = torch.log(1 + torch.exp(mixer.ridge_HK)) + mixer.least
    return mixer.out(joined(rms_normed(attend(unit(q), unit(k), v, b, a.log(), lamb), mixer.norm_V)))
