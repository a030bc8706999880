"""InLine attention, arXiv:2412.06590, each row over the tokens so far, one number at a time."""

from itertools import product

import torch
from torch.nn.functional import gelu

from tests.equations import K, heads, joined


def cases(draw):
    return {"plain": {"scale": K**-0.5}}


def attend(q, k, v, scale):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        n = t + 1
        dots = [scale / n * float(q[b, h, t] @ k[b, h, s]) for s in range(n)]
        for s in range(n):
            y[b, h, t] += (dots[s] - sum(dots) / n + 1 / n) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    D, H = x_TD.shape[1], mixer.heads
    q, k, v = (heads(mixer.qkv(x_TD)[:, i * D : (i + 1) * D], H) for i in range(3))
    y_1HTV = attend(q, k, v, (D // H) ** -0.5)
    if mixer.first_HKK is not None:
        for h, t in product(range(H), range(len(x_TD))):
            mean_K = x_TD[: t + 1].mean(0).chunk(H)[h]
            r_X = gelu(mean_K @ mixer.first_HKK[h]) @ mixer.second_HKX[h]
            for c, i in product(range(D // H), range(min(mixer.taps, t + 1))):
                y_1HTV[0, h, t, c] += r_X[c * mixer.taps + i] * v[0, h, t - i, c]
    return mixer.out(joined(y_1HTV))
