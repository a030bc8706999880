"""NAtS-L, arXiv:2602.03681, token by token: the state at the end of a chunk is kept or taken back."""

from itertools import product
from math import exp

import torch

from tests.equations import B, H, K, T, heads, joined, rms_normed, silu
from tests.equations._trunk import inputs


def cases(draw):
    beta, fall = (torch.rand(B, H, T, generator=draw, dtype=torch.float64) for _ in range(2))
    common = {"chunk_type": torch.tensor([[[0, 1, 0], [1, 0, 1]]]), "chunk_size": 2, "scale": K**-0.5}
    linear = common | {"branch": "linear", "beta": beta, "log_decay": -fall, "l2_eps": 1e-6}
    return {"softmax": common | {"branch": "softmax"}, "linear": linear}


def attend(q, k, v, chunk_type, chunk_size, branch, scale, beta=None, log_decay=None, l2_eps=1e-6):
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        first = state = torch.zeros(k.shape[-1], v.shape[-1], dtype=v.dtype)
        left = 1.0
        for t in range(q.shape[2]):
            chunk = t // chunk_size
            if branch == "softmax":
                seen = [s for s in range(t + 1) if s // chunk_size == chunk or chunk_type[b, h, s // chunk_size] == 0]
                weight = [exp(scale * float(q[b, h, t] @ k[b, h, s])) for s in seen]
                for s, w in zip(seen, weight, strict=True):
                    y[b, h, t] += w / sum(weight) * v[b, h, s]
                continue
            assert beta is not None
            assert log_decay is not None
            key, query = (z[b, h, t] / torch.sqrt((z[b, h, t] ** 2).sum() + l2_eps) for z in (k, q))
            decay = torch.exp(log_decay[b, h, t])
            state, left = decay * state, decay * left
            state = state + beta[b, h, t] * torch.outer(key, v[b, h, t] - key @ state)
            y[b, h, t] = scale * query @ state
            if (t + 1) % chunk_size == 0:
                first = state = state if chunk_type[b, h, chunk] == 1 else left * first
                left = 1.0
    return y


def forward(mixer, x_TD):
    H, many, C = mixer.heads, mixer.softmax_heads, mixer.chunk
    q, k, v, beta, decay, gate = inputs(mixer.trunk, x_TD, normalize=False)
    means = [x_TD[n : n + C].sum(0) / C for n in range(0, len(x_TD), C)]
    types = torch.stack([mixer.route(mean).unflatten(0, (H, 2)).argmax(-1) for mean in means], dim=1)[None]
    decay = decay[..., 0].log()
    linear = attend(q, k, v, types, C, "linear", 1.0, beta, decay, 1e-6)
    linear = heads(joined(rms_normed(linear, mixer.trunk.norm_V)), many)
    w_TX = mixer.mix(joined(q))
    q, k = (rms_normed(heads(joined(z), many), w) for z, w in ((q, mixer.norm_q_K), (k, mixer.norm_k_K)))
    types = torch.stack([types[:, h // (many // H)] for h in range(many)], dim=1)
    soft = attend(q, k, heads(joined(v), many), types, C, "softmax", q.shape[-1] ** -0.5)
    w_1HT = heads(1 / (1 + torch.exp(w_TX[:, 1::2] - w_TX[:, ::2])), many)
    y = w_1HT * linear + (1 - w_1HT) * rms_normed(soft, mixer.norm_V)
    return mixer.trunk.out(silu(gate) * joined(y) if gate.shape[1] else joined(y))
