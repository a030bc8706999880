"""What to run: `config/config.yaml` and the profiles beside it, checked and frozen.

A profile's `tasks` are checked by the `Settings` class of `harness/tasks/<task>.py`, its `suites` by the `Settings`
class of `harness/suites/<suite>.py`; both are found by file name.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from harness import metrics, tasks, yamlio
from harness.closed import Closed, Count, Distinct, Name, Natural, Seed, Slug, Text, check
from harness.errors import UserError, suggest
from harness.tasks import TrainSettings

CONFIG = Path("config/config.yaml")
PROFILES = Path("config/profiles")
PAPERS = Path("papers")
DATA = Path("results/data")


def known_device(text: str) -> str:
    """The text itself if it names a device. Raises ValueError with a sentence otherwise."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,2})?", text):
        raise ValueError(f"{yamlio.shorten(text)!r} is not a device; use auto, cpu, cuda or cuda:0")
    return text


def _listed(papers: Any) -> Any:
    return [papers] if isinstance(papers, str) and papers != "all" else papers


class Config(Closed):
    """`config/config.yaml`: which profile, seeds and suites, on which device."""

    profile: Slug = "laptop"
    papers: Annotated[Distinct[Slug] | Literal["all"], BeforeValidator(_listed)] = "all"
    seeds: Distinct[Seed] = (0, 1, 2)
    suites: Distinct[Name] = ("loss", "recall")
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    hub: Text | None = None  # a folder that stands for the Hugging Face Hub, with folders named like its ids
    strict: bool = False  # leave with an error when a run fails, instead of reporting it on its page


class Hub(Closed):
    """A text set of the Hugging Face Hub, streamed."""

    dataset: Text
    name: Text | None = None
    split: Text = "train"
    text: Text = "text"  # the column
    documents: Count  # read from the start of the stream


class Data(Closed):
    """The corpus of language modelling and its tokenizer."""

    source: Literal["wiki", "stdlib", "hub"] = "wiki"
    hub: Hub | None = None
    characters: Count | None = None  # of the corpus, at most; None takes it whole
    valid: Annotated[float, Field(gt=0, lt=0.5)] = 0.02  # share of the articles
    test: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    tokenizer: Literal["bpe", "bytes"] = "bpe"
    vocab: Annotated[int, Field(ge=256, le=2**20)] = 4096
    seed: Seed = 0  # of the split

    @property
    def folder(self) -> Path:
        """Where this corpus lies once it is made; other settings, another folder."""
        return DATA / hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]

    @model_validator(mode="after")
    def _hub_is_named(self) -> Data:
        if (self.source == "hub") != (self.hub is not None):
            raise ValueError("source: hub and the block hub: {dataset, documents} go together; give both or neither")
        return self


class SuiteSettings(Closed):
    """How much a suite measures; each suite's `Settings` adds its fields."""


RECIPE = ("lr", "warmup", "floor", "beta1", "beta2", "eps", "weight_decay", "clip")


def _optional(names: tuple[str, ...]) -> Any:
    """A model of these training settings, each with its range and none required."""
    known = {name: TrainSettings.model_fields[name] for name in names}
    fields: dict[str, Any] = {
        name: (Annotated[(field.annotation, *field.metadata)], None) for name, field in known.items()
    }
    return create_model("Optional", __base__=Closed, **fields)


class Overrides(_optional(RECIPE)):
    """What one run trains otherwise than its profile says; the budget (steps, batch, length, model) stays fixed."""


Effort = Annotated[float, Field(gt=0, le=1)]


class Profile(Closed):
    """How large everything is."""

    name: Slug
    data: Data
    tasks: dict[str, Any]
    suites: dict[str, Any]
    hub: str | None = None  # the config's, for suites whose data lie on the Hub
    noise: Natural = 0  # how often the reference is trained again with its data in another order
    effort: Effort = 1.0  # of studies and methods: what their numbers of steps and samples are multiplied by

    def task(self, name: str) -> Any:
        """The `Settings` of a training task. Raises UserError when the profile has none."""
        if name not in self.tasks:
            raise UserError(f"the profile {self.name!r} has no task {name!r}{suggest(name, self.tasks)}")
        return self.tasks[name]

    def suite(self, name: str) -> Any:
        """The `Settings` of a suite, its defaults where the profile says nothing. Raises UserError if unknown."""
        if name not in self.suites:
            raise UserError(f"the profile {self.name!r} has no suite {name!r}{suggest(name, self.suites)}")
        return self.suites[name]


S = TypeVar("S", bound=Closed)


def load_config(path: str | Path = CONFIG, overrides: dict[str, Any] | None = None) -> Config:
    """The config file, then the overrides of a command line over it. Raises UserError with every fault.

    Text inside overrides is read like unquoted YAML, for Snakemake hands on the leaves of a list as text.
    """
    file = yamlio.read(path)
    config = _checked(file, Config)
    line = yamlio.Document("--config", {**file.value, **_typed(overrides or {})})
    config = _checked(line, Config) if overrides else config
    for key, known in (("profile", profile_names()), ("papers", paper_names()), ("suites", metrics.suite_names())):
        doc = line if overrides and key in overrides else file
        _blame_unknown(doc, key, getattr(config, key), known)
    file.refuse()
    line.refuse()
    return config


def _blame_unknown(doc: yamlio.Document, key: str, given: str | tuple[str, ...], known: list[str]) -> None:
    """Note in `doc` each name under `key` that is not known."""
    for place, name in enumerate(() if given == "all" else [given] if isinstance(given, str) else given):
        if name not in known:
            at = (key,) if isinstance(given, str) else (key, place)
            doc.blame(at, f"unknown {key.removesuffix('s')} {name!r}{suggest(name, known)}")


def paper_names(folder: Path = PAPERS) -> list[str]:
    """The slug of every paper, in alphabetical order."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def profile_names(folder: Path = PROFILES) -> list[str]:
    """Every profile, in alphabetical order."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_profile(name: str, folder: Path = PROFILES) -> Profile:
    """The profile of that name. Raises UserError with every fault, or with the nearest name when there is none."""
    if name not in profile_names(folder):
        raise UserError(f"unknown profile {name!r}{suggest(name, profile_names(folder))}")
    raw: Any = _checked(yamlio.read(folder / f"{name}.yaml"), profile_model())
    given = {task: getattr(raw.tasks, task) for task in tasks.names()}
    suites = {suite: getattr(raw.suites, suite) for suite in metrics.suite_names()}
    tasks_, suites_ = _without_none(given), _without_none(suites)
    return Profile(name=name, data=raw.data, tasks=tasks_, suites=suites_, noise=raw.noise, effort=raw.effort)


@cache
def profile_model() -> type[Closed]:
    """The closed form of a profile file, with one field for each task and each suite that exists."""
    task_fields: dict[str, Any] = {name: (tasks.load(name).Settings | None, None) for name in tasks.names()}
    suite_fields: dict[str, Any] = {}
    for name in metrics.suite_names():
        settings = metrics.load_suite(name).Settings
        required = any(known.is_required() for known in settings.model_fields.values())
        suite_fields[name] = (settings | None, None) if required else (settings, settings())
    Tasks = create_model("Tasks", __base__=Closed, __doc__="What is trained, and how.", **task_fields)
    Suites = create_model("Suites", __base__=Closed, __doc__="What each suite measures.", **suite_fields)
    fields: dict[str, Any] = {"data": (Data, Data()), "tasks": (Tasks, ...), "suites": (Suites, Suites())}
    fields |= {"noise": (Natural, 0), "effort": (Effort, 1.0)}
    return create_model("ProfileFile", __base__=Closed, __doc__=Profile.__doc__, **fields)


def _without_none(items: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in items.items() if value is not None}


def _checked(doc: yamlio.Document, model: type[S]) -> S:
    value = check(model, doc.value, doc)
    if value is None:
        doc.refuse()
    assert value is not None
    return value


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _typed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_typed(item) for item in value]
    if isinstance(value, str):
        try:
            return yamlio.scalar(value)
        except ValueError as error:
            raise UserError(f"--config: {error}") from None
    return value
