"""Attention that learns linear regression in context. He, Pan, Chen and Yang 2025, "In-Context Linear Regression
Demystified: Training Dynamics and Mechanistic Interpretability of Multi-Head Softmax Attention", arXiv:2503.12734.

    y_l = b . x_l + noise_l,  z_l = (x_l, y_l),  z_q = (x_q, 0),  b ~ N(0, I/d),  x ~ N(0, I),  noise ~ N(0, v)     (1)
    yhat = sum_h sum_l softmax_l(z_l . M_h z_q / sqrt(d + 1)) (w_h . z_l),   M_h = K_h^T Q_h,  w_h = V_h^T o_h       (2)
    debiased step of gradient descent:  eta x_q . sum_l (x_l - mean x) y_l / L                                      (3)
    Bayes:  x_q . (X^T X + v d I)^-1 X^T y                                                                          (4)

The pattern that the paper finds: M_h = m_h diag(I, 0), the same m_h for all coordinates; w_h = (0, …, 0, u_h); the u_h
of several heads add up to 0, so that mean y cancels and (3) is left. d = 5, L = 8 d, v = 0.1 and heads as wide as z are
those of the released code (XintianPan/ICL_linear, src/models.py: MultiHeadAttention, and icl_linear.ipynb).

Measured. `weights`: the shares of (2)'s weights that have the pattern. The column of M_h that meets the 0 of z_q has no
effect and stays as drawn; it is left out. `predictor`: the part of yhat that (3) with the best eta leaves unexplained.
`risk`: squared error over that of (4) by prompt length; training knows the first only. `size`: the same where d and L
grow together, each model trained at its own size. `linear` attention sums scores times values as they are;
`linear_mean` divides by L.

Differs from the released code: 1,500 steps of Adam, its learning rate falling to zero; there 100,000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from impls import study
from impls.adam import Adam
from impls.study import Cell, Metric, Row, generator

ATTENTIONS = ("softmax", "linear", "linear_mean")
DIM, PER_DIM, NOISE = 5, 8, 0.1
LONGER = (1, 2, 4, 8)  # times the trained length
STEPS, BATCH, LR, TESTED = 1500, 128, 0.02, 8192


class Prompts(NamedTuple):
    """Regression problems: x_BLD and y_BL that are shown, xq_BD and yq_B that is asked."""

    x: Tensor
    y: Tensor
    xq: Tensor
    yq: Tensor


def prompts(rows: int, length: int, dim: int, draws: torch.Generator, device: str) -> Prompts:
    """Drawn by (1)."""
    normal = lambda *shape: torch.randn(shape, generator=draws)  # noqa: E731
    x_BLD, b_BD = normal(rows, length + 1, dim), normal(rows, dim) * dim**-0.5
    y_BL = torch.einsum("bld,bd->bl", x_BLD, b_BD) + NOISE**0.5 * normal(rows, length + 1)
    return Prompts(*(z.to(device) for z in (x_BLD[:, :-1], y_BL[:, :-1], x_BLD[:, -1], y_BL[:, -1])))


class Heads(NamedTuple):
    """M_HEE, divided by sqrt(E), and w_HE of (2), E = d + 1."""

    m: Tensor
    w: Tensor


def predict(p: Prompts, heads: Heads, attention: str) -> Tensor:
    """yhat_B by (2); linear attention uses the scores as weights."""
    z_BLE = torch.cat([p.x, p.y[..., None]], dim=-1)
    ask_BHE = torch.einsum("hed,bd->bhe", heads.m[..., :-1], p.xq)
    s_BHL, v_BHL = ask_BHE @ z_BLE.mT, torch.einsum("he,ble->bhl", heads.w, z_BLE)
    A_BHL = s_BHL.softmax(dim=-1) if attention == "softmax" else s_BHL
    yhat_B = (A_BHL * v_BHL).sum(dim=(1, 2))
    return yhat_B / p.x.shape[1] if attention == "linear_mean" else yhat_B


def descent(p: Prompts) -> Tensor:
    """(3) with eta = 1, for each row."""
    return torch.einsum("bd,bld,bl->b", p.xq, p.x - p.x.mean(dim=1, keepdim=True), p.y) / p.x.shape[1]


def bayes(p: Prompts) -> Tensor:
    """(4), for each row."""
    dim = p.x.shape[-1]
    gram_BDD = p.x.mT @ p.x + NOISE * dim * torch.eye(dim, device=p.x.device)
    b_BD = torch.linalg.solve(gram_BDD, torch.einsum("bld,bl->bd", p.x, p.y))
    return (b_BD * p.xq).sum(dim=-1)


def patterns(heads: Heads) -> dict[str, float]:
    """Shares of squared weights that have the pattern, of M_h in heads weighted by |w_h|; and |sum u_h| / sum |u_h|."""
    m_HED, dim, u_H, size_H = heads.m[..., :-1], heads.m.shape[-1] - 1, heads.w[:, -1], heads.w.norm(dim=-1)
    same_H = m_HED[:, :dim].diagonal(dim1=1, dim2=2).mean(dim=-1)
    share_H = dim * same_H.square() / m_HED.square().sum(dim=(1, 2))
    return {
        "kq_pattern": float(share_H @ size_H / size_H.sum()),
        "ov_pattern": float(u_H.square().sum() / heads.w.square().sum()),
        "ov_sum": float(u_H.sum().abs() / u_H.abs().sum()),
    }


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 4
        attention: str = "softmax"

        def __post_init__(self):
            if self.heads < 1:
                raise ValueError(f"heads={self.heads} is below 1")
            if self.attention not in ATTENTIONS:
                raise ValueError(f"attention={self.attention!r} is none of {', '.join(ATTENTIONS)}")

    METRICS: ClassVar = {
        "kq_pattern": Metric(unit="fraction", better="higher", summary="of the key-query weights: m diag(I, 0)"),
        "ov_pattern": Metric(unit="fraction", better="higher", summary="of the output-value weights: those of y"),
        "ov_sum": Metric(unit="fraction", better="lower", summary="what the heads' weights of y leave when added up"),
        "unexplained": Metric(unit="fraction", better="lower", summary="by a debiased step of gradient descent"),
        "over_bayes": Metric(unit="ratio", better="lower", summary="squared error over that of the Bayes estimator"),
    }
    AXES: ClassVar = {"risk": "prompt length", "size": "dimensions"}

    def cells(self) -> list[Cell]:
        return [
            *(("weights", None, name) for name in ("kq_pattern", "ov_pattern", "ov_sum")),
            ("predictor", None, "unexplained"),
            *(("risk", DIM * PER_DIM * times, "over_bayes") for times in LONGER),
            *(("size", dim, "over_bayes") for dim in (DIM, 2 * DIM)),
        ]

    def parts(self) -> list[str]:
        return ["trained", "twice-as-large"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        dim = DIM if part == "trained" else 2 * DIM
        heads, test = self.trained(dim, seed, device), generator(seed, "test", dim)
        if part == "trained":
            n, p = self.scaled(TESTED, 64), prompts(self.scaled(TESTED, 64), DIM * PER_DIM, DIM, test, device)
            for name, value in patterns(heads).items():
                yield Row("weights", None, name, value, self.config.heads)
            yhat_B, step_B = predict(p, heads, self.config.attention), descent(p)
            left_B = yhat_B - step_B * (yhat_B @ step_B) / (step_B @ step_B)
            yield Row("predictor", None, "unexplained", float(left_B.square().sum() / yhat_B.square().sum()), n)
            for times in LONGER:
                yield self.over_bayes("risk", DIM * PER_DIM * times, DIM * PER_DIM * times, dim, heads, test, device)
        yield self.over_bayes("size", dim, dim * PER_DIM, dim, heads, test, device)

    def over_bayes(
        self, task: str, at: int, length: int, dim: int, heads: Heads, test: torch.Generator, device: str
    ) -> Row:
        """The squared error on fresh prompts, over that of (4) on the same."""
        n = self.scaled(TESTED, 64)
        p = prompts(n, length, dim, test, device)
        error, least = ((z_B - p.yq).square().mean() for z_B in (predict(p, heads, self.config.attention), bayes(p)))
        return Row(task, at, "over_bayes", float(error / least), n)

    def trained(self, dim: int, seed: int, device: str) -> Heads:
        """The heads after training on prompts of length PER_DIM · dim, from the uniform start of torch's layers."""
        H, E, start = self.config.heads, dim + 1, generator(seed, "start", dim)
        uniform = lambda scale, *shape: (scale * (2 * torch.rand(shape, generator=start) - 1)).to(device)  # noqa: E731
        matrices = [uniform(E**-0.5, H, E, E).requires_grad_() for _ in "QKV"]
        Q, K, V, o = *matrices, uniform((H * E) ** -0.5, H, E).requires_grad_()
        adam, draws = Adam([Q, K, V, o], LR, self.scaled(STEPS, 4)), generator(seed, "train", dim)
        folded = lambda: Heads(K.mT @ Q * E**-0.5, torch.einsum("hfe,hf->he", V, o))  # noqa: E731
        for _ in range(adam.steps):
            p = prompts(BATCH, PER_DIM * dim, dim, draws, device)
            adam.step((predict(p, folded(), self.config.attention) - p.yq).square().mean())
        return Heads(*(z.detach() for z in folded()))
