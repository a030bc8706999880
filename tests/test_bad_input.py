"""Bad input is refused in a sentence: some cases of each kind of file and of each command, the same at every run.

`make chaos` tries thousands; `tests.hostile` says what must not happen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from harness import errors, measured, metrics, yamlio
from harness.errors import UserError
from tests import hostile, hostile_commands, hostile_files
from tests.hostile import PLACES, WORDS, attempt, refused, value, word

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


def test_memory_time_and_files_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hostile, "MOST", 2**26)
    if hostile._forget_peak():
        with pytest.raises(AssertionError):
            attempt(st.just(0), lambda _: bytearray(2**28), 1)
    with pytest.raises(hostile.Hang), hostile.bounded(0.1):
        time.sleep(5)
    with pytest.raises(AssertionError, match="written outside"):
        refused((tmp_path / "here").mkdir, (tmp_path / "there",))


@pytest.mark.parametrize("kind", FILES)
def test_a_hostile_file(kind: str, tmp_path: Path):
    assert try_files(kind, tmp_path, 25) > 0


@pytest.mark.parametrize("command", hostile_commands.commands())
def test_a_hostile_command_line(command: str, tmp_path: Path):
    assert try_command(command, tmp_path, 8) > 0


RUN = ["softmax-00000000", "--task", "lm", "--seed", "0", "--profile", "smoke"]
MADE = ["--impl", "softmax", "--task", "lm", "--seed", "0", "--hf", "a/b"]
BLOCKED = ["--suite", "loss", "--untrained", "lm", "--seed", "0", "--profile", "smoke"]


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Path]:
    with hostile_commands.project(tmp_path / "project") as folder:
        yield folder


@pytest.mark.parametrize("name", [*PLACES, "a" * 300, "", "sоftmax", "Softmax", "con.", "nul ", "a\nb"])
def test_a_name_that_leads_elsewhere_writes_nothing(name: str, where: Path):
    for command, line in (("pretrained", [name, *MADE]), ("evaluate", [name, *BLOCKED])):
        said = hostile_commands.obey((command, line), where)
        assert isinstance(said, str)
        assert "names no run; names have up to 100 of a-z, 0-9, _ and -" in said
    said = hostile_commands.obey(("pretrained", ["softmax-00000000", *MADE, "--task", name]), where)
    assert "names no task" in str(said)
    assert not list((where / "results").glob("*/"))


@pytest.mark.parametrize(
    ("command", "line", "expected"),
    [
        ("train", [*RUN, "--seed", "-1"], 2),
        ("train", [*RUN, "--seed", "9" * 30], 2),
        ("train", [*RUN, "--seed", "٣"], 2),
        ("tune", [*RUN, "--device", "cuda:one"], 2),
        ("evaluate", ["softmax-00000000", *BLOCKED, "--threads", "0"], 2),
        ("train", ["\udcff", *RUN[1:]], "the argument '\\udcff' is not UTF-8; write it in UTF-8"),
        ("measure", ["a" * 300], "the model:"),
        ("seeds", ["--runs", "config/config.yaml"], "config/config.yaml is not there, or damaged; make it with"),
    ],
)
def test_an_argument_is_refused(command: str, line: list[str], expected: int | str, where: Path):
    said = hostile_commands.obey((command, line), where)
    assert said == expected or (isinstance(expected, str) and expected in str(said)), said


def test_a_damaged_table_is_one_sentence(tmp_path: Path):
    good = hostile_files.GOOD
    for damage in ({"seed": "x"}, {"n": "nan"}, {"length": "9" * 5000}, {"value": "half"}):
        with pytest.raises(UserError, match=r"^\S+/m\.csv cannot be read \(.*\); make it again with python -m harness"):
            read(tmp_path, [good | damage], [])
    for trainings in ({"a": 1}, [1], [{"run": "a"}], None, 3):
        with pytest.raises(UserError, match=r"^\S+/runs\.json cannot be read \(.*\); make it again"):
            read(tmp_path, [good], trainings)


def read(folder: Path, rows: list[dict[str, Any]], trainings: Any) -> None:
    hostile_files.write_tables(folder, ("csv", rows, trainings, b""))
    measured.read(folder / "m.csv", folder / "runs.json")


def test_a_key_that_no_file_can_mean_is_refused():
    assert "is not a metric" in refused(lambda: metrics.parse_key("loss/test/bits_per_byte@" + "9" * 5000))
    assert "line break" in refused(lambda: yamlio.parse(b'"a\\nb": 1\n', "x.yaml"))


def test_a_file_that_the_system_refuses_is_named():
    with pytest.raises(SystemExit) as left:
        errors.leave(lambda: len(Path("a" * 300).read_text()))
    assert left.value.code == f"{'a' * 200}: File name too long"
