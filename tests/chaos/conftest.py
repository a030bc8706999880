"""What the faults of a session came to: kills survived, damaged files refused, bytes compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.bench import Bench
from tests.workflow_project import CONFIG, SOFTMAX, TINY, Project, paper

COUNTS = Counter[str]()

PROFILE = TINY | {
    "tasks": {
        "lm": TINY["tasks"]["lm"] | {"steps": 300, "save_every": 10, "valid_every": 300},
        "recall": TINY["tasks"]["recall"] | {"steps": 100, "save_every": 5},
    }
}


@pytest.fixture(scope="session")
def counts() -> Counter[str]:
    return COUNTS


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, counts: Counter[str]) -> Bench:
    """A project of one run on two tasks, built without a disturbance."""
    project = Project(tmp_path_factory.mktemp("undisturbed"), CONFIG, PROFILE)
    project.write("papers/first.yaml", paper("2401.00001", softmax=SOFTMAX))
    return Bench(project, counts)


@pytest.fixture
def results(bench: Bench) -> Iterator[Path]:
    """The undisturbed results, to be harmed by one test."""
    bench.restore()
    yield bench.results
    bench.restore()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if COUNTS:
        terminalreporter.section("faults")
        for what, count in sorted(COUNTS.items()):
            terminalreporter.write_line(f"{count:>12,} {what}")
