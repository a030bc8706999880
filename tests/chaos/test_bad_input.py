"""Thousands of hostile files and command lines, where `tests/test_bad_input.py` tries some of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests import hostile_commands
from tests.test_bad_input import FILES, try_command, try_files, warm

__all__ = ["warm"]
pytestmark = pytest.mark.chaos

EACH_FILE, EACH_COMMAND = 600, 100


@pytest.mark.parametrize("kind", FILES)
def test_hostile_files(kind: str, tmp_path: Path, counts: Counter[str]):
    counts["hostile files"] += try_files(kind, tmp_path, EACH_FILE)


@pytest.mark.parametrize("command", hostile_commands.commands())
def test_hostile_command_lines(command: str, tmp_path: Path, counts: Counter[str]):
    counts["hostile command lines"] += try_command(command, tmp_path, EACH_COMMAND)
