"""How far a build is, at any moment and from any shell: done, running, failed, and the time that is left.

    python -m harness.status            a line, then what failed and why, and what runs
    python -m harness.status --watch    the same, kept up to date until Ctrl-C

It reads records, logs and benchmarks, and changes nothing. A job is done where its records are there; whether they are
still those of today's code is for Snakemake to decide.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness import failures, log
from harness.errors import leave
from harness.plan import Plan, add_options
from harness.steps import UNTIMED, Step, seconds, steps

LOCK = Path(".snakemake/attest.lock")
PERIOD = 30  # seconds between lines of a build
WATCH = 2  # seconds between looks of --watch


class State(NamedTuple):
    """One job at one moment."""

    step: Step
    kind: str  # done, running, failed or waiting
    said: str = ""  # the reason of a failed one, the last words of a running one

    def __str__(self) -> str:
        return f"{self.kind}: {self.step}{': ' if self.said else ''}{self.said}"


class Watcher:
    """The jobs of a build, looked at again and again; a record that has not changed since is not read again."""

    def __init__(self, plan: Plan):
        self.steps = list(steps(plan))
        self._read: dict[str, tuple[int, str]] = {}  # by record: when it was written, why it failed

    def look(self) -> list[State]:
        """The state of every job, now."""
        return [self._state(step) for step in self.steps]

    def _state(self, step: Step) -> State:
        if log.held(step.log):
            return State(step, "running", log.last(step.log))
        if all(Path(file).exists() for file in step.files):
            why = "; ".join(dict.fromkeys(filter(None, map(self._failure, step.records))))
            return State(step, "failed", why) if why else State(step, "done")
        try:
            start, written, starts = since(), step.log.stat().st_mtime, log.starts(step.log)
        except FileNotFoundError:
            return State(step, "waiting")
        if written < start:  # what an earlier build said is past
            return State(step, "waiting")
        if starts:
            return State(step, "running", "starts")
        if start and not log.tells():  # this build wrote it, and whether its job lives is not to be known
            return State(step, "running", log.last(step.log))
        return State(step, "failed", f"it ended without a result, with “{log.last(step.log)}” ({step.log})")

    def _failure(self, record: str) -> str:
        """Why a record says that it failed; nothing where it does not."""
        try:
            written = Path(record).stat().st_mtime_ns
        except FileNotFoundError:  # it went a moment ago
            return ""
        if self._read.get(record, (None, ""))[0] != written:
            found = list(failures.find([record]))
            self._read[record] = written, f"{found[0].status}: {found[0].reason}" if found else ""
        return self._read[record][1]


def line(states: Sequence[State]) -> str:
    """All of it in one line."""
    count = Counter(state.kind for state in states)
    parts = [f"{count['done']} of {len(states)} jobs done"]
    parts += [f"{count[kind]} {kind}" for kind in ("running", "failed") if count[kind]]
    return ", ".join([*parts, *left(states)])


def left(states: Sequence[State]) -> Iterator[str]:
    """The time that is left, where jobs are, at the pace of those that ended; nothing once all are done."""
    ahead = [state for state in states if state.kind in ("waiting", "running") and state.step.rule not in UNTIMED]
    each = {rule: seconds(rule) for rule in {state.step.rule for state in ahead}}
    known = sum(max(0.0, (each[state.step.rule] or 0) - _behind(state)) for state in ahead)
    workers = max(1, sum(state.kind == "running" for state in ahead))
    unknown = sorted(rule for rule, took in each.items() if took is None)
    if not ahead:
        return
    if len(unknown) == len(each):
        yield "time left unknown until a job has ended"
    else:
        yield f"{'at least' if unknown else 'about'} {spoken(known / workers)} left"


def _behind(state: State) -> float:
    """Seconds that a running job has been at work."""
    start = log.began(state.step.log) if state.kind == "running" else None
    return max(0.0, (datetime.now(UTC) - start).total_seconds()) if start else 0.0


def spoken(duration: float) -> str:
    """`50 s`, `7 min`, `3 h 20 min`."""
    if duration < 90:
        return f"{duration:.0f} s"
    minutes = round(duration / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def text(states: Sequence[State]) -> str:
    """The line, then what failed and what runs, and whether a build is at work here."""
    told = [str(state) for kind in ("failed", "running") for state in states if state.kind == kind]
    rest = [] if since() or all(state.kind == "done" for state in states) else ["no build is at work here"]
    return "\n".join([line(states), *told, *rest])


def since() -> float:
    """When the build that is at work here began, in seconds since 1970; 0 where none is."""
    try:
        return LOCK.stat().st_mtime if log.held(LOCK) else 0
    except OSError:
        return 0


def said(plan: Plan) -> str:
    """The line of a build that ends; where the disk refuses to tell, that: no build fails for want of it."""
    try:
        return line(Watcher(plan).look())
    except OSError as error:
        return f"how far the build is cannot be told: {error}"


def tell(plan: Plan) -> None:
    """Print the line to stderr now and then while this process lives, where it has changed."""
    threading.Thread(target=partial(_tell, Watcher(plan)), daemon=True).start()


def _tell(watcher: Watcher) -> None:
    last = ""
    while True:
        time.sleep(PERIOD)
        with suppress(OSError):  # the disk of an instant: the next look may tell
            if last != (last := line(watcher.look())):
                print(last, file=sys.stderr, flush=True)


def watch(watcher: Watcher) -> None:
    """Keep the text on the terminal up to date until all is done or the user stops it."""
    from rich.live import Live
    from rich.text import Text

    with Live(Text(""), auto_refresh=False) as live:
        while True:
            states = watcher.look()
            live.update(Text(text(states)), refresh=True)
            if all(state.kind == "done" for state in states):
                return
            time.sleep(WATCH)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.status", description="How far a build is.")
    add_options(parser)
    parser.add_argument("--watch", action="store_true", help="keep it up to date until Ctrl-C")
    given = parser.parse_args()
    watcher = Watcher(Plan.asked(given))
    if given.watch:
        watch(watcher)
    else:
        print(text(watcher.look()))


if __name__ == "__main__":
    leave(main)
