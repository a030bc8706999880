"""What studies of networks on the digits of scikit-learn share: the digits, a few networks, and how far their logits
let a step go (Sao 2026, arXiv:2603.13552).

Logits z of a sample, weights w, a step w + tau v with |v| = 1:

    a_k = grad_w z_k . v  (one Jacobian-vector product),  D_a = max over samples of (max_k a_k - min_k a_k)          (1)
    rho_a = pi / D_a;  of logits over a temperature T: rho_a = pi T / D_a;  r = tau / rho_a                          (2)

What a step is measured by is a rule:

    radius   rho_a of eq. 2
    gap      pi T over the mean spread of the logits, which knows no direction, as in the library of the released code
    raw      1: the length tau itself
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.functional import cross_entropy

Tangent = dict[str, Tensor]  # of each parameter, by its name
RULES = ("radius", "gap", "raw")
NETWORKS = ("linear", "mlp", "mlp-norm", "cnn", "cnn-norm", "transformer")


class Attention(nn.Module):
    """One head over the rows of a picture, with what it reads added."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x_BTD)).chunk(3, -1)
        return x_BTD + (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def network(name: str) -> nn.Sequential:
    """pixels_BP -> logits_BC; weights are drawn from torch's global generator."""
    kind, _, normed = name.partition("-")
    if kind == "linear":
        return nn.Sequential(nn.Linear(64, 10))
    if kind == "mlp":
        norms = [nn.LayerNorm(128) if normed else nn.Identity() for _ in range(2)]
        hidden = [nn.Linear(64, 128), norms[0], nn.GELU(), nn.Linear(128, 128), norms[1], nn.GELU()]
        return nn.Sequential(*hidden, nn.Linear(128, 10))
    if kind == "cnn":
        norms = [nn.BatchNorm2d(width) if normed else nn.Identity() for width in (16, 32)]
        first = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, 2, 1), norms[0], nn.ReLU()]
        return nn.Sequential(*first, nn.Conv2d(16, 32, 3, 2, 1), norms[1], nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
    rows = [nn.Unflatten(1, (8, 8)), nn.Linear(8, 32), Attention(32), nn.Linear(32, 32), nn.GELU()]
    return nn.Sequential(*rows, nn.Flatten(), nn.Linear(256, 10))


@lru_cache
def digits(device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(pixels_BP, label_B) to train on and to test on, every fifth digit."""
    from sklearn.datasets import load_digits  # takes longer to import than all mechanisms together

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32, device=device), torch.tensor(labels, device=device)
    test = torch.arange(len(x), device=device) % 5 == 0
    return x[~test], y[~test], x[test], y[test]


def spread(z_BC: Tensor) -> Tensor:
    """max - min over the classes, of each sample."""
    return z_BC.amax(-1) - z_BC.amin(-1)


def slopes(model: nn.Module, x: Tensor, v: Tangent) -> Tensor:
    """a_BC of eq. 1."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return jvp(lambda given: functional_call(model, given, (x,)), (weights,), (v,))[1]


@torch.no_grad()
def safe(rule: str, model: nn.Module, x: Tensor, v: Tangent, temperature: float = 1.0) -> float:
    """The length that the rule measures a step along v by."""
    if rule == "raw":
        return 1.0
    return (
        math.pi
        * temperature
        / float(spread(slopes(model, x, v)).max() if rule == "radius" else spread(model(x)).mean())
    )


def unit(v: Tangent) -> tuple[Tangent, float]:
    """(v / |v|, |v|)."""
    norm = math.sqrt(sum(float(part.square().sum()) for part in v.values()))
    return {name: part / max(norm, 1e-12) for name, part in v.items()}, norm


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int, lr: float, temperature: float = 1.0) -> None:
    """Adam on batches of 256, drawn from torch's global generator; the model is in evaluation mode behind it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        rows = torch.randperm(len(x))[:256].to(x.device)
        optimizer.zero_grad()
        cross_entropy(model(x[rows]) / temperature, y[rows]).backward()
        optimizer.step()
    model.eval()
