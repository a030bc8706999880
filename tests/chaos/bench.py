"""An undisturbed build to hold disturbed ones against, and the processes of a build."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.workflow_project import Project

PATIENCE = 1200  # seconds for one build, on a machine that has other work
CLOCKS = {"seconds"}  # fields of records that a clock measured
PASSING = ("log", "benchmark", "state", "history", "site")  # what tells of the way, not of the end


class Bench:
    """A project, what its undisturbed build left, and the comparison with it."""

    def __init__(self, project: Project, counts: Counter[str]):
        self.project, self.counts = project, counts
        self.results = project.folder / "results"
        self.gold = project.folder / "undisturbed"
        self.asked = self.specs()
        code, said = self.build()
        assert code == 0, said
        shutil.copytree(self.results, self.gold)
        self.memory = project.folder / ".snakemake"
        shutil.copytree(self.memory, project.folder / "remembered")

    def specs(self) -> dict[str, str]:
        """Every file of the configuration and of the papers."""
        files = (path for name in ("config", "papers") for path in (self.project.folder / name).rglob("*.yaml"))
        return {str(path): path.read_text() for path in files}

    def restore(self, *without: str) -> None:
        """The undisturbed results with the times of their files, but for what these patterns match."""
        for folder, kept in ((self.results, self.gold), (self.memory, self.project.folder / "remembered")):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(kept, folder)
        for pattern in without:
            for path in list(self.results.glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Snakemake in a process group of its own."""
        command = self.project.command(*arguments)
        return subprocess.Popen(
            command,
            cwd=self.project.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )

    def kill(self, running: subprocess.Popen[str]) -> None:
        """Kill Snakemake and all its jobs, as far as they run."""
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)

    def jobs(self, *modules: str) -> list[psutil.Process]:
        """The running jobs of these modules in this project."""
        found = []
        for process in psutil.process_iter():
            try:
                words, folder = process.cmdline(), process.cwd()
            except psutil.Error:
                continue
            if folder == str(self.project.folder) and words[1:2] == ["-m"] and words[2] in modules:
                found.append(process)
        return found

    def finish(self, *, site: bool = False) -> str:
        """What the same command says at the end of its work, which must have left the undisturbed bytes."""
        code, said = self.build()
        assert code == 0, said
        self.compare(site=site)
        return said

    def build(self) -> tuple[int, str]:
        """Exit code and output of the command that makes everything."""
        running = self.start()
        said, _ = running.communicate(timeout=PATIENCE)
        return running.returncode, said

    def compare(self, *, site: bool) -> None:
        """Every result, byte for byte but for what a clock measured; of the site too where no clock ran."""
        sums = {name: sum_of(self.results / name) for name in contents(self.results, site)}
        wanted = {name: sum_of(self.gold / name) for name in contents(self.gold, site)}
        other = sorted({name for name, _ in sums.items() ^ wanted.items()})
        assert not other, f"not the bytes of an undisturbed build: {', '.join(other)}"
        assert self.specs() == self.asked  # nothing writes what people wrote
        assert not list(self.results.rglob("state.pt"))
        assert not list(self.results.rglob(".*"))  # what a killed writer left half written
        self.counts["files compared with those of an undisturbed build"] += len(sums)
        self.counts["bytes compared"] += sum((self.results / name).stat().st_size for name in sums)


def contents(folder: Path, site: bool) -> Iterator[str]:
    """The files to compare."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        if inside.parts[0] not in PASSING or (site and inside.parts[0] == "site"):
            yield str(inside)


def sum_of(path: Path) -> str:
    """SHA-256 of a file; of a JSON record without the fields that a clock measured, and of sums not at all."""
    if "site" not in path.parts:
        if path.name == "SHA256SUMS":
            return "of files that hold clocks"
        if path.suffix == ".json":
            return hashlib.sha256(json.dumps(timeless(json.loads(path.read_text()))).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in CLOCKS}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def until(found: Callable[[], Any], what: str, seconds: float = 120) -> Any:
    """Wait for a condition, and return what it found."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return value


def still(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file, by which a write is seen."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def limited(kind: int, number: int) -> Callable[[], None]:
    """What a process does before it starts, so that it and its children have this limit."""
    import resource

    return lambda: resource.setrlimit(kind, (number, number))


def unprivileged() -> bool:
    return os.geteuid() != 0
