"""Files are old or new, never half; JSON is strict and the same text for equal values."""

from __future__ import annotations

import errno
import math
import os
import subprocess
from pathlib import Path

import pytest

from harness import errors, files
from harness.errors import UserError


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


def test_what_a_killed_writer_left_goes_with_the_next_write_or_removal(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    node = os.uname().nodename
    here, elsewhere = (tmp_path / f".c.txt.{ended.pid}@{name}.tmp" for name in (node, "another-machine"))
    at_work = tmp_path / f".c.txt.{os.getppid()}@{node}.tmp"
    other = tmp_path / f".d.txt.{ended.pid}@{node}.tmp"
    for change in (lambda path: files.write_atomic(path, "new"), files.remove):
        for left in (here, elsewhere, at_work, other):
            left.write_text("half")
        change(tmp_path / "c.txt")
        assert not here.exists()
        assert elsewhere.exists()
        assert at_work.exists()
        assert other.exists()


def test_a_write_that_fails_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError, match=r"a/b/c\.txt"):
        files.write_atomic(tmp_path / "a" / "b" / "c.txt", "new")


def test_a_file_with_another_content_than_its_sum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("abc")
    files.verify(path, "make c")  # nothing says what it should hold
    files.write_sums(tmp_path, "c.txt")
    assert (tmp_path / files.SUMS).read_text() == f"{files.sha256_file(path)}  c.txt\n"
    files.verify(path, "make c")
    path.write_text("abd")
    with pytest.raises(UserError, match=r"c\.txt is damaged .*; make it again with make c"):
        files.verify(path, "make c")


def test_a_file_is_hashed_once_where_its_sum_is_listed_and_else_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    files.write_sums(tmp_path, "a")
    hashed: list[Path] = []
    real = files.sha256_file
    monkeypatch.setattr(files, "sha256_file", lambda path: [hashed.append(path), real(path)][1])
    files.verify(tmp_path / "a", "make a")
    files.verify(tmp_path / "b", "make b")
    assert hashed == [tmp_path / "a"]


def test_a_table_that_is_not_there_or_damaged_is_named_with_its_maker(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for damaged in (None, b"[1", b"\xff", b"[" * 100_000):
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"c\.json is not there, or damaged; make it with make c$"):
            files.read_made(path, "make c")
    path.write_text("[1]")
    assert files.read_made(path, "make c") == [1]
    (tmp_path / files.SUMS).write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"make it with make c$"):
        files.read_made(path, "make c")


def test_a_seal_is_of_every_value() -> None:
    assert files.seal("a", {"x": 1, "y": 2}) == files.seal("a", {"y": 2, "x": 1})
    assert len({files.seal(), files.seal("a"), files.seal("a", "b"), files.seal(["a", "b"]), files.seal("ab")}) == 5


def test_a_command_says_what_the_machine_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "results/x")

    with pytest.raises(SystemExit, match=r"^results/x: No space left on device; free some space, then run this again$"):
        errors.leave(full)


@pytest.mark.parametrize("place", ["", ".", "/"])
def test_a_folder_is_no_file_to_write(place: str):
    with pytest.raises(IsADirectoryError) as caught:
        files.write_atomic(place, "x")
    assert caught.value.filename == (place or ".")
