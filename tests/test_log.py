"""Who looks whether a file is held: on disks that know locks only half, and beside one who takes the lock."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
from pathlib import Path
from typing import TextIO

import pytest

from harness import lock, log
from harness.errors import UserError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.log").write_text("said\n")
    return tmp_path / "a.log"


def test_an_exclusive_lock_is_asked_for_with_a_file_that_can_be_written(path: Path, monkeypatch: pytest.MonkeyPatch):
    """As NFS wants it."""
    real = fcntl.flock

    def flock(file: TextIO, how: int) -> None:
        written = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        if how & fcntl.LOCK_EX and not written:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with path.open() as file:
        real(file, fcntl.LOCK_SH)
        assert log.held(path)
    assert not log.held(path)
    assert path.read_text() == "said\n"


def test_on_a_disk_without_locks_nobody_is_known_to_hold_a_file(path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(file: TextIO, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    assert not log.held(path)
    monkeypatch.setattr(log, "_own", lambda: path)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))  # to be put back
    log.begin()
    log._held.pop().close()
    assert not log.held(path)


def test_what_is_not_there_or_no_file_is_not_held(tmp_path: Path):
    assert not log.held(tmp_path / "none.log")
    assert not log.held(tmp_path)


def test_a_look_at_a_lock_is_in_nobodys_way_and_a_holder_is(path: Path):
    with path.open("a") as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="is at work here; wait for it or stop it"):
            lock.hold(path)
        gone = threading.Timer(0.02, fcntl.flock, (looking, fcntl.LOCK_UN))
        gone.start()
        lock.hold(path)
        gone.join()
    assert log.held(path)
    lock._held.pop().close()
    assert not log.held(path)
