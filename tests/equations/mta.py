"""Steps 1 to 7 of multi-token attention, arXiv:2504.00927, one entry of one score matrix at a time."""

from itertools import product
from math import exp

import torch

from tests.equations import H, K, joined, rms_normed, sigmoid
from tests.equations._scores import projected


def cases(draw):
    pre, post = torch.randn(2, H, 3, 5, generator=draw, dtype=torch.float64)
    mix_pre, mix_post = torch.randn(2, H, H, generator=draw, dtype=torch.float64)
    return {
        "whole": {
            "scale": K**-0.5,
            "kq_kernel_pre": pre,
            "head_mix_pre": mix_pre,
            "kq_kernel_post": post,
            "head_mix_post": mix_post,
        },
        "no_convolution": {"scale": K**-0.5, "head_mix_pre": mix_pre, "head_mix_post": mix_post},
        "no_mixing": {"scale": 1.0, "kq_kernel_pre": pre, "kq_kernel_post": post},
    }


def convolve(s, kernel):
    """Out of range and future entries count as zero."""
    H, T, S = s.shape
    cq, ck = kernel.shape[1:]
    out = torch.zeros_like(s)
    for h, i, j, a, b in product(range(H), range(T), range(S), range(cq), range(ck)):
        row, column = i - (cq - 1) + a, j - (ck - 1) // 2 + b
        if row >= 0 and 0 <= column <= row:
            out[h, i, j] += kernel[h, a, b] * s[h, row, column]
    return out


def mixed(s, mix):
    """Head g gets sum_h mix[h, g] s_h."""
    out = torch.zeros_like(s)
    for h, g in product(range(len(s)), range(len(s))):
        out[g] += mix[h, g] * s[h]
    return out


def attend(q, k, v, scale, kq_kernel_pre=None, head_mix_pre=None, kq_kernel_post=None, head_mix_post=None):
    B, H, T, _ = q.shape
    y = torch.zeros(B, H, T, v.shape[-1], dtype=v.dtype)
    for b in range(B):
        s = torch.zeros(H, T, T, dtype=v.dtype)
        for h, i, j in product(range(H), range(T), range(T)):
            s[h, i, j] = scale * float(q[b, h, i] @ k[b, h, j])
        if kq_kernel_pre is not None:
            s = convolve(s, kq_kernel_pre)
        if head_mix_pre is not None:
            s = mixed(s, head_mix_pre.T)
        A = torch.zeros_like(s)
        for h, i in product(range(H), range(T)):
            e = [exp(float(s[h, i, j])) for j in range(i + 1)]
            for j in range(i + 1):
                A[h, i, j] = e[j] / sum(e)
        if kq_kernel_post is not None:
            A = convolve(A, kq_kernel_post)
        if head_mix_post is not None:
            A = mixed(A, head_mix_post)
        for h, i in product(range(H), range(T)):
            for j in range(i + 1):
                y[b, h, i] += A[h, i, j] * v[b, h, j]
    return y


def forward(mixer, x_TD):
    q, k, v = projected(mixer, x_TD)
    kernels = (mixer.kernel_pre, mixer.mix_pre, mixer.kernel_post, mixer.mix_post)
    z = rms_normed(attend(q, k, v, q.shape[-1] ** -0.5, *kernels), mixer.norm.weight)
    return mixer.out(joined(z * sigmoid((z * mixer.gate.weight[0]).sum(-1, keepdim=True) + mixer.gate.bias)))
