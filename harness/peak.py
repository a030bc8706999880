"""The most memory that a piece of work holds at one time.

On a GPU torch's allocator counts it, after a first go in which kernels choose their tiles, for which Triton holds
hundreds of megabytes. A CPU's does not count, so the tensors that the work makes are watched: each storage counts from
the call that returns it until nobody holds it, autograd among them. What a kernel allocates and frees inside one call
is not seen.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.timing import Work


class Watch(TorchDispatchMode):
    """Bytes of the storages that were made inside the block: `now` and, at their most, `peak`."""

    def __init__(self):
        super().__init__()
        self.now, self.peak = 0, 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(out):
            if storage._cdata not in given and storage._cdata not in self._alive:
                self._add(storage)
        return out

    def _add(self, storage: Any) -> None:
        place, size = storage._cdata, storage.nbytes()

        def gone(_: object) -> None:
            del self._alive[place]
            self.now -= size

        self._alive[place] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def _storages(tree: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def peak_bytes(work: Work, device: str) -> int:
    """The most that `work` holds at one time beyond what was held before."""
    if device.startswith("cuda"):
        work()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    with Watch() as watch:
        work()
    return watch.peak
