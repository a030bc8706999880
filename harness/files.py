"""Files that are either old or new, never half: atomic writes, strict JSON, checksums."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.parent import alive

SUMS = "SHA256SUMS"  # checksums of a folder's files, as `sha256sum --check` reads them


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Write beside the target, flush to disk, then rename over it. Makes parent folders; text is UTF-8.

    What a killed writer of the same file left is removed. Raises OSError that names the file when it cannot be written.
    """
    path = Path(path)
    if not path.name:  # "." and "/"
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    side = path.with_name(f".{path.name}.{os.getpid()}@{os.uname().nodename}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        with side.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        side.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            side.unlink()


def remove(path: Path) -> None:
    """Remove a file, if it is there, and what a killed writer of it left."""
    path.unlink(missing_ok=True)
    _sweep(path)


def _sweep(path: Path) -> None:
    """Remove what writers of this file left that were killed on this machine."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*@{glob.escape(os.uname().nodename)}.tmp"):
        pid = left.name.removeprefix(f".{path.name}.").partition("@")[0]
        if pid.isdigit() and not alive(int(pid)):
            left.unlink(missing_ok=True)


def dump_json(value: Any) -> str:
    """Strict JSON with sorted keys, the same text for equal values. Raises ValueError for NaN and infinity."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: str | Path, value: Any) -> None:
    """Write `dump_json(value)` atomically."""
    write_atomic(path, dump_json(value))


def read_json(path: str | Path) -> Any:
    """The value of a UTF-8 JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def sha256_file(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(*values: Any) -> str:
    """Hexadecimal SHA-256 of values that JSON can hold, to be kept beside them."""
    return hashlib.sha256(dump_json(values).encode()).hexdigest()


def write_sums(folder: Path, *names: str) -> None:
    """Write the checksums of these files of a folder beside them."""
    write_atomic(folder / SUMS, "".join(f"{sha256_file(folder / name)}  {name}\n" for name in names))


def verify(path: Path, maker: str) -> None:
    """Raises UserError where the checksums beside a file list it with another content. `maker` is a command."""
    sums = path.with_name(SUMS)
    if path.is_file() and sums.is_file():
        lines = sums.read_text(encoding="utf-8").splitlines()
        listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        if path.name in listed and listed[path.name] != sha256_file(path):
            raise UserError(f"{path} is damaged (its SHA-256 is not that of {sums}); make it again with {maker}")


def read_made(path: Path, maker: str) -> Any:
    """The value of a JSON file that a build makes. Raises UserError where it is not there or damaged; see `verify`."""
    try:
        verify(path, maker)
        return read_json(path)
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{path} is not there, or damaged; make it with {maker}") from None
