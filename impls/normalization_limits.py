"""What a normaliser of scores can tell apart. Mudarisov, Petrova, Burtsev and State 2025, "Limitations of Normalization
in Attention Mechanism", arXiv:2508.17821.

    a_i = F(l_i / T) / sum_j F(l_j / T),   i = 1 … L;   softmax: F = exp                                    (eq. 3)
    s = sum_{i in I} a_i x_i,   I the N largest weights,   x_i of length one                                (eq. 6)
    d(I) = sum_{j not in I} |s - a_j x_j|                                                                   (eq. 7)
    separable: N_s / N,   N_s = #{i in I: |s - a_i x_i| <= min_{j not in I} |s - a_j x_j|}                 (eq. 10)
    Jacobian  da_i / dl_j = (F'_i [i = j] - a_i F'_j) / (T sum F)                                        (lemma 2)
    exp(-2 D / T) / L <= a_i <= exp(2 D / T) / L,   |l_i| <= D                                         (corollary 1)

Measured on rows of scores. `selection`, by N: the share N_s / N, from N = 2, for one token is always nearest to
itself; and how much farther the N largest lie from the rest than N drawn ones do (log2 of d over its mean for
drawn I; at 0 a selection is no better than drawn). `temperature`, by 1 / T: log2 of the Jacobian's spectral norm, the
largest and the mean of all rows. `length`, by L: log2 of the largest weight, and the share of weights outside
corollary 1, in single precision.

The scores, by `source`. drawn: N(0, SPREAD^2), x on a sphere. trained: of the heads of impls.softmax in a model of two
layers that has learnt to go on with a sequence which it reads for the second time; x are the layer's inputs. Else the
folder of a causal model, as the Hub has them, on text that it writes itself; nothing is fetched. A model's scores are
the logarithms of its weights, so that T = 1 is its own temperature. Controls: `select` = random takes drawn tokens for
the largest; `normaliser` = relu, F(l) = max(l, 0), is the same at all temperatures.

Differs from the paper: the Jacobian is exact, not from finite differences. For two equal scores its norm is 1 / (2 T);
the paper's bound 1 / (4 T) holds for single entries, so only the power of T is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from impls import read_heads, study
from impls.study import Cell, Metric, Row, generator

SOURCES, NORMALISERS, SELECTIONS = ("drawn", "trained"), ("softmax", "relu"), ("top", "random")
SELECTED, INVERSES, LENGTHS = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32), (8, 16, 32, 64)
LENGTH, ROWS, SETS, WIDTH, SPREAD, STEPS = 64, 512, 8, 64, 1.5, 250


class Scores(NamedTuple):
    """l_RL of queries over the keys that they see, and the keys' tokens x_RLD, of length one."""

    l: Tensor  # noqa: E741
    x: Tensor


def weights(l_RL: Tensor, normaliser: str, T: float = 1.0) -> tuple[Tensor, Tensor]:
    """(a_RL, F'(l / T) / (T sum F)) of (3)."""
    if normaliser == "softmax":
        a_RL = (l_RL / T).softmax(dim=-1)
        return a_RL, a_RL / T
    F_RL = l_RL.relu()
    total_R1 = F_RL.sum(dim=-1, keepdim=True).clamp(min=1e-12)
    return F_RL / total_R1, (l_RL > 0) / total_R1


def jacobian_norm(l_RL: Tensor, normaliser: str, T: float) -> Tensor:
    """Spectral norms [R] of lemma 2's Jacobian."""
    a_RL, rise_RL = weights(l_RL.double(), normaliser, T)
    return torch.linalg.matrix_norm(rise_RL.diag_embed() - a_RL[:, :, None] * rise_RL[:, None], ord=2)


def chosen(a_RL: Tensor, count: int, select: str, draws: torch.Generator) -> Tensor:
    """in_RL, true at the N largest weights or at N drawn ones."""
    order_RL = a_RL if select == "top" else torch.rand(a_RL.shape, generator=draws).to(a_RL.device)
    return torch.zeros_like(a_RL, dtype=torch.bool).scatter_(1, order_RL.topk(count, dim=-1).indices, True)


def distances(a_RL: Tensor, x_RLD: Tensor, in_RL: Tensor) -> Tensor:
    """|s - a_i x_i| [R, L] of (6)."""
    y_RLD = a_RL[..., None] * x_RLD
    return ((y_RLD * in_RL[..., None]).sum(dim=1, keepdim=True) - y_RLD).norm(dim=-1)


def separable(a_RL: Tensor, x_RLD: Tensor, in_RL: Tensor) -> Tensor:
    """N_s / N [R] of (10)."""
    apart_RL = distances(a_RL, x_RLD, in_RL)
    radius_R1 = apart_RL.masked_fill(in_RL, float("inf")).amin(dim=-1, keepdim=True)
    return ((apart_RL <= radius_R1) & in_RL).sum(dim=-1) / in_RL.sum(dim=-1)


def far(a_RL: Tensor, x_RLD: Tensor, in_RL: Tensor) -> Tensor:
    """d(I) [R] of (7)."""
    return (distances(a_RL, x_RLD, in_RL) * ~in_RL).sum(dim=-1)


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        source: str = "drawn"
        normaliser: str = "softmax"
        select: str = "top"

        def __post_init__(self):
            if self.source not in SOURCES and not Path(self.source).is_dir():
                raise ValueError(
                    f"source={self.source!r} is neither {' nor '.join(SOURCES)} nor a folder here;"
                    " fetch a model of the Hub and name the folder where it lies"
                )
            if self.normaliser not in NORMALISERS:
                raise ValueError(f"normaliser={self.normaliser!r} is none of {', '.join(NORMALISERS)}")
            if self.normaliser == "relu" and self.source != "drawn":
                raise ValueError(
                    "normaliser='relu' is for drawn scores; those of a model are known through softmax only"
                )
            if self.select not in SELECTIONS:
                raise ValueError(f"select={self.select!r} is none of {', '.join(SELECTIONS)}")

    METRICS: ClassVar = {
        "separable": Metric(unit="fraction", better="higher", summary="of the selected tokens, nearer than any other"),
        "farther": Metric(unit="log2", better="higher", chance=0.0, summary="than drawn tokens would be from the rest"),
        "largest_norm": Metric(unit="log2", better="lower", summary="of a row's Jacobian"),
        "mean_norm": Metric(unit="log2", better="lower", summary="of a row's Jacobian"),
        "largest_weight": Metric(unit="log2", better="higher", summary="of a row, mean of rows"),
        "outside": Metric(unit="fraction", better="lower", summary="of the weights, beyond the bounds by length"),
    }
    AXES: ClassVar = {"selection": "tokens selected", "temperature": "1 / temperature", "length": "tokens seen"}

    def files(self) -> list[str]:
        inside = [] if self.config.source in SOURCES else Path(self.config.source).rglob("*")
        return sorted(str(path) for path in inside if path.is_file())

    def cells(self) -> list[Cell]:
        return [
            *(("selection", count, "separable") for count in SELECTED[1:]),
            *(("selection", count, "farther") for count in SELECTED),
            *(("temperature", inverse, metric) for inverse in INVERSES for metric in ("largest_norm", "mean_norm")),
            *(("length", length, metric) for length in LENGTHS for metric in ("largest_weight", "outside")),
        ]

    def parts(self) -> list[str]:
        return ["heads"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        by_length = self.scores(seed, device)
        l_RL, x_RLD = by_length[LENGTH]
        a_RL, n, draws = weights(l_RL, self.config.normaliser)[0], len(l_RL), generator(seed, part, "sets")
        for count in SELECTED:
            in_RL = chosen(a_RL, count, self.config.select, draws)
            drawn = [far(a_RL, x_RLD, chosen(a_RL, count, "random", draws)) for _ in range(SETS)]
            farther_R = (far(a_RL, x_RLD, in_RL) / torch.stack(drawn).mean(dim=0)).log2()
            if count > 1:
                yield Row("selection", count, "separable", float(separable(a_RL, x_RLD, in_RL).mean()), n)
            yield Row("selection", count, "farther", float(farther_R.mean()), n)
        for inverse in INVERSES:
            norm_R = jacobian_norm(l_RL, self.config.normaliser, 1 / inverse)
            yield Row("temperature", inverse, "largest_norm", float(norm_R.max().log2()), n)
            yield Row("temperature", inverse, "mean_norm", float(norm_R.mean().log2()), n)
        for length, (l_RL, _) in by_length.items():
            a_RL = weights(l_RL, self.config.normaliser)[0]
            reach_R1 = (l_RL.amax(dim=-1) - l_RL.amin(dim=-1)).exp()[:, None] * (1 + 1e-5)  # 2 D = the scores' range
            outside_RL = (a_RL * length > reach_R1) | (a_RL * length < 1 / reach_R1)
            yield Row("length", length, "largest_weight", float(a_RL.amax(dim=-1).mean().log2()), n)
            yield Row("length", length, "outside", float(outside_RL.double().mean()), a_RL.numel())

    def scores(self, seed: int, device: str) -> dict[int, Scores]:
        """By the number of keys, in rising order; LENGTH is among them."""
        rows, draws = self.scaled(ROWS, 16), generator(seed, "scores")
        if self.config.source == "drawn":
            l_RL, x_RLD = (
                SPREAD * torch.randn(rows, LENGTH, generator=draws),
                torch.randn(rows, LENGTH, WIDTH, generator=draws),
            )
            x_RLD = nn.functional.normalize(x_RLD, dim=-1).to(device)
            return {length: Scores(l_RL[:, :length].to(device), x_RLD[:, :length]) for length in LENGTHS}
        if self.config.source == "trained":
            read = read_heads.copier(self.scaled(STEPS, 4), rows, LENGTHS, seed, device)
        else:
            read = read_heads.stored(self.config.source, rows, LENGTHS, draws, device)
        return {length: Scores(*z) for length, z in read.items()}
