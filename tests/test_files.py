"""Files are old or new, never half; JSON is strict and the same text for equal values."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from harness import files


def test_a_write_makes_folders_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    files.write_atomic(path, "Δ\n")
    files.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [found.name for found in path.parent.iterdir()] == ["c.txt"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.txt"
    files.write_atomic(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["c.txt"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_without_a_number_is_refused_and_writes_nothing(value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "x.json", {"a": [value]})
    assert not list(tmp_path.iterdir())


def test_equal_values_are_equal_text(tmp_path: Path) -> None:
    assert files.dump_json({"b": "é", "a": [1, None]}) == files.dump_json({"a": [1, None], "b": "é"})
    files.write_json(tmp_path / "x.json", {"b": "é"})
    assert files.read_json(tmp_path / "x.json") == {"b": "é"}
    assert "é" in (tmp_path / "x.json").read_text(encoding="utf-8")


def test_a_checksum_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert files.sha256_file(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
