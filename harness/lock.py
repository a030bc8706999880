"""A lock that ends with the process that holds it, killed or not."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from harness.errors import UserError

_held = []  # open files: the system frees a lock when its file closes


def hold(path: str | Path) -> None:
    """Hold this lock file until the process ends. Raises UserError with the holder when another process has it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise UserError(f"{path} is held by process {file.read()}, at work in this folder; wait or stop it") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _held.append(file)
