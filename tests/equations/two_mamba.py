"""2Mamba and 2Mamba-E, arXiv:2602.17363 Algorithm 5, one number at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, convolved, heads, joined


def cases(draw):
    decay = -torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    common = {"log_decay": decay, "scale": K**-0.5}
    return {"square": common | {"power": "2"}, "exp": common | {"power": "exp"}}


def attend(q, k, v, log_decay, scale, power):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        total = 0.0
        for s in range(t + 1):
            score = scale * float(q[b, h, t] @ k[b, h, s])
            weight = exp(score) if power == "exp" else score * score
            for g in log_decay[b, h, s + 1 : t + 1]:
                weight *= exp(float(g))
            y[b, h, t] += weight * v[b, h, s]
            total += weight
        y[b, h, t] /= total
    return y


def forward(mixer, x_TD):
    D, H = x_TD.shape[1], mixer.heads
    z_TX = mixer.inner(x_TD)
    qkv = convolved(z_TX[:, : 3 * D], mixer.conv_DW)
    qkv = qkv if mixer.conv_bias_D is None else qkv + mixer.conv_bias_D
    q, k, v = (heads(qkv[:, i * D : (i + 1) * D], H) for i in range(3))
    a_TH = z_TX[:, 3 * D :] + (0 if mixer.a_bias_H is None else mixer.a_bias_H)
    a = -heads(torch.log(1 + torch.exp(a_TH)), H)[..., 0]
    power = "exp" if type(mixer).__name__ == "Exponential" else "2"
    return mixer.out(joined(attend(q, k, v, a, (D // H) ** -0.5, power)))
