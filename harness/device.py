"""Where tensors live, and one job on each GPU at a time.

Snakemake's `gpu=1` limits how many jobs run and tells none of them which GPU is theirs, so a job takes a free one by
locking a file, and sees no other in `CUDA_VISIBLE_DEVICES`. The system lets go of the lock when the job ends, however
it ends.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    # counted without starting CUDA, which reads CUDA_VISIBLE_DEVICES once
    # (https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#poison-fork-in-multiprocessing)
    gpus = 0 if name == "cpu" else torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and not gpus):
        yield "cpu"
        return
    choices = [int(name.removeprefix("cuda:"))] if name.startswith("cuda:") else list(range(gpus))
    if not choices or max(choices) >= gpus:
        raise UserError(f"device {name!r}: this machine has {gpus} usable GPUs; set device: cpu or auto")
    with slot(choices) as index:
        usable = torch.cuda.is_available()
        if usable:
            torch.cuda.init()
            here = 0 if torch.cuda.device_count() == 1 else index  # all are seen where CUDA had been started before
            torch.cuda.set_device(here)
            yield f"cuda:{here}"
    if not usable:  # a driver that is too old, or broken
        if name != "auto":
            raise UserError(f"device {name!r}: CUDA does not start on this machine; set device: cpu or auto")
        yield "cpu"


@contextmanager
def slot(choices: Sequence[int]) -> Iterator[int]:
    """The first of these GPUs that no other job holds, and the only one that programs started from here on see."""
    visible = _listed("CUDA_VISIBLE_DEVICES")
    names = _on_the_machine(visible)
    while True:
        for index in choices:
            real = names[index] if index < len(names) else str(index)
            with (slots() / f"gpu-{real.replace('/', '-')}.lock").open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                os.environ["CUDA_VISIBLE_DEVICES"] = visible[index] if index < len(visible) else str(index)
                yield index
                return
        time.sleep(POLL)


def _on_the_machine(visible: list[str]) -> list[str]:
    """What the whole machine calls the visible GPUs.

    Where Slurm confines jobs to their GPUs, each job counts its own from 0 and finds the numbers of the machine in
    SLURM_JOB_GPUS, or for a step in SLURM_STEP_GPUS (https://slurm.schedmd.com/sbatch.html).
    """
    given = _listed("SLURM_STEP_GPUS") or _listed("SLURM_JOB_GPUS")
    return given if len(given) == len(visible) else visible


def _listed(variable: str) -> list[str]:
    return [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]


def slots() -> Path:
    """The folder of the lock files, one for each user and machine. Raises UserError where another user laid it."""
    folder = Path(tempfile.gettempdir()) / f"attest-slots-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{folder} is not a folder of your own; remove it, or let TMPDIR name a folder that is yours")
    return folder
