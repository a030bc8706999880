"""Equal bits on one machine."""

from __future__ import annotations

import os

import torch


def be_deterministic(device: str) -> None:
    """Equal bits on one machine, or an error; on a GPU a warning where torch has no deterministic kernel.

    The debug mode is the same switch as `use_deterministic_algorithms`, which loads torch's compiler first: 1.3 s.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_deterministic_debug_mode("warn" if device.startswith("cuda") else "error")
    # Filling new memory with NaN is a check for tests: it costs a pass over every tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
