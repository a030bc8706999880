"""Files that are either old or new, never half: atomic writes, strict JSON, checksums."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Write beside the target, flush to disk, then rename over it. Makes parent folders; text is UTF-8."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    side = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with side.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        side.replace(path)
    finally:
        side.unlink(missing_ok=True)


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
