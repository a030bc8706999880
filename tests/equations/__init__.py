"""Each mechanism once more, as slow loops that share nothing with `impls` but the weights of the projections.

`tests/equations/<impl>.py` may hold

    attend(q, k, v, ...)    the operator, one number or one vector at a time, on [B,H,T,K] tensors
    cases(draw)             by name, the further arguments of `attend` to try; sizes are B, H, T, K, V below
    forward(mixer, x_TD)    the whole layer on one row

Below is what layers have in common, likewise written out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

B, H, T, K, V = 1, 2, 6, 3, 2


def heads(z_TD: Tensor, H: int) -> Tensor:
    """[T, H·K] -> [1,H,T,K]."""
    return torch.stack(z_TD.chunk(H, dim=-1))[None]


def joined(y_1HTV: Tensor) -> Tensor:
    """[1,H,T,V] -> [T, H·V]."""
    return torch.cat(list(y_1HTV[0]), dim=-1)


def rotated(x_1HTK: Tensor) -> Tensor:
    """Channel i and channel i + K/2 as one complex number, turned by position · 10000^(-2i/K)."""
    y = x_1HTK.clone()
    half = y.shape[-1] // 2
    for t in range(y.shape[2]):
        for i in range(half):
            turned = torch.complex(x_1HTK[..., t, i], x_1HTK[..., t, i + half])
            turned = turned * complex(math.cos(t / 10_000 ** (i / half)), math.sin(t / 10_000 ** (i / half)))
            y[..., t, i], y[..., t, i + half] = turned.real, turned.imag
    return y


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def convolved(x_TD: Tensor, weight_DW: Tensor | None) -> Tensor:
    """y[t] = sum over i of weight[W - 1 - i] x[t - i], what was before the first token being 0."""
    if weight_DW is None:
        return x_TD
    y, W = torch.zeros_like(x_TD), weight_DW.shape[1]
    for t in range(len(x_TD)):
        for i in range(min(W, t + 1)):
            y[t] += weight_DW[:, W - 1 - i] * x_TD[t - i]
    return y


def unit(x_1HTK: Tensor) -> Tensor:
    return x_1HTK / torch.sqrt((x_1HTK**2).sum(-1, keepdim=True) + 1e-6)


def rms_normed(y_1HTV: Tensor, weight_V: Tensor) -> Tensor:
    return y_1HTV / torch.sqrt((y_1HTV**2).mean(-1, keepdim=True) + 1e-5) * weight_V
