"""Hostile command lines: every `python -m harness.*` with arguments made from its own parser."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from harness import errors, lock, plan, status
from tests.hostile import refused, word

ROOT = Path(__file__).parents[1]
WORK = {  # what a command does once its arguments are accepted, where that takes long or needs a network
    "train": "train",
    "tune": "tune",
    "apply": "make",
    "study": "make",
    "noise": "repeat",
    "data": "make",
    "vendor": "make",
    "prove": "prove_all",
    "pretrained": "load",
    "audit": "tool",
}
OUT = ["", ".", "results", "results/a/b", "a" * 300, "~root", "results/../out"]
MADE = ["papers", "impls", "tests"]  # where `harness.new` writes
LISTEN = {"report.drawing", "proofs.vectors"}  # take no arguments: one reads lines, one writes the vectors of the tests


@cache
def commands() -> dict[str, Any]:
    """Every module of the harness that is a command, by its name after `harness.`."""
    found = [path for path in (ROOT / "harness").rglob("*.py") if '__name__ == "__main__"' in path.read_text()]
    names = [".".join(path.relative_to(ROOT / "harness").with_suffix("").parts) for path in sorted(found)]
    return {name: importlib.import_module(f"harness.{name}") for name in names if name not in LISTEN}


class _Parser(Exception):
    pass


@cache
def options(command: str) -> list[argparse.Action]:
    """What the parser of a command asks for."""
    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", lambda self, *_: (_ for _ in ()).throw(_Parser(self))),
        mock.patch.object(sys, "argv", [command]),
    ):
        try:
            commands()[command].main()
        except _Parser as found:
            actions = found.args[0]._actions
            return [action for action in actions if not {"--help", "--watch"} & set(action.option_strings)]
    raise AssertionError(f"{command} parses no arguments")


@cache
def ids() -> list[str]:
    """The runs of the project that the commands stand in."""
    return list(plan.Plan.load({"profile": "smoke", "papers": ["gla"]}).runs)


def good(option: str) -> list[str]:
    """Values that get past the parser, for most options: one bad argument among good ones gets furthest."""
    known = {
        "run": [*ids(), "softmax-00000000"],
        "--profile": ["smoke"],
        "--task": ["lm", "recall"],
        "--seed": ["0"],
        "--suite": ["loss"],
        "--suites": ["loss"],
        "--seeds": ["0"],
        "--papers": ["gla", "all"],
        "--orders": ["1"],
        "--impl": ["softmax", "tried"],
        "--device": ["cpu"],
        "--threads": ["1"],
        "--jobs": ["1"],
        "--hf": ["a/b"],
        "before": ["latest"],
        "after": ["latest"],
        "impls": ["softmax"],
        "arxiv": ["2401.01234"],
        "--untrained": ["lm", "recall"],
        "--out": ["results/out"],
        "command": ["check", "schema"],
    }
    return known.get(option, [])


@st.composite
def lines(draw: st.DrawFn, command: str) -> tuple[str, list[str]]:
    """A command and its arguments, about one in five of them hostile."""
    line: list[str] = []
    for action in options(command):
        if action.option_strings and draw(st.integers(0, 9)) < (1 if action.required else 4):
            continue
        name = action.option_strings[0] if action.option_strings else action.dest
        line += [name] if action.option_strings else []
        if action.nargs == 0:
            continue
        known = [str(choice) for choice in action.choices or good(name)]
        for _ in range(draw(st.integers(1, 2)) if action.nargs in ("+", "*") else 1):
            hostile = not known or draw(st.integers(0, 4)) == 0
            bad = st.sampled_from(OUT) if name == "--out" else word  # what is to be written is written where it says
            line.append(draw(bad if hostile else st.sampled_from(known)).replace("\0", ""))  # execve passes on no NUL
        if isinstance(action, argparse._SubParsersAction):
            line += draw(st.lists(word.map(lambda text: text.replace("\0", "")), max_size=2))
    return command, line


@contextmanager
def project(folder: Path) -> Iterator[Path]:
    """A project of one paper to stand in, with empty tables of results; the work itself is left undone."""
    for name in ("papers", "impls", "tests", "workflow/schemas", "results"):
        (folder / name).mkdir(parents=True)
    (folder / "config").symlink_to(ROOT / "config")
    (folder / "papers" / "gla.yaml").symlink_to(ROOT / "papers" / "gla.yaml")
    (folder / "results" / "measurements.csv").write_text("run,seed,suite,task,length,metric,value,n\n")
    for table in ("runs", "verdicts", "measurements"):
        (folder / "results" / f"{table}.json").write_text("[]")
    undone = [mock.patch.object(commands()[name], work, _undone) for name, work in WORK.items()]
    before = Path.cwd()
    os.chdir(folder)
    try:
        for each in undone:
            each.start()
        yield folder
    finally:
        for each in undone:
            each.stop()
        os.chdir(before)


def _undone(*_: object, **__: object) -> None:
    raise errors.UserError("the arguments were accepted")


def obey(case: tuple[str, list[str]], where: Path) -> object:
    """Run a command as Python would; its exit code or last words. Raises AssertionError for a traceback."""
    command, line = case
    line = ["--check", *line] if command == "vendor" else line
    out = [line[place + 1] for place, text in enumerate(line[:-1]) if text == "--out"]
    asked = str(status.LOCK)  # opened to write, which NFS wants of who asks for a lock; nothing is written
    more = {"new": MADE, "spec": ["workflow/schemas"], "status": [asked]}.get(command, [])
    inside = [where / name for name in ("results", *more)]
    inside += [Path(os.path.abspath(text)).parent for text in out]
    inside.append(Path(tempfile.gettempdir()) / f"attest-slots-{os.getuid()}")
    ended: list[object] = []

    def work() -> None:
        try:
            errors.leave(commands()[command].main)
        except SystemExit as left:
            ended.append(left.code)

    said, told = _strict("strict"), _strict("backslashreplace")  # as Python's stdout and stderr are
    with mock.patch.object(sys, "argv", [command, *line]), redirect_stdout(said), redirect_stderr(told):
        refused(work, tuple(inside))
    for file in lock._held:  # a command's locks end with its process
        file.close()
    lock._held.clear()
    for made in (
        file for name in MADE for file in (where / name).rglob("*") if file.is_file() and not file.is_symlink()
    ):
        made.unlink()
    (code,) = ended
    assert code in (0, 1, 2) or (isinstance(code, str) and code.strip()), code
    assert b"Traceback" not in told.buffer.getvalue()  # type: ignore[attr-defined]
    return code


def _strict(handler: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=handler, write_through=True)
