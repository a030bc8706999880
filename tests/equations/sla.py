"""Softmax linear attention as read from arXiv:2602.01744: gates that compete across heads, one pair at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T
from tests.equations._trunk import finished, inputs, rule


def cases(draw):
    logits = [torch.randn(B, H, T, generator=draw, dtype=torch.float64) for _ in range(2)]
    decay = -torch.rand(B, H, T, generator=draw, dtype=torch.float64)
    common = {"gate_q_logit": logits[0], "gate_k_logit": logits[1], "log_decay": decay, "scale": K**-0.5}
    return {"formula": common | {"head_scale": 1.0}, "neutral": common | {"head_scale": float(H)}}


def gate(logit, head_scale):
    g = torch.zeros_like(logit)
    for b, h, t in product(*map(range, logit.shape)):
        g[b, h, t] = head_scale / sum(exp(float(other - logit[b, h, t])) for other in logit[b, :, t])
    return g


def attend(q, k, v, gate_q_logit, gate_k_logit, log_decay, scale, head_scale):
    read, write = gate(gate_q_logit, head_scale), gate(gate_k_logit, head_scale)
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h, t in product(*map(range, q.shape[:3])):
        for s in range(t + 1):
            since = exp(sum(float(g) for g in log_decay[b, h, s + 1 : t + 1]))
            weight = scale * read[b, h, t] * write[b, h, s] * since * float(q[b, h, t] @ k[b, h, s])
            y[b, h, t] += weight * v[b, h, s]
    return y


def forward(mixer, x_TD):
    H = mixer.heads
    q, k, v, beta, decay, out_gate = inputs(mixer.trunk, x_TD)
    logit = torch.stack(mixer.gates(x_TD).chunk(mixer.gates.out_features // H, dim=-1)).mT  # [1 or 2, H, T]
    read, *write = (gate(z[None], float(H)) for z in logit)
    v = write[0][..., None] * v if write else v
    return finished(mixer.trunk, rule(q, k, v, beta, decay), out_gate, read)
