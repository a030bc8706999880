"""Adam without `torch.optim`, which loads torch's compiler: that takes longer than some studies do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Adam:
    """arXiv:1412.6980; the learning rate falls to zero along a cosine over the announced number of steps."""

    def __init__(self, params: Sequence[Tensor], lr: float, steps: int, beta1: float = 0.9, beta2: float = 0.999):
        self.params, self.lr, self.steps, self.beta1, self.beta2 = list(params), lr, steps, beta1, beta2
        self.mean, self.square = ([torch.zeros_like(p) for p in self.params] for _ in range(2))
        self.done = 0

    def step(self, loss: Tensor) -> None:
        """One update along the gradient of `loss`. Raises FloatingPointError where the loss is not finite."""
        grads = torch.autograd.grad(loss, self.params, materialize_grads=True)
        lr = 0.5 * self.lr * (1 + math.cos(math.pi * self.done / self.steps))
        self.done += 1
        with torch.no_grad():
            if not loss.isfinite():
                raise FloatingPointError(f"the loss is {float(loss)} at step {self.done}")
            for p, g, m, v in zip(self.params, grads, self.mean, self.square, strict=True):
                m.lerp_(g, 1 - self.beta1)
                v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
                root = (v / (1 - self.beta2**self.done)).sqrt_().add_(1e-8)
                p.addcdiv_(m, root, value=-lr / (1 - self.beta1**self.done))
