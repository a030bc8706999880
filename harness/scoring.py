"""A model over rows of tokens, in batches that fit in memory: what its predictions cost and whether they are right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.tasks import IGNORE

LARGEST = 16 * 2**20  # bytes of the largest tensor of several rows (attention matrix, logits): stays in a CPU's cache


def rows_that_fit(length: int, heads: int, vocab: int) -> int:
    """Rows of `length` tokens in one batch, at least one, so that fp32 [B,H,T,T] and [B,T,V] stay small."""
    return max(1, LARGEST // (4 * length * max(heads * length, vocab)))


def logits(
    model: nn.Module, inputs_NT: np.ndarray, targets_NT: np.ndarray, rows: int, device: str | torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits_BTV, targets_BT) of `rows` rows at a time, in order; in fp32 whatever the model was trained in."""
    for first in range(0, len(inputs_NT), rows):
        pick = slice(first, first + rows)
        yield model(torch.from_numpy(inputs_NT[pick]).to(device)).float(), torch.from_numpy(targets_NT[pick]).to(device)


def nats(
    model: nn.Module, inputs_NT: np.ndarray, targets_NT: np.ndarray, rows: int, device: str | torch.device
) -> np.ndarray:
    """-log p of each target given the row up to it: nats_NT in float64, NaN or infinite where the model is."""
    parts = []
    for logits_BTV, targets_BT in logits(model, inputs_NT, targets_NT, rows, device):
        nats_N = cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none")
        parts.append(nats_N.view_as(targets_BT))
    return torch.cat(parts).double().cpu().numpy()


def credit(
    model: nn.Module, inputs_NT: np.ndarray, targets_NT: np.ndarray, rows: int, device: str | torch.device
) -> np.ndarray:
    """Credit of each scored target (`harness.tasks.IGNORE` is not): credit_NQ, Q targets in every row."""
    parts = []
    for logits_BTV, targets_BT in logits(model, inputs_NT, targets_NT, rows, device):
        scored_BT = targets_BT != IGNORE
        parts.append(argmax_credit(logits_BTV[scored_BT], targets_BT[scored_BT]).view(len(targets_BT), -1))
    return torch.cat(parts).cpu().numpy()


def argmax_credit(logits_QV: Tensor, targets_Q: Tensor) -> Tensor:
    """1 where the target alone has the highest logit, 1/k where k tokens share it, else 0; NaN if a logit is no number.

    Sharing a tie makes a constant model score 1/V exactly, whichever order the vocabulary has.
    """
    top_QV = logits_QV == logits_QV.amax(dim=-1, keepdim=True)
    hit_Q = top_QV.gather(-1, targets_Q[:, None])[:, 0]
    credit_Q = hit_Q.double() / top_QV.sum(dim=-1)
    return credit_Q.masked_fill(~logits_QV.isfinite().all(dim=-1), torch.nan)
