"""A copy of the project with a small profile and papers of its own, and Snakemake in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
COPIED = ("Snakefile", "workflow", "profiles", "harness", "impls", "templates", "papers/literature.csv")

MODEL = {"width": 16, "layers": 1, "heads": 2, "mlp": 16, "conv": 4}
TRAINING = {"model": MODEL, "length": 64, "batch": 2, "steps": 4, "lr": 1e-3, "warmup": 1, "save_every": 1}
TINY = {
    "data": {"source": "wiki", "tokenizer": "bytes", "characters": 100_000},
    "tasks": {
        "lm": {**TRAINING, "valid_every": 4, "valid_tokens": 256},
        "recall": {**TRAINING, "kinds": ["mqar-4", "needle-1"]},
    },
    "suites": {
        "loss": {"tokens": 256, "multiples": [1, 2]},
        "recall": {"examples": 2, "kinds": ["mqar-4", "needle-1"], "multiples": [1]},
    },
}
SOFTMAX = {"impl": "softmax", "args": {"heads": 2}}
CONFIG = {"profile": "tiny", "seeds": [0], "suites": ["loss", "recall"], "device": "cpu", "strict": False}


def paper(arxiv: str, **runs: dict) -> dict:
    """A paper with these runs; where there are two, the first is claimed to be better than the last."""
    run, *_, baseline = [*runs, *runs]
    claim = {
        "id": "better",
        "quote": "is better",
        "where": "abstract",
        "kind": "compare",
        "run": run,
        "baseline": baseline,
        "metric": "loss/test/bits_per_byte",
        "expect": "lower",
        "margin": 0.05,
        "margin_from": "ours",
    }
    untested = {"id": "more", "quote": "is more", "where": "abstract", "kind": "untested", "reason": "larger than here"}
    return {
        "title": f"Paper {arxiv}",
        "arxiv": arxiv,
        "year": 2024,
        "authors": ["A. Author"],
        "summary": "A mechanism.",
        "scale_gap": "paper: large; here: tiny",
        "runs": runs,
        "claims": [claim, untested] if run != baseline else [untested],
    }


class Project:
    """A copy of the project, and Snakemake in it."""

    def __init__(self, folder: Path, config: dict = CONFIG, profile: dict = TINY):
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / name)
        self.write("config/config.yaml", config)
        self.write("config/profiles/tiny.yaml", profile)

    def write(self, path: str, value: dict | str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        plain = json.loads(json.dumps(value))  # a YAML writer would alias what occurs twice
        file.write_text(plain if isinstance(value, str) else yaml.safe_dump(plain, sort_keys=False))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.command(*arguments))

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self.popen(self.command(*arguments))

    def popen(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def would_run(self, *arguments: str) -> dict[str, int]:
        """Jobs of each rule that a dry run announces, but for `all`."""
        done = self.snakemake("--dry-run", *arguments)
        assert done.returncode == 0, done.stdout
        if "Nothing to be done" in done.stdout:
            return {}
        counted = done.stdout.split("Job stats:")[1].split("total")[0]
        return {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", counted, re.MULTILINE) if rule != "all"}

    @contextmanager
    def edited(self, path: str, change: Callable[[str], str]) -> Iterator[None]:
        """A file with other content for a while; the change must change something."""
        file = self.folder / path
        before = file.read_text()
        after = change(before)
        assert after != before
        file.write_text(after)
        try:
            yield
        finally:
            file.write_text(before)
