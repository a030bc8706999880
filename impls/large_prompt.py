"""Softmax attention over a long prompt of random tokens. Boursier and Boyer 2025, "Softmax as Linear Attention in the
Large-Prompt Regime: a Measure-based Perspective", arXiv:2512.11784.

    a_L(z) = sum_l p_l x_l,   p = softmax(x_1 . U z, …, x_L . U z),   output V a_L(z)                             (1)
    x ~ N(m, G):  a_L(z) -> m + G U z,   V a_L(z) -> V (m + G U z),   as L grows                                  (2)
    gradients of c . V a_L(z):   by V  c a_L^T;   by U  (sum_l p_l (x_l - a_L) x_l^T) V^T c z^T -> G V^T c z^T     (3)

(2) is the mean of a Gaussian tilted by exp(x . Uz), so that the limit is linear in z; tokens of another law with the
same mean and covariance have another limit, for signs of independent coordinates tanh(Uz).

In-context linear regression: tokens (x_l, y_l), y_l = b . x_l, the query asks for b . z; keys are x, values u y:

    f_L(z) = u sum_l p_l y_l -> u b . (G U z),   loss (f(z) - b . z)^2 / 2                                        (4)

Measured, in log2 so that an error in 1 / sqrt(L) falls by 1/2 with each doubling: `output`, `gradient-u`: the median
over draws of the distance to the limit, over the limit's size, by prompt length L, and the slope over L; the gradient
by V errs as a_L does. `training`: the slope for the loss's gradients by (U, u) on the way of gradient descent in the
limit, after so many steps, the error of the longest prompt, and the limit's loss over that of the start. `transfer`:
how far gradient descent on prompts of length L ends from that in the limit, over the way that this has gone.

Differs from the paper: medians, for with Gaussian queries the mean of squares need not exist; no constant of its bounds
is tested. Tokens and queries have one covariance, applied once to each; the released code was not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from impls import study
from impls.study import Cell, Metric, Row, generator

TOKENS = ("gaussian", "signs")
DIM = 4
LENGTHS, DRAWS = (128, 256, 512, 1024, 2048, 4096, 8192), 500
STEPS, WATCHED, LR = 32, (2, 4, 8, 16, 32), 0.05
SHORT, BATCH = (16, 64, 256, 1024), 512
OBJECTS = ("output", "gradient-u")


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """Of a straight line by least squares: what `values` gain with each doubling of `at`."""
    x = [math.log2(a) for a in at]
    centre = sum(x) / len(x)
    return sum((a - centre) * v for a, v in zip(x, values, strict=True)) / sum((a - centre) ** 2 for a in x)


def root(law: str) -> Tensor:
    """C_DD of the covariance G = C C^T: of eigenvalues from 1/2 to 3/2 along no axis; signs are independent."""
    if law == "signs":
        return torch.eye(DIM)
    turn_DD, _ = torch.linalg.qr(torch.vander(torch.linspace(-1, 1, DIM)))
    return turn_DD * torch.linspace(0.5, 1.5, DIM).sqrt()


def attended(x_BLD: Tensor, ask_BD: Tensor) -> tuple[Tensor, Tensor]:
    """(p_BL, a_BD) of (1), ask = U z."""
    p_BL = torch.einsum("bld,bd->bl", x_BLD, ask_BD).softmax(dim=-1)
    return p_BL, torch.einsum("bl,bld->bd", p_BL, x_BLD)


def gradient_u(x_BLD: Tensor, p_BL: Tensor, a_BD: Tensor, pull_BD: Tensor, z_BD: Tensor) -> Tensor:
    """(3) by U, pull = V^T c: [B, D, D]."""
    spread_BD = torch.einsum("bl,bld,ble,be->bd", p_BL, x_BLD - a_BD[:, None], x_BLD, pull_BD)
    return spread_BD[:, :, None] * z_BD[:, None]


def regression(x_BLD: Tensor, b_BD: Tensor, z_BD: Tensor, at_P: Tensor) -> Tensor:
    """Gradients g_BP of the loss of (4), a row a prompt, by the numbers of U and then u, together `at`."""
    U_DD, u = at_P[:-1].view(DIM, DIM), at_P[-1]
    p_BL, a_BD = attended(x_BLD, z_BD @ U_DD.T)
    found_B = (a_BD * b_BD).sum(-1)
    error_B = u * found_B - (b_BD * z_BD).sum(-1)
    by_U_BDD = gradient_u(x_BLD, p_BL, a_BD, (u * error_B)[:, None] * b_BD, z_BD)
    return torch.cat([by_U_BDD.flatten(1), (error_B * found_B)[:, None]], dim=1)


def regression_limit(G_DD: Tensor, b_BD: Tensor, z_BD: Tensor, at_P: Tensor) -> Tensor:
    """The same for an endless prompt of Gaussian tokens."""
    U_DD, u = at_P[:-1].view(DIM, DIM), at_P[-1]
    found_B = torch.einsum("bd,bd->b", b_BD @ G_DD, z_BD @ U_DD.T)
    error_B = u * found_B - (b_BD * z_BD).sum(-1)
    by_U_BDD = ((u * error_B)[:, None] * b_BD @ G_DD)[:, :, None] * z_BD[:, None]
    return torch.cat([by_U_BDD.flatten(1), (error_B * found_B)[:, None]], dim=1)


def loss_limit(G_DD: Tensor, at_P: Tensor) -> float:
    """(4) for an endless prompt, its mean over b ~ N(0, I) and z ~ N(0, G)."""
    off_DD = at_P[-1] * G_DD @ at_P[:-1].view(DIM, DIM) - torch.eye(DIM, dtype=G_DD.dtype, device=G_DD.device)
    return float((off_DD @ G_DD * off_DD).sum()) / 2


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        tokens: str = "gaussian"

        def __post_init__(self):
            if self.tokens not in TOKENS:
                raise ValueError(f"tokens={self.tokens!r} is none of {', '.join(TOKENS)}")

    METRICS: ClassVar = {
        "error": Metric(unit="log2", better="lower", summary="distance to the limit over the limit's size"),
        "slope": Metric(unit="log2 per doubling", better="lower", summary="of the error with the prompt's length"),
        "loss": Metric(unit="log2", better="lower", summary="of the limit, over that before training"),
        "gap": Metric(unit="log2", better="lower", summary="distance to where training in the limit ends"),
    }
    AXES: ClassVar = {**dict.fromkeys(OBJECTS, "prompt length"), "training": "steps", "transfer": "prompt length"}

    def __init__(self, config: Config, effort: float = 1.0):
        super().__init__(config, effort)
        self.root_DD = root(config.tokens)
        self.covariance_DD = self.root_DD @ self.root_DD.T

    def cells(self) -> list[Cell]:
        return [
            *((name, length, "error") for name in OBJECTS for length in LENGTHS),
            *((name, None, "slope") for name in OBJECTS),
            *(("training", step, metric) for step in WATCHED for metric in ("slope", "error", "loss")),
            *(("transfer", length, "gap") for length in SHORT),
        ]

    def parts(self) -> list[str]:
        return ["layer", "training", "transfer"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        return {"layer": self.layer, "training": self.training, "transfer": self.transfer}[part](seed, device)

    def tokens(self, rows: int, length: int, draws: torch.Generator) -> Tensor:
        """x_BLD of mean 0 and covariance G."""
        if self.config.tokens == "signs":
            return torch.randint(2, (rows, length, DIM), generator=draws) * 2.0 - 1
        return torch.randn(rows, length, DIM, generator=draws) @ self.root_DD.T

    def layer(self, seed: int, device: str) -> Iterator[Row]:
        """U, V and c are drawn once, z for each prompt; |U z| is 1 to bound what the tilt weighs; mean 1/2."""
        rows, draws = self.scaled(DRAWS, 8), generator(seed, "layer")
        U, V = (torch.randn(DIM, DIM, generator=draws).to(device) for _ in range(2))
        U, mean, G = torch.linalg.qr(U)[0], 0.5, self.covariance_DD.to(device)
        c = torch.randn(DIM, generator=draws).to(device)
        errors: dict[str, list[float]] = {name: [] for name in OBJECTS}
        for length in LENGTHS:
            x = self.tokens(rows, length, draws).to(device) + mean
            z = torch.nn.functional.normalize(torch.randn(rows, DIM, generator=draws), dim=-1).to(device)
            pull = (c @ V).expand(rows, DIM)
            p, a = attended(x, z @ U.T)
            limit = mean + z @ U.T @ G
            pairs = {
                "output": (a @ V.T, limit @ V.T),
                "gradient-u": (gradient_u(x, p, a, pull, z), (pull @ G)[:, :, None] * z[:, None]),
            }
            for name, (found, wanted) in pairs.items():
                apart = (found - wanted).flatten(1).norm(dim=-1) / wanted.flatten(1).norm(dim=-1)
                errors[name].append(float(apart.median().log2()))
                yield Row(name, length, "error", errors[name][-1], rows)
        for name in OBJECTS:
            yield Row(name, None, "slope", slope(LENGTHS, errors[name]), rows)

    def training(self, seed: int, device: str) -> Iterator[Row]:
        """The errors of single prompts' gradients at points of the way of `descent`."""
        rows, draws, G_DD = self.scaled(DRAWS, 8), generator(seed, "training"), self.covariance_DD.to(device)
        start = loss_limit(G_DD, self.descent(seed, 0, 1, device))
        for step in WATCHED:
            at_P, errors = self.descent(seed, step, 1, device, limit=True), []
            for length in LENGTHS:
                x_BLD, b_BD, z_BD = self.prompts(rows, length, draws, device)
                limit_BP = regression_limit(G_DD, b_BD, z_BD, at_P)
                apart_B = (regression(x_BLD, b_BD, z_BD, at_P) - limit_BP).norm(dim=-1)
                errors.append(float(apart_B.median().log2()))
            yield Row("training", step, "slope", slope(LENGTHS, errors), rows)
            yield Row("training", step, "error", errors[-1], rows)
            yield Row("training", step, "loss", math.log2(loss_limit(G_DD, at_P) / start), self.scaled(BATCH, 16))

    def transfer(self, seed: int, device: str) -> Iterator[Row]:
        """The limit's gradients are of the same questions, so that nothing differs but the prompts."""
        for length in SHORT:
            start_P, end_P = (self.descent(seed, steps, length, device, limit=True) for steps in (0, STEPS))
            gap = (self.descent(seed, STEPS, length, device) - end_P).norm() / (end_P - start_P).norm()
            yield Row("transfer", length, "gap", float(gap.log2()), self.scaled(BATCH, 16))

    def descent(self, seed: int, steps: int, length: int, device: str, limit: bool = False) -> Tensor:
        """(U, u) after so many steps on fresh prompts of this length, or on the limits of their loss."""
        draws, G_DD = generator(seed, "descent", length), self.covariance_DD.to(device)
        at_P = 0.1 * torch.randn(DIM * DIM + 1, generator=generator(seed, "start")).to(device)
        at_P[-1] = 0.5
        for _ in range(steps):
            x_BLD, b_BD, z_BD = self.prompts(self.scaled(BATCH, 16), length, draws, device)
            g_BP = regression_limit(G_DD, b_BD, z_BD, at_P) if limit else regression(x_BLD, b_BD, z_BD, at_P)
            at_P = at_P - LR * g_BP.mean(dim=0)
        return at_P

    def prompts(self, rows: int, length: int, draws: torch.Generator, device: str) -> tuple[Tensor, Tensor, Tensor]:
        """(x_BLD, b_BD, z_BD) of (4)."""
        x_BLD, b_BD = self.tokens(rows, length, draws), torch.randn(rows, DIM, generator=draws)
        return x_BLD.to(device), b_BD.to(device), self.tokens(rows, 1, draws)[:, 0].to(device)
