"""The intercept of a weighted ridge fit of v on (1, k - q), by its normal equations; arXiv:2501.12352, row by row."""

from itertools import product
from math import exp

import torch


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
