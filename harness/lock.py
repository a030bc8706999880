"""A lock that ends with the process that holds it, killed or not."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from harness.errors import UserError

_held = []  # open files: the system frees a lock when its file closes


def hold(path: str | Path, *, wait: bool = False) -> None:
    """Hold this lock file until the process ends. Where another has it: wait and say so, or raise UserError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = f"process {file.read()}, which holds {path}"
        if not wait:
            raise UserError(f"{holder}, is at work here; wait for it or stop it") from None
        print(f"waiting for {holder}", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _held.append(file)
