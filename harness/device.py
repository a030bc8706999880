"""Where tensors live, and one job on each GPU at a time.

Snakemake's `gpu=1` limits how many jobs run and tells none of them which GPU is theirs, so a job takes a free one by
locking a file. The system lets go of the lock when the job ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import UserError

POLL = 0.2  # seconds between looks for a free GPU


@contextmanager
def claim(name: str, threads: int = 1) -> Iterator[str]:
    """The device to use, of `auto`, `cpu`, `cuda` or `cuda:1`, until the block ends; torch is set up for it.

    `auto` is a GPU where there is one. Waits while all GPUs are taken. Raises UserError when there is no such GPU.
    """
    import torch

    torch.set_num_threads(threads)
    wanted = name
    if name == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        yield wanted
        return
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    choices = list(range(gpus)) if wanted == "cuda" else [int(wanted.removeprefix("cuda:"))]
    if not choices or max(choices) >= gpus:
        raise UserError(f"device {name!r}: this machine has {gpus} usable GPUs; set device: cpu or auto")
    with _slot(choices) as index:
        torch.cuda.set_device(index)
        yield f"cuda:{index}"


@contextmanager
def _slot(choices: list[int]) -> Iterator[int]:
    """The first of these GPUs that no other job holds."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    while True:
        for index in choices:
            real = visible[index] if index < len(visible) and visible[index] else str(index)
            with (slots() / f"gpu-{real}.lock").open("w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                yield index
                return
        time.sleep(POLL)


def slots() -> Path:
    """The folder of the lock files, one for each user and machine."""
    folder = Path(tempfile.gettempdir()) / f"attest-slots-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
