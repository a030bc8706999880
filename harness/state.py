"""The state of an unfinished run on disk: whole and of this very run, or not used at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from harness.files import write_atomic

MAGIC = b"attest resume state 1\n"


def save(path: Path, fingerprint: str, payload: dict[str, Any]) -> None:
    """Write the payload (tensors, numbers, text, and lists and dicts of them) atomically."""
    buffer = BytesIO()
    torch.save({"fingerprint": fingerprint, **payload}, buffer)
    content = buffer.getvalue()
    write_atomic(path, MAGIC + hashlib.sha256(content).digest() + content)


def load(path: Path, fingerprint: str, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The payload; None, after saying why, when the file is damaged or is of a run with other settings or code."""
    if not path.exists():
        return None
    whole = path.read_bytes()
    content = whole[len(MAGIC) + 32 :]
    if whole[: len(MAGIC)] != MAGIC or hashlib.sha256(content).digest() != whole[len(MAGIC) : len(MAGIC) + 32]:
        say(f"{path} is damaged, so it is not used: training starts from step 0")
        return None
    try:
        payload = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # torch has no one class for what it does not let in
        say(f"{path} holds what no run saves, so it is not used: training starts from step 0")
        return None
    if payload.pop("fingerprint") != fingerprint:
        say(f"{path} is of other settings, code or data, so it is not used: training starts from step 0")
        return None
    return payload
