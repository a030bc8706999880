"""What a configuration asks for, as plain data: the runs, and the files that each step of the workflow makes."""

from __future__ import annotations

import hashlib
import itertools
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from harness import hub, outlook, studies
from harness.arguments import seed
from harness.config import Config, Profile, load_config, load_profile
from harness.errors import leave
from harness.metrics import load_suite
from harness.runs import RunSettings, asked, canonical, plainness, resolve, run_ids, tuned
from harness.spec import Paper, load_papers
from harness.studies import METHOD, STUDY
from harness.tasks import REFERENCE

CORPUS = {"lm"}  # tasks that read the corpus
SPARE = 1_000_000  # from here on seeds are taken that no run has


def add_options(parser: ArgumentParser) -> None:
    """The options of a step that reads the whole configuration: what `Plan.arguments` writes and `Plan.asked` reads."""
    parser.add_argument("--profile", help="instead of the one in config/config.yaml")
    parser.add_argument("--papers", nargs="+", help="likewise; `all` is every paper")
    parser.add_argument("--seeds", type=seed, nargs="+", help="likewise")
    parser.add_argument("--suites", nargs="+", help="likewise")


@dataclass(frozen=True)
class Plan:
    """A configuration with everything it names, read and checked."""

    config: Config
    profile: Profile
    papers: Mapping[str, Paper]
    runs: Mapping[str, RunSettings]
    others: Mapping[str, RunSettings] = field(default_factory=dict)  # of papers that are not asked for

    @classmethod
    def load(cls, overrides: Mapping[str, Any] | None = None) -> Plan:
        """Read config, profile and papers of the current folder. Raises UserError with every fault."""
        config = load_config(overrides=dict(overrides or {}))
        profile, everything = load_profile(config.profile), load_papers()
        profile = profile.model_copy(update={"hub": config.hub})
        outlook.refuse(config, profile)
        known = resolve(everything, profile)  # with the claims of all papers: what a run is trained on is no choice
        papers = {slug: paper for slug, paper in everything.items() if config.papers == "all" or slug in config.papers}
        wanted = {run for paper in papers.values() for run in run_ids(paper, profile).values()}
        chosen, others = (
            {run: settings for run, settings in known.items() if (run in wanted) == inside} for inside in (True, False)
        )
        return cls(config, profile, papers, chosen, others)

    @classmethod
    def asked(cls, given: Namespace) -> Plan:
        """The plan of a command line with `add_options`. Raises UserError with every fault."""
        found = {key: getattr(given, key) for key in ("profile", "papers", "seeds", "suites")}
        return cls.load(
            {key: "all" if value == ["all"] else value for key, value in found.items() if value is not None}
        )

    @property
    def tasks(self) -> dict[str, str]:
        """The training task whose model each suite evaluates."""
        return {suite: load_suite(suite).TASK for suite in self.config.suites}

    @property
    def trainings(self) -> list[str]:
        """The tasks that models are trained on, in alphabetical order."""
        return sorted(set(self.tasks.values()))

    def folder(self, task: str) -> list[str]:
        """One folder for each model that is trained on this task."""
        runs = [run for run in self.runs if self.asks(run, task)]
        return [f"results/runs/{run}/{task}/seed{seed}" for run in runs for seed in self.seeds(run)]

    def trained_on(self, run: str) -> list[str]:
        """The tasks that a run is trained on."""
        return [task for task in self.trainings if self.asks(run, task)]

    def untrained(self, run: str) -> str:
        """The option that names the others."""
        others = [task for task in self.trainings if not self.asks(run, task)]
        return f"--untrained {' '.join(others)}" if others else ""

    def seeds(self, run: str) -> tuple[int, ...]:
        """The seeds that a run is trained with; a model of the Hub, where nothing is drawn, has one record."""
        return self.config.seeds[:1] if self.runs[run].hf else tuple(self.config.seeds)

    def made_by(self, step: str) -> list[str]:
        """The runs that a step makes: train, pretrained (models of the Hub), study or apply (methods)."""
        return [run for run, settings in self.runs.items() if settings.step == step]

    def models(self) -> list[str]:
        """The runs that suites measure: all but studies."""
        return [run for run in self.runs if self.runs[run].step != STUDY]

    def tasks_of(self, run: str) -> list[str]:
        """The folders that a run may have: one for each training task; a study has one of its own name."""
        return [STUDY] if self.runs[run].step == STUDY else self.trainings

    def base(self, run: str, task: str, seed: str) -> list[str]:
        """The model that a method changes, and its record."""
        folder = f"results/runs/{self.runs[run].base}/{task}/seed{seed}"
        return [f"{folder}/run.json", f"{folder}/model.safetensors"]

    def weights(self, run: str, task: str, seed: str) -> list[str]:
        """The weights that an evaluation reads from here."""
        return [] if self.runs[run].hf else [f"results/runs/{run}/{task}/seed{seed}/model.safetensors"]

    def asks(self, run: str, task: str) -> bool:
        """Whether a run is trained on a task; where not, its cells say so."""
        return asked(self.runs[run], task)

    def hub(self) -> str:
        """The option that says which folder stands for the Hub."""
        return f"--hub {shlex.quote(self.config.hub)}" if self.config.hub else ""

    def records(self) -> list[str]:
        """The records of all trainings and evaluations."""
        trained = [f"{folder}/run.json" for task in self.trainings for folder in self.folder(task)]
        evaluated = [f"{folder}/{suite}.json" for suite, task in self.tasks.items() for folder in self.folder(task)]
        studied = [f"{folder}/{name}.json" for folder in self.folder(STUDY) for name in ("run", STUDY)]
        reported = [
            f"results/runs/{run}/{task}/seed{seed}/{METHOD}.json"
            for run in self.made_by("apply")
            for task in self.trained_on(run)
            for seed in self.seeds(run)
        ]
        return sorted(trained + evaluated + studied + reported)

    def first_records(self) -> list[str]:
        """The records of the first seed's models."""
        seed = f"/seed{self.config.seeds[0]}/run.json"
        return [record for record in self.records() if record.endswith(seed) and f"/{STUDY}/" not in record]

    def grid(self, run: str, task: str) -> list[str]:
        """The file of the pilots that choose a run's learning rate, where a grid is tried for it."""
        return [f"results/runs/{run}/{task}/tune.json"] if self.asks(run, task) and tuned(self.runs[run], task) else []

    def grids(self) -> list[str]:
        """The files of all grids."""
        return [file for run in self.runs for task in self.trainings for file in self.grid(run, task)]

    def spare_seeds(self, count: int) -> list[int]:
        """Seeds that no run is trained with: the first for pilots, the others for the data of repeated runs."""
        return list(islice((seed for seed in itertools.count(SPARE) if seed not in self.config.seeds), count))

    def orders(self) -> list[int]:
        """Seeds of the data's order with which the reference is repeated."""
        return self.spare_seeds(1 + self.profile.noise)[1:]

    def reference(self) -> str | None:
        """The softmax run with the fewest arguments and rates of its own; None where no paper has one."""
        known = [run for run in self.runs.values() if run.impl == REFERENCE]
        return min(known, key=plainness).id if known else None

    def repeated(self) -> dict[str, str]:
        """By training task, the file that says what another order of the data changes in the reference."""
        reference = self.reference() if self.profile.noise else None
        return {
            task: f"results/noise/{task}.json" for task in self.trainings if reference and self.asks(reference, task)
        }

    def measured_first(self, task: str) -> list[str]:
        """The records of the reference that its repetition is compared with."""
        folder = f"results/runs/{self.reference()}/{task}/seed{self.config.seeds[0]}"
        return [f"{folder}/{suite}.json" for suite in self.suites_of(task)]

    def suites_of(self, task: str) -> list[str]:
        """The suites that measure models of this task."""
        return [suite for suite, trained in self.tasks.items() if trained == task]

    def modules(self, *tasks: str) -> list[str]:
        """The modules of the suites that measure models of these tasks, or of all, and of the tasks."""
        wanted = tasks or self.trainings
        suites = [f"harness.suites.{suite}" for task in wanted for suite in self.suites_of(task)]
        return [*suites, *(f"harness.tasks.{task}" for task in wanted)]

    def impls(self) -> list[str]:
        """The mechanisms of all runs."""
        return sorted({self.runs[run].impl for run in self.made_by("train")})

    def proofs(self) -> list[str]:
        """The records of what was proved, one a mechanism."""
        return [f"results/proofs/{impl}.json" for impl in self.impls()]

    def settings_of(self, impl: str) -> str:
        """The arguments of all runs of a mechanism in all papers, asked for or not: it is proved with each."""
        runs = (*self.runs.values(), *self.others.values())
        return canonical(sorted((run.args for run in runs if run.impl == impl), key=canonical))

    def held_against(self, impl: str) -> list[str]:
        """What a mechanism is proved against, as far as the project has it: scalar loops, vectors, identities."""
        tests = Path("tests")
        shared = [*tests.glob("equations/_*.py"), *tests.glob("test_identities*.py"), tests / "conftest.py"]
        found = [*shared, tests / "equations" / f"{impl}.py", tests / "vectors.json"]
        return sorted(str(path) for path in found if path.is_file() and path.stat().st_size)

    def sources(self, *runs: str) -> list[str]:
        """The modules that these runs come from: mechanism, study, or method with the mechanism of its base."""
        known = [self.runs[run] for run in runs]
        known += [self.runs[run.base] for run in known if run.base]
        return sorted({"harness.pretrained" if run.hf else f"impls.{run.impl}" for run in known})

    def manifest(self) -> str:
        """The file that stands for the corpus of the profile."""
        return str(self.profile.data.folder / "manifest.json")

    def read_by(self, run: str) -> list[str]:
        """The files that a study reads."""
        return list(studies.told(self.runs[run].impl, self.runs[run].args).files)

    def data(self, task: str) -> list[str]:
        """What a task reads besides its settings."""
        return [self.manifest()] if task in CORPUS else []

    def files(self) -> list[str]:
        """Files that suites read besides the corpus, as far as they are there."""
        named = [getattr(load_suite(suite), "files", None) for suite in self.config.suites]
        return sorted({str(path) for of in named if of for path in of(self.profile) if path.is_file()})

    def local(self, name: str | None) -> list[str]:
        """The files here of what the Hub calls `name`."""
        return [str(path) for path in hub.files(name, self.config.hub)] if name else []

    def arguments(self) -> str:
        """What a report step is told on its command line, so that it sees this configuration, overrides and all."""
        config = self.config
        papers = "all" if config.papers == "all" else " ".join(config.papers)
        seeds, suites = " ".join(map(str, config.seeds)), " ".join(config.suites)
        return f"--profile {config.profile} --papers {papers} --seeds {seeds} --suites {suites}"

    def claims(self) -> str:
        """A digest that is equal for equal papers, however their files are laid out."""
        papers = {slug: paper.model_dump(mode="json") for slug, paper in self.papers.items()}
        return hashlib.sha256(canonical(papers).encode()).hexdigest()[:16]

    def templates(self) -> list[str]:
        """Files that the site is rendered from."""
        return sorted(str(path) for path in Path("templates").rglob("*") if path.is_file())

    def processes(self, task: str) -> int:
        """How many processes train one model of a task together."""
        return self.profile.task(task).processes

    def gpu(self, count: Any = 1) -> dict[str, Any]:
        """So many GPUs a job where this machine has any and the config does not turn them down."""
        return {"gpu": count} if self.config.device != "cpu" and any(Path("/dev").glob("nvidia[0-9]*")) else {}

    def device(self, resources: Mapping[str, Any]) -> str:
        """The device of a job: the CPU where it was given no GPU, as by `--resources gpu=0`."""
        return "cpu" if resources.get("gpu") == 0 else self.config.device


def main(arguments: list[str] | None = None) -> None:
    """Say what a configuration makes, what is in the way of it, and what would settle the claims left open before."""
    parser = ArgumentParser(prog="python -m harness.plan", description="What lies ahead of a configuration.")
    add_options(parser)
    for line in outlook.lines(Plan.asked(parser.parse_args(arguments))):
        print(line)


if __name__ == "__main__":
    leave(main)
