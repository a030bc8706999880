"""A lock that ends with the process that holds it, killed or not."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TextIO

from harness.errors import UserError

_held = []  # open files: the system frees a lock when its file closes


def hold(path: str | Path, *, wait: bool = False) -> None:
    """Hold this lock file until the process ends. Where another has it: wait and say so, or raise UserError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    if not _free(file):
        file.seek(0)
        holder = f"process {file.read()}, which holds {path}"
        if not wait:
            raise UserError(f"{holder}, is at work here; wait for it or stop it")
        print(f"waiting for {holder}", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _held.append(file)


def _free(file: TextIO) -> bool:
    """Take the lock, if no other has it. Asked twice: who looks whether it is held has it for an instant."""
    for patience in (0.1, 0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(patience)
    return False
