"""The curvature-conditioned query as read from arXiv:2606.01294: the weighted mean of k k^T, summed pair by pair."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, unit
from tests.equations._trunk import finished, inputs, rule


def cases(draw):
    eta = torch.rand(H, generator=draw, dtype=torch.float64)
    decay = -torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    return {"mild": {"eta": eta, "log_decay": decay, "scale": K**-0.5}}


def contracted(q, k, eta, log_decay):
    out = torch.zeros_like(q)
    for b, h, t in product(*map(range, q.shape[:3])):
        weight = [exp(sum(float(g) for g in log_decay[b, h, s + 1 : t + 1])) for s in range(t + 1)]
        C = sum(w * torch.outer(k[b, h, s], k[b, h, s]) for s, w in enumerate(weight)) / sum(weight)
        out[b, h, t] = q[b, h, t] - eta[h] * C @ q[b, h, t]
    return out


def attend(q, k, v, eta, log_decay, scale):
    decay = torch.exp(log_decay)[..., None].expand_as(k)
    return scale * rule(contracted(q, k, eta, log_decay), k, v, None, decay)


def forward(mixer, x_TD):
    q, k, v, beta, decay, gate = inputs(mixer.trunk, x_TD)
    eta = 1 / (1 + torch.exp(-mixer.eta_logit_H))
    shared = decay.log().sum(-1) / decay.shape[-1]
    q = contracted(q, k if mixer.trunk.rule == "gdn" else unit(k), eta, shared)
    return finished(mixer.trunk, rule(q, k, v, beta, decay), gate)
