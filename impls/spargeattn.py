"""Skipping blocks of a trained model's attention. Zhang et al. 2025, "SpargeAttention: Accurate and Training-free
Sparse Attention Accelerating Any Model Inference", arXiv:2502.18137.

    k̄_j = mean of block j,  sim_j = mean of the cosines of all its pairs
    P̂_t = softmax_j(q_t . k̄_j / sqrt(K))              over earlier blocks with sim_j > theta
    stage 1: the blocks of highest P̂ whose sum is at most tau, one at least, and all with sim_j <= theta, are computed
    stage 2: in online softmax P V of a block is skipped where max_j - max_{i<=j} < lambda; its sum of P still counts

theta, tau and lambda are set for each head: of a grid those that skip most while the output's relative L1 error on the
calibration text stays below `error` (stage 1), then below `error_values` (both).

Differs from the paper: a query is a block of its own, for a mean of queries would see later ones, and its own block of
keys is always computed; blocks of 16 keys and not 64; no quantisation, no smoothing of keys, no reordering. Work is
counted and not saved: every score is made, and what is skipped is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from impls import ops
from impls.method import Method as Base
from impls.method import Metric
from impls.rewired import Calibration, Rewired, lottery, mixer_inputs, softmax_layers
from impls.softmax import Mixer

SELECTIONS = ("predicted", "random", "window")
SIMILAR = (-1.0, 0.2, 0.4, 0.6)  # theta; -1 pools every block
MASS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)  # tau; 1 skips no block
GAP = (-2.0, -3.0, -4.0, -6.0, -8.0, -12.0, -1e9)  # lambda; the last skips nothing
ROWS = 16  # of calibration text


class Thresholds(NamedTuple):
    """Of each head."""

    similar_H: Tensor
    mass_H: Tensor
    gap_H: Tensor


class Sparse(Rewired):
    def __init__(self, mixer: Mixer, block: int, select: str, seed: int, at: Thresholds):
        super().__init__(mixer)
        self.block, self.select, self.seed, self.at = block, select, seed, at

    def computed(self, q_BHTK: Tensor, k_BHSK: Tensor, at: Thresholds) -> Tensor:
        """computed_BHTN: the blocks that stage 1 leaves to each query, its own and later ones among them."""
        (_, _, T, _), S, b = q_BHTK.shape, k_BHSK.shape[2], self.block
        N = -(-S // b)
        own_T1 = (torch.arange(S - T, S, device=q_BHTK.device) // b)[:, None]
        past_TN = torch.arange(N, device=q_BHTK.device) < own_T1
        k_BHNbK = pad(ops.wide(k_BHSK), (0, 0, 0, N * b - S)).unflatten(2, (N, b))
        alike_BHN = normalize(k_BHNbK, dim=-1).mean(dim=3).square().sum(dim=-1)  # the mean of all cosines of its pairs
        pooled_BH1N = (alike_BHN > at.similar_H[:, None])[:, :, None]
        s_BHTN = ops.scores(ops.wide(q_BHTK), k_BHNbK.mean(dim=3), self.scale)
        P_BHTN = s_BHTN.masked_fill(~(pooled_BH1N & past_TN), float("-inf")).softmax(dim=-1).nan_to_num()
        best_BHTN, order_BHTN = P_BHTN.sort(dim=-1, descending=True, stable=True)
        taken_BHT1 = (best_BHTN.cumsum(dim=-1).clamp(max=1) <= at.mass_H[:, None, None]).sum(dim=-1, keepdim=True)
        rank_BHTN = order_BHTN.argsort(dim=-1)
        kept_BHTN = (rank_BHTN < taken_BHT1.clamp(min=1)) & past_TN | ~pooled_BH1N & past_TN
        if self.select != "predicted":  # as many, but others
            luck_TN = torch.arange(N, device=q_BHTK.device).expand(T, N).double()
            if self.select == "random":
                luck_TN = lottery(range(S - T, S), N, self.seed, q_BHTK.device)
            rank_TN = luck_TN.masked_fill(~past_TN, -1).argsort(dim=-1, descending=True).argsort(dim=-1)
            kept_BHTN = (rank_TN < kept_BHTN.sum(dim=-1, keepdim=True)) & past_TN
        return kept_BHTN | ~past_TN

    def filtered(self, q_BHTK: Tensor, k_BHSK: Tensor, at: Thresholds) -> tuple[Tensor, Tensor, Tensor]:
        """(A_BHTS, computed_BHTN of stage 1, read_BHTN of both stages)."""
        S, b = k_BHSK.shape[2], self.block
        computed_BHTN = self.computed(q_BHTK, k_BHSK, at)
        s_BHTS = ops.hide(ops.wide(ops.scores(q_BHTK, k_BHSK, self.scale)), float("-inf"))
        s_BHTS = s_BHTS.masked_fill(~self.spread(computed_BHTN, S), float("-inf"))
        top_BHTN = pad(s_BHTS, (0, -S % b), value=float("-inf")).unflatten(-1, (-1, b)).amax(dim=-1)
        read_BHTN = computed_BHTN & ~(top_BHTN - top_BHTN.cummax(dim=-1).values < at.gap_H[:, None, None])
        A_BHTS = s_BHTS.softmax(dim=-1).masked_fill(~self.spread(read_BHTN, S), 0.0)
        return A_BHTS.to(q_BHTK.dtype), computed_BHTN, read_BHTN

    def spread(self, block_BHTN: Tensor, S: int) -> Tensor:
        """A block's value at each of its keys: [B,H,T,N] -> [B,H,T,S]."""
        return block_BHTN.repeat_interleave(self.block, dim=-1)[..., :S]

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return self.filtered(q_BHTK, k_BHSK, self.at)[0]


class Method(Base):
    METRICS: ClassVar = {
        "scores_skipped": Metric(unit="share", better="higher", summary="blocks of scores that stage 1 leaves out"),
        "values_skipped": Metric(
            unit="share", better="higher", summary="blocks of values that either stage leaves out"
        ),
        "output_error": Metric(unit="relative L1", better="lower", summary="of the heads' outputs, calibration text"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config:
        block: int = 16  # b; the paper's is 64, at lengths of thousands
        error: float = 0.05  # largest relative L1 error of stage 1
        error_values: float = 0.06  # of both stages
        select: Literal["predicted", "random", "window"] = "predicted"  # the others: as many blocks, but other ones

        def __post_init__(self):
            if self.block < 1 or not 0 <= self.error <= self.error_values or self.select not in SELECTIONS:
                raise ValueError(f"{self}: block is 1 or more, 0 <= error <= error_values, select one of {SELECTIONS}")

    def choose(self, model: Any, calibration: Calibration, seed: int) -> dict[str, Any]:
        """Thresholds of each head of each layer, and what they do to the calibration text."""
        thresholds, found = [], []
        with torch.no_grad():
            for (_, mixer), x_BTD in zip(softmax_layers(model), mixer_inputs(model, calibration), strict=True):
                q, k, v = mixer.project(x_BTD[:ROWS])
                at = self.tuned(Sparse(mixer, self.config.block, "predicted", seed, everything(mixer)), q, k, v)
                layer = Sparse(mixer, self.config.block, self.config.select, seed, at)
                thresholds.append({name: value_H.tolist() for name, value_H in at._asdict().items()})
                found.append([of_head_H.mean().item() for of_head_H in effect(layer, q, k, v, at)])
        means = [sum(column) / len(found) for column in zip(*found, strict=True)]
        return {"seed": seed, "thresholds": thresholds, "measured": dict(zip(self.METRICS, means, strict=True))}

    def tuned(self, layer: Sparse, q: Tensor, k: Tensor, v: Tensor) -> Thresholds:
        """The thresholds that skip most within the bounds: of scores, then of values at those of scores."""
        best, skipped_H = layer.at, torch.zeros_like(layer.at.mass_H)
        for similar in SIMILAR:
            for mass in MASS:
                at = Thresholds(*(torch.full_like(skipped_H, value) for value in (similar, mass, GAP[-1])))
                scores_H, _, error_H = effect(layer, q, k, v, at)
                better_H = (error_H <= self.config.error) & (scores_H > skipped_H)
                best = Thresholds(*(torch.where(better_H, new, old) for new, old in zip(at, best, strict=True)))
                skipped_H = torch.where(better_H, scores_H, skipped_H)
        for gap in reversed(GAP):
            at = best._replace(gap_H=torch.full_like(best.gap_H, gap))
            fits_H = effect(layer, q, k, v, at)[2] <= self.config.error_values
            best = best._replace(gap_H=torch.where(fits_H, at.gap_H, best.gap_H))
        return best

    def install(self, model: Any, choices: dict[str, Any]) -> Any:
        for (number, mixer), at in zip(list(softmax_layers(model)), choices["thresholds"], strict=True):
            device = mixer.out.weight.device
            tensors = Thresholds(*(torch.tensor(at[name], device=device) for name in Thresholds._fields))
            sparse = Sparse(mixer, self.config.block, self.config.select, choices["seed"], tensors)
            model.layers[number].mixer = sparse
        return model

    def report(self, choices: dict[str, Any]) -> dict[str, float]:
        return choices["measured"]


def everything(mixer: Mixer) -> Thresholds:
    """Thresholds that skip nothing."""
    values = torch.tensor([SIMILAR[0], MASS[-1], GAP[-1]], device=mixer.out.weight.device)
    return Thresholds(*values[:, None].expand(-1, mixer.heads))


def effect(layer: Sparse, q: Tensor, k: Tensor, v: Tensor, at: Thresholds) -> tuple[Tensor, Tensor, Tensor]:
    """(share of blocks of scores skipped, of values, relative L1 error of the output), each of the heads."""
    T, b = q.shape[2], layer.block
    A_BHTS, computed_BHTN, read_BHTN = layer.filtered(q, k, at)
    visible_TN = (
        torch.arange(computed_BHTN.shape[-1], device=q.device) <= torch.arange(T, device=q.device)[:, None] // b
    )
    skipped = [((~kept_BHTN) & visible_TN).sum(dim=(0, 2, 3)) / (visible_TN.sum() * len(q))
               for kept_BHTN in (computed_BHTN, read_BHTN)]  # fmt: skip
    exact_BHTV = ops.causal_softmax(ops.scores(q, k, layer.scale)) @ v
    error_H = (A_BHTS @ v - exact_BHTV).abs().sum(dim=(0, 2, 3)) / exact_BHTV.abs().sum(dim=(0, 2, 3))
    return skipped[0], skipped[1], error_H
