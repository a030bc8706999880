"""Hostile input: what is given, and what must not happen whatever is given.

A case ends well or in the sentences of a UserError, never in another exception; within LONGEST seconds; it adds at most
MOST bytes of memory; and it writes nothing outside the folders that it names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import UserError

LONGEST = 20  # seconds for one case on a busy machine; nearly all take milliseconds
MOST = 500 * 2**20

PLACES = [
    "..",
    "../x",
    "../../../x",
    "../../../../../../x",
    "/",
    "/x/y",
    "~root",
    "a/b",
    "a//b",
    "a\\b",
    "./.",
    "x/../../y",
]
WORDS = [
    *(
        "",
        ".",
        "a\0b",
        "\n",
        "a\nb",
        "\t",
        "\x1b[31m",
        "a" * 61,
        "a" * 300,
        "9" * 30,
        "9" * 5000,
        "con",
        "NUL",
        "aux.yaml",
    ),
    *("-", "--", "-x", "--help", "@x", "*", "$(true)", "`true`", ";true", "%s", "{run}", "{0}", "{{7*7}}", "<script>"),
    *("sоftmax", "ｓoftmax", "Softmax", "softmax.", "softmax ", "soft\u200bmax", "é", "\udcff", "\u202e", "٣"),
    *(
        "__init__",
        "base",
        "None",
        "null",
        "true",
        "nan",
        "inf",
        "-1",
        "0",
        "1e9",
        "1_000",
        "0x1",
        "12:30",
        "2025-01-01",
    ),
    *("!!python/object/apply:os.system ['true']", "&a [*a]", "<<", "train_length", "hub", "loss/test/bits_per_byte@0x"),
    *("softmax", "gla", "lm", "recall", "smoke", "loss", "loss/test/bits_per_byte", "all", "cpu", "cuda:99", "latest"),
]
NUMBERS = [0, -1, 1, 2, 3, 7, 64, 10**6, 10**9, 10**12, 10**17, 2**31, 2**63, 0.5, -0.5, 1e-300, 1e300, 5e-324]

word = st.sampled_from(PLACES) | st.sampled_from(WORDS) | st.text(max_size=12)
plain = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.integers() | st.floats() | word
value = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=3), max_leaves=6
)


class Hang(BaseException):
    """A case took too long; no handler of the code under test catches it."""


@contextmanager
def bounded(seconds: float = LONGEST) -> Iterator[None]:
    """Raises Hang in a block that takes longer."""

    def stop(*_: object) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_CHANGES = {  # audit events of what changes the disk (https://docs.python.org/3/library/audit_events.html): their paths
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "shutil.rmtree"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), (0, 1)),
}
_listening: list[list[str]] = []  # the list that is written to; one at most
_installed: list[bool] = []


def _listen(event: str, given: tuple[Any, ...]) -> None:
    if _listening:
        opened = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        for place in (0,) if opened else _CHANGES.get(event, ()):
            if not isinstance(given[place], int):
                _listening[0].append(os.path.abspath(os.fsdecode(given[place])))


@contextmanager
def writes() -> Iterator[list[str]]:
    """The paths that Python opens to write, makes, moves or removes inside the block."""
    if not _installed:
        sys.addaudithook(_listen)  # it stays until the process ends, and looks away outside such blocks
        _installed.append(True)
    _listening[:] = [[]]
    try:
        yield _listening[0]
    finally:
        _listening.clear()


def refused(work: Callable[[], object], inside: tuple[Path, ...] = ()) -> str:
    """The sentences with which the work is refused, "" where it is not; any other end raises."""
    said = ""
    with writes() as written, bounded():
        try:
            work()
        except UserError as error:
            said = str(error)
            assert said.strip(), "a refusal without a reason"
    outside = [path for path in written if not any(Path(path).is_relative_to(folder) for folder in inside)]
    assert not outside, f"written outside of {inside}: {outside}"
    return said


def attempt(strategy: st.SearchStrategy[Any], check: Callable[[Any], object], count: int) -> int:
    """Check so many values, the same each time; the number. Raises what a check raises; AssertionError for memory."""
    tried = 0

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(strategy)
    def each(case: Any) -> None:
        nonlocal tried
        tried += 1
        check(case)

    counted = _forget_peak()
    before = _memory("VmRSS")
    each()
    assert not counted or _memory("VmHWM") - before < MOST
    return tried


def _forget_peak() -> bool:
    """Let the peak of memory count from here (proc(5)); False where the system cannot, and no peak is looked at."""
    try:
        return Path("/proc/self/clear_refs").write_text("5") == 1
    except OSError:
        return False


def _memory(what: str) -> int:
    """Bytes that this process holds (VmRSS), or held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:")), 0)
