"""What a job of the workflow says, line by line with the time and its name, and whether it is still at work.

A job that writes into results/log holds that file locked until it ends, however it ends: who looks at the log from
another shell, or another machine on the same disk, knows whether its job is alive.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

LOGS = Path("results/log")
START = 120  # seconds until a job that has said nothing is given up: imports take long on a busy machine
OUTPUTS = Path("/proc/self/fd")  # where Linux tells into which files a process writes
_held = []  # open files: the system frees a lock when its file closes


class Stamped:
    """A stream whose lines begin with the time, in UTC, and a name."""

    def __init__(self, stream: TextIO, name: str):
        self._stream, self._name, self._fresh = stream, name, True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            if self._fresh:
                self._stream.write(f"{now()} {self._name} ")
            self._stream.write(line)
            self._fresh = line.endswith("\n")
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def begin() -> None:
    """Where standard output is a log of the workflow: lock it, stamp every line, and say who writes. Else nothing."""
    path = _own()
    if path is None:
        return
    file = path.open("rb")
    with suppress(OSError):  # a disk without locks
        fcntl.flock(file, fcntl.LOCK_SH)  # shared: who asks holds it for an instant, and a lost job may live on
    _held.append(file)
    sys.stdout, sys.stderr = (cast(TextIO, Stamped(stream, path.stem)) for stream in (sys.stdout, sys.stderr))
    print(f"process {os.getpid()} on {socket.gethostname()}", file=sys.stderr, flush=True)


def held(path: str | Path) -> bool:
    """Whether a living process is known to hold this file: the job that writes a log, the build of a lock file.

    On NFS an exclusive lock needs a file that is open for writing (https://man7.org/linux/man-pages/man2/flock.2.html).
    """
    try:
        with Path(path).open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, no right to write to it, or a disk without locks
        return False
    return False


def tells() -> bool:
    """Whether jobs hold their logs here: where the system does not tell them what they write into, none does."""
    return OUTPUTS.is_dir()


def starts(path: str | Path) -> bool:
    """Whether the job of this log was started a moment ago and has not come to `begin` yet."""
    found = Path(path).stat()
    return found.st_size == 0 and time.time() - found.st_mtime < START


def began(path: str | Path) -> datetime | None:
    """When the job of this log began; None where the log does not say."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return datetime.fromisoformat(file.readline().partition(" ")[0])
    except (OSError, ValueError):
        return None


def last(path: str | Path) -> str:
    """The last line of a log without its stamp; nothing where there is none."""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    stamp = f" {Path(path).stem} "
    return lines[-1].partition(stamp)[2] or lines[-1] if lines else ""


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _own() -> Path | None:
    """The log that standard output goes into, where the system tells."""
    try:
        path = Path(os.readlink(OUTPUTS / str(sys.stdout.fileno())))
    except (OSError, ValueError, AttributeError):
        return None
    return path if path.is_relative_to(LOGS.resolve()) and path.is_file() else None
