"""p_s = [(alpha - 1) s_s - tau]_+^(1/(alpha - 1)) with sum 1, tau by bisection; arXiv:1909.00015, one row at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import H, K, joined, sigmoid
from tests.equations._scores import projected


def cases(draw):
    by_head = 1.1 + 0.8 * torch.rand(H, generator=draw, dtype=torch.float64)
    fixed = {f"alpha_{alpha}": {"scale": K**-0.5, "alpha": alpha} for alpha in (1.0, 1.2, 1.5, 2.0)}
    return fixed | {"by_head": {"scale": 1.0, "alpha": by_head}}


def attend(q, k, v, scale, alpha):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        a = float(alpha[h]) if isinstance(alpha, torch.Tensor) else alpha
        p = row([scale * float(q[b, h, t] @ k[b, h, s]) for s in range(t + 1)], a)
        for s in range(t + 1):
            y[b, h, t] += p[s] * v[b, h, s]
    return y


def row(score, alpha):
    if alpha == 1:
        return [exp(x) / sum(map(exp, score)) for x in score]

    def p(tau):
        return [max((alpha - 1) * x - tau, 0) ** (1 / (alpha - 1)) for x in score]

    below, above = (alpha - 1) * max(score) - 1, (alpha - 1) * max(score)
    for _ in range(200):
        middle = (below + above) / 2
        below, above = (middle, above) if sum(p(middle)) >= 1 else (below, middle)
    return [x / sum(p(below)) for x in p(below)]


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    alpha = mixer.alpha
    if isinstance(alpha, torch.Tensor):
        alpha = torch.stack([min(max(1 + sigmoid(a), torch.tensor(1.01)), torch.tensor(2.0)) for a in alpha])
    return mixer.out(joined(attend(q, k, v, q.shape[-1] ** -0.5, alpha)))
