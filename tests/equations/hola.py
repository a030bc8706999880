"""HOLA, arXiv:2607.02303: a gated delta net that also keeps tokens, one token at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T
from tests.equations._trunk import finished, inputs


def cases(draw):
    beta, fall = (torch.rand(B, H, T, generator=draw, dtype=torch.float64) for _ in range(2))
    gammas = [1 + torch.randn(K, generator=draw, dtype=torch.float64) / 4 for _ in range(2)]
    logits = [torch.randn(H, generator=draw, dtype=torch.float64) for _ in range(2)]
    common = {"beta": beta, "log_decay": -fall, "gamma_q": gammas[0], "gamma_k": gammas[1]}
    common |= {"sink_logit": logits[0], "gate_logit": logits[1], "cache_scale": K**-0.5, "state_scale": 0.5}
    common |= {"l2_eps": 1e-6, "rms_eps": 1e-6}
    return {
        "cache": common | {"window": 1, "chunk_size": 2},
        "no cache": common | {"window": 0, "chunk_size": 3},
        "one block": common | {"window": 4, "chunk_size": 16},
    }


def normed(x, gamma, eps):
    return x / torch.sqrt((x**2).mean() + eps) * gamma


def attend(q, k, v, beta, log_decay, gamma_q, gamma_k, sink_logit, gate_logit, window, chunk_size, **plain):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        state = torch.zeros(k.shape[-1], v.shape[-1], dtype=v.dtype)
        scores = []
        for t in range(q.shape[2]):
            key = k[b, h, t] / torch.sqrt((k[b, h, t] ** 2).sum() + plain["l2_eps"])
            query = q[b, h, t] / torch.sqrt((q[b, h, t] ** 2).sum() + plain["l2_eps"])
            state = torch.exp(log_decay[b, h, t]) * state
            error = v[b, h, t] - key @ state
            state = state + beta[b, h, t] * torch.outer(key, error)
            y[b, h, t] = plain["state_scale"] * query @ state
            scores.append(t if plain.get("recency") else float(beta[b, h, t] * torch.sqrt((error**2).sum())))
            first = t // chunk_size * chunk_size
            best = sorted(range(first), key=lambda s: -scores[s])[:window]
            seen = best + list(range(first, t + 1))
            read = normed(q[b, h, t], gamma_q, plain["rms_eps"])
            keys = [normed(k[b, h, s], gamma_k, plain["rms_eps"]) for s in seen]
            weight = [exp(plain["cache_scale"] * float(read @ key)) for key in keys]
            total = exp(float(sink_logit[h])) + sum(weight)
            for s, w in zip(seen, weight, strict=True):
                y[b, h, t] += w / total / (1 + torch.exp(-gate_logit[h])) * v[b, h, s]
    return y


def forward(mixer, x_TD):
    q, k, v, beta, decay, gate = inputs(mixer.trunk, x_TD, normalize=False)
    learned = (mixer.norm_q_K, mixer.norm_k_K, mixer.null_H, mixer.gate_logit_H)
    plain = {"cache_scale": q.shape[-1] ** -0.5, "state_scale": 1.0, "l2_eps": 1e-6, "rms_eps": 1e-6}
    plain |= {"recency": mixer.recency}
    y = attend(q, k, v, beta, decay[..., 0].log(), *learned, mixer.window, mixer.block, **plain)
    return finished(mixer.trunk, y, gate)
