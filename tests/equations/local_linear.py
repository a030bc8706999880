"""The intercept of a weighted ridge fit of v on (1, k - q), by its normal equations; arXiv:2501.12352, row by row."""

from itertools import product
from math import exp

import torch

from tests.equations import K, joined
from tests.equations._scores import projected


def cases(draw):
    return {"scaled": {"scale": K**-0.5, "ridge": 1.0}, "weak": {"scale": 1.0, "ridge": 0.05}}


def attend(q, k, v, scale, ridge):
    K = k.shape[-1]
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        e = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in range(t + 1)]
        left = torch.zeros(K + 1, K + 1, dtype=v.dtype)
        right = torch.zeros(K + 1, v.shape[-1], dtype=v.dtype)
        for i in range(K):
            left[i + 1, i + 1] = ridge  # the intercept is not shrunk
        for s in range(t + 1):
            feature = [1.0] + [float(k[b, h, s, i] - q[b, h, t, i]) for i in range(K)]
            for i, j in product(range(K + 1), range(K + 1)):
                left[i, j] += e[s] / sum(e) * feature[i] * feature[j]
            for i in range(K + 1):
                right[i] += e[s] / sum(e) * feature[i] * v[b, h, s]
        y[b, h, t] = torch.linalg.solve(left, right)[0]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    q, k = (z / torch.sqrt((z**2).mean(-1, keepdim=True) + 1e-6) for z in (q, k))
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, mixer.ridge)))
