"""Hedgehog, arXiv:2402.04347, with both ways of keeping exp in range, one channel at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import H, K, heads, joined, rotated


def cases(draw):
    w_q, w_k = (torch.randn(H, K, K, generator=draw, dtype=torch.float64) for _ in range(2))
    b_q, b_k = (torch.randn(H, K, generator=draw, dtype=torch.float64) for _ in range(2))
    common = {"w_q": w_q, "w_k": w_k, "eps": 1e-12}
    return {
        "lolcats": common | {"variant": "lolcats"},
        "fla": common | {"variant": "fla", "b_q": b_q, "b_k": b_k},
    }


def features(x_K, w_KF, b_F, variant):
    u = [float(x_K @ w_KF[:, f]) + (0.0 if b_F is None else float(b_F[f])) for f in range(w_KF.shape[1])]
    if variant == "lolcats":
        up, down = sum(exp(z) for z in u), sum(exp(-z) for z in u)
        return [max(exp(z) / up, 1e-12) for z in u] + [max(exp(-z) / down, 1e-12) for z in u]
    total = sum(exp(2 * z) + exp(-2 * z) for z in u)
    return [exp(2 * z) / total for z in u] + [exp(-2 * z) / total for z in u]


def attend(q, k, v, w_q, w_k, variant, eps, b_q=None, b_k=None):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        read = features(q[b, h, t], w_q[h], None if b_q is None else b_q[h], variant)
        weight = []
        for s in range(t + 1):
            key = features(k[b, h, s], w_k[h], None if b_k is None else b_k[h], variant)
            weight.append(sum(i * j for i, j in zip(read, key, strict=True)))
        for s in range(t + 1):
            y[b, h, t] += weight[s] / (sum(weight) + eps) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v = (heads(z, mixer.heads) for z in mixer.qkv(x_TD).chunk(3, dim=-1))
    q, k = (rotated(q), rotated(k)) if mixer.rope else (q, k)
    maps = (mixer.map_q_HKF, mixer.map_k_HKF, mixer.variant, mixer.eps, mixer.bias_q_HF, mixer.bias_k_HF)
    return mixer.out(joined(attend(q, k, v, *maps)))
