"""AdamW and the learning rate.

`torch.optim` is not imported: building any of its optimizers loads torch's compiler, 1.3 seconds on a laptop, more
than some runs of a mechanism take. The kernel below is the one that `torch.optim.AdamW(fused=True)` calls, and a test
holds the two equal bit for bit.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.tasks import TrainSettings


class AdamW:
    """Decoupled weight decay (arXiv:1711.05101), with one fused call for each group of parameters."""

    def __init__(self, groups: list[dict[str, Any]], settings: TrainSettings):
        self.beta1, self.beta2, self.eps = settings.beta1, settings.beta2, settings.eps
        self.groups = [
            {
                "params": group["params"],
                "weight_decay": group["weight_decay"],
                "mean": [torch.zeros_like(p) for p in group["params"]],
                "square": [torch.zeros_like(p) for p in group["params"]],
                "steps": [torch.zeros((), dtype=torch.float32, device=p.device) for p in group["params"]],
            }
            for group in groups
            if group["params"]
        ]
        self.params: list[Tensor] = [p for group in self.groups for p in group["params"]]

    def gradients(self) -> list[Tensor]:
        """Of every parameter; a missing one is zero."""
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return [p.grad for p in self.params if p.grad is not None]

    def clip(self, limit: float) -> float:
        """Scale all gradients so that their norm is at most `limit`; the norm before."""
        grads = self.gradients()
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))).item()
        if norm > limit:
            torch._foreach_mul_(grads, limit / norm)
        return norm

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update, and gradients cleared."""
        for group in self.groups:
            torch._foreach_add_(group["steps"], 1)
            torch._fused_adamw_(
                group["params"],
                [p.grad for p in group["params"]],
                group["mean"],
                group["square"],
                [],
                group["steps"],
                lr=lr,
                beta1=self.beta1,
                beta2=self.beta2,
                weight_decay=group["weight_decay"],
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )
        for p in self.params:
            p.grad = None

    def state(self) -> list[Tensor]:
        """Everything that `load_state` needs, in a fixed order."""
        return [t for group in self.groups for name in ("mean", "square", "steps") for t in group[name]]

    def load_state(self, tensors: list[Tensor]) -> None:
        """Raises ValueError when the tensors are of another model."""
        mine = self.state()
        if [t.shape for t in mine] != [t.shape for t in tensors]:
            raise ValueError("the optimizer state is of another model")
        for own, saved in zip(mine, tensors, strict=True):
            own.copy_(saved)


def learning_rate(step: int, settings: TrainSettings) -> float:
    """Of step 0, 1, …: linear from lr / warmup to lr, then a cosine down to floor · lr at the last step."""
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    done = (step - settings.warmup + 1) / max(1, settings.steps - settings.warmup)
    return settings.lr * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * done)))
