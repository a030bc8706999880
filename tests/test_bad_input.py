"""Bad input is refused in a sentence: some cases of each kind of file and of each command, the same at every run.

`make chaos` tries thousands; `tests.hostile` says what must not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests import hostile_commands, hostile_files
from tests.hostile import WORDS, attempt, value, word

Case = tuple[st.SearchStrategy[Any], Callable[[Path, Any], object]]

FILES: dict[str, Case] = {
    "yaml": (
        st.text(alphabet="ab:-?[]{},&*!|>'\"%@`#\n\t <.0e_~\\Ux\u2028\x85", max_size=120) | st.sampled_from(WORDS),
        lambda folder, case: hostile_files.yaml(case),
    ),
    "paper": (hostile_files.changed("papers/*.yaml"), hostile_files.paper),
    "arguments": (hostile_files.runs(), hostile_files.arguments),
    "profile": (hostile_files.changed("config/profiles/*.yaml"), hostile_files.profile),
    "config": (hostile_files.changed("config/config.yaml"), hostile_files.configuration),
    "overrides": (
        st.dictionaries(st.sampled_from(["profile", "papers", "seeds", "suites", "device", "hub"]) | word, value),
        lambda folder, case: hostile_files.overrides(case),
    ),
    "measurements": (hostile_files.tables, hostile_files.measurements),
    "prose": (
        hostile_files.texts | st.sampled_from(hostile_files.LONG),
        lambda folder, case: hostile_files.written(case),
    ),
}


def try_files(kind: str, folder: Path, count: int) -> int:
    strategy, check = FILES[kind]
    return attempt(strategy, lambda case: check(folder, case), count)


def try_command(command: str, folder: Path, count: int) -> int:
    with hostile_commands.project(folder / "project") as where:
        return attempt(hostile_commands.lines(command), lambda case: hostile_commands.obey(case, where), count)


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is imported late writes caches, which are none of a case's doing."""
    import torch._dynamo
    import torch._inductor.config  # noqa: F401

    monkeypatch.setattr("sys.dont_write_bytecode", True)
    hostile_files.fields()


@pytest.mark.parametrize("kind", FILES)
def test_a_hostile_file(kind: str, tmp_path: Path):
    assert try_files(kind, tmp_path, 25) > 0


@pytest.mark.parametrize("command", hostile_commands.commands())
def test_a_hostile_command_line(command: str, tmp_path: Path):
    assert try_command(command, tmp_path, 8) > 0
