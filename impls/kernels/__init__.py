"""Triton kernels, and when they are used.

With `ATTEST_KERNELS=1` in the environment, `@dispatched(score_map.sigmoid)` on a mechanism's `attend` runs that kernel
for CUDA tensors of a supported kind, and the decorated function for all others; `attend.reference` is the decorated
function, on any device. Triton is imported when the first kernel runs. They are off unless asked for: they were tested
in Triton's interpreter and compiled, but have not run on a GPU yet. `python -m benchmarks.gpu` holds them to the
equations there.

    score_map     one pass over scores: softmax and its relatives
    delta_chunk   chunkwise recurrences: linear attention, decays, delta rules; `ops.decay_scan` and `ops.delta_scan`
                  call it themselves
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDEST = 256  # of keys and of values, one head
CALLS = re.compile(r"^@dispatched\(|\b(ops\.(decay|delta)_)?scan\(", re.MULTILINE)  # where a mechanism has a kernel


def usable(*tensors: Tensor) -> bool:
    """Whether kernels are on and take these: on CUDA, no wider than 256, in half precision, bfloat16 or float32."""
    return os.environ.get("ATTEST_KERNELS") == "1" and all(
        z.is_cuda and z.dtype in DTYPES and z.shape[-1] <= WIDEST and z.numel() for z in tensors
    )


def dispatched(kernel: Callable[..., Tensor]) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Decorates `attend(q, k, v, ...)`: `kernel`, of the same arguments, takes over where `usable`."""

    def decorate(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(attend)
        def either(q: Tensor, k: Tensor, v: Tensor, *args: object, **quantities: object) -> Tensor:
            return (kernel if usable(q, k, v) else attend)(q, k, v, *args, **quantities)

        chosen: Any = either if torch.version.cuda else attend  # a build without CUDA has nothing to choose
        chosen.reference = attend
        return chosen

    return decorate


def has(impl: str) -> bool:
    """Whether this mechanism has a kernel. Read from its text: nothing is imported."""
    return bool(CALLS.search((Path(__file__).parents[1] / f"{impl}.py").read_text(encoding="utf-8")))
