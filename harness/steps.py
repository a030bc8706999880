"""The jobs of a build, as plain data: which files tell that one is done, and where its log and its time are.

The names are those of workflow/rules; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.plan import Plan
from harness.studies import STUDY

REPORT = {  # what is made once, by rule
    "proofs": "results/proofs.json",
    "costs": "results/costs.json",
    "aggregate": "results/runs.json",
    "judge": "results/verdicts.json",
    "history": "results/history/index.json",
    "site": "results/site/index.html",
}


UNTIMED = ("proofs", "history", "strict")  # a second each, without a benchmark


class Step(NamedTuple):
    """One job of a rule."""

    rule: str
    name: str  # of this job among those of its rule; nothing where the rule has one job
    files: tuple[str, ...]

    @property
    def log(self) -> Path:
        return Path("results/log", self.rule, f"{self.name}.log") if self.name else Path(f"results/log/{self.rule}.log")

    @property
    def records(self) -> tuple[str, ...]:
        """Those of its files that say whether it failed."""
        return () if self.rule in ("corpus", "strict", *REPORT) else self.files

    def __str__(self) -> str:
        return f"{self.rule} {self.name}".rstrip()


def steps(plan: Plan) -> Iterator[Step]:
    """Every job of a build, in the order in which their rules follow each other."""
    yield Step("corpus", plan.profile.data.folder.name, (plan.manifest(),))
    for run in plan.models():
        for task in plan.trained_on(run):
            yield from (Step("tune", f"{run}.{task}", (file,)) for file in plan.grid(run, task))
    for run in plan.runs:
        for task in [STUDY] if run in plan.made_by(STUDY) else plan.trained_on(run):
            for seed in plan.seeds(run):
                record = f"results/runs/{run}/{task}/seed{seed}/run.json"
                yield Step(plan.runs[run].step, f"{run}.{task}.seed{seed}", (record,))
    for run in plan.models():
        for seed in plan.seeds(run):
            folder = f"results/runs/{run}/{{}}/seed{seed}/{{}}.json"
            records = (folder.format(task, suite) for suite, task in plan.tasks.items())
            yield Step("evaluate", f"{run}.seed{seed}", tuple(records))
    yield from (Step("noise", task, (file,)) for task, file in plan.repeated().items())
    yield from (Step("prove", impl, (file,)) for impl, file in zip(plan.impls(), plan.proofs(), strict=True))
    yield from (Step(rule, "", (file,)) for rule, file in REPORT.items())
    if plan.config.strict:
        yield Step("strict", "", ("results/strict",))


def seconds(rule: str, results: Path = Path("results")) -> float | None:
    """What a job of this rule took here on average, from the benchmarks of those that ended; None where none did."""
    folder = results / "benchmark"
    taken = [_first_number(path) for path in [folder / f"{rule}.tsv", *(folder / rule).glob("*.tsv")]]
    known = [number for number in taken if number is not None]
    return sum(known) / len(known) if known else None


def _first_number(path: Path) -> float | None:
    """The first column, `s`, of a benchmark's last line."""
    try:
        return float(path.read_text(encoding="utf-8").splitlines()[-1].split("\t")[0])
    except (OSError, ValueError, IndexError):
        return None
