"""Generated data on disk, made once for all runs: named by all that it depends on, and checked when read again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.files import dump_json, write_atomic
from harness.ruler.fill import Encode, Sample, TooShort
from harness.ruler.material import Material
from harness.ruler.tasks import build

FOLDER = Path("results/data/ruler")


class Data(NamedTuple):
    """The samples of one cell and their SHA-256; or none, and why."""

    samples: list[Sample]
    digest: str
    refused: str | None = None


@cache
def version() -> str:
    """A digest of the generator's source: another generator, other files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def get(
    task: str,
    length: int,
    count: int,
    seed: int,
    encode: Encode,
    tokenizer: str,
    material: Material,
    folder: Path = FOLDER,
) -> Data:
    """The data of a cell, from disk or new; `tokenizer` is a digest of what `encode` does."""
    parts = json.dumps([version(), task, length, count, seed, tokenizer, material.digest])
    path = folder / f"{task}-{length}-{seed}-{hashlib.sha256(parts.encode()).hexdigest()[:16]}.json"
    known = _read(path)
    if known is not None:
        return known
    try:
        made = Data(samples := build(task, length, count, seed, encode, material), digest(samples))
    except TooShort as error:
        made = Data([], digest([]), str(error))
    plain = [dataclasses.asdict(sample) for sample in made.samples]
    write_atomic(path, dump_json(made._asdict() | {"samples": plain}))
    return made


def digest(samples: list[Sample]) -> str:
    """SHA-256 of everything in the samples."""
    return hashlib.sha256(dump_json([dataclasses.asdict(sample) for sample in samples]).encode()).hexdigest()


def _read(path: Path) -> Data | None:
    """What the file holds, if it is whole."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        samples = [
            Sample(s["prompt"], tuple(s["outputs"]), tuple(s["depths"]), s["tokens"], s["budget"])
            for s in content["samples"]
        ]
        found = Data(samples, content["digest"], content["refused"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if digest(found.samples) == found.digest else None
