"""Config and profiles: closed, typed, and every fault with its line and the nearest valid name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from harness import closed, config, metrics, plan, tasks, yamlio
from harness.errors import UserError

PROFILE = """data: {source: wiki, vocab: 1024}
tasks:
  lm:
    model: {width: 64, layers: 2, heads: 2, mlp: 128, conv: 4}
    length: 128
    batch: 8
    steps: 1000
    lr: 4e-3
    warmup: 100
    valid_every: 250
    valid_tokens: 16384
  recall:
    model: {width: 64, layers: 1, heads: 2, mlp: 128}
    length: 128
    batch: 16
    steps: 400
    lr: 6e-3
    warmup: 40
    kinds: [mqar-4, needle-4, mqar-32]
suites:
  loss: {tokens: 32768, multiples: [1, 2, 4, 8, 16]}
  recall: {examples: 128}
"""


def profile_faults(text: str) -> list[str]:
    doc = yamlio.parse(text.encode(), "p.yaml")
    closed.check(config.profile_model(), doc.value, doc)
    return doc.faults()


def config_faults(text: str, tmp_path: Path, overrides: dict[str, Any] | None = None) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        config.load_config(path, overrides)
    return str(caught.value)


def test_the_config_is_valid() -> None:
    read = config.load_config()
    assert read.profile in config.profile_names()
    assert read.seeds == (0, 1, 2)
    assert {"loss", "recall", "sinks", "trigger", "cloze", "last_word"} <= set(read.suites)


@pytest.mark.parametrize("name", config.profile_names())
def test_every_profile_is_valid_and_names_every_task_and_suite(name: str) -> None:
    profile = config.load_profile(name)
    assert profile.name == name
    assert set(profile.tasks) == set(tasks.names())
    assert set(profile.suites) == set(metrics.suite_names())
    for suite in metrics.suite_names():
        cells = metrics.load_suite(suite).cells(profile)
        assert cells
        assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("path", [config.CONFIG, *sorted(config.PROFILES.glob("*.yaml"))], ids=lambda path: path.name)
def test_every_file_names_its_schema(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    target = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert target.resolve().is_file()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("steps: 1000", "setps: 1000", "unknown key 'setps' in tasks.lm; did you mean 'steps'?"),
        ("steps: 1000", "steps: 1e3", "tasks.lm.steps should be a whole number, got 1e3"),
        ("steps: 1000", "steps: 1000.0", "tasks.lm.steps should be a whole number, got 1000.0"),
        ("steps: 1000", "steps: '1000'", "tasks.lm.steps should be a whole number, got '1000'"),
        ("steps: 1000", "steps: true", "tasks.lm.steps should be a whole number, got true"),
        ("steps: 1000", "steps: -1", "tasks.lm.steps should be greater than 0, got -1"),
        ("steps: 1000", "steps:", "tasks.lm.steps should be a whole number, got nothing"),
        ("steps: 1000", "steps: [1]", "tasks.lm.steps should be a whole number, got [1]"),
        ("steps: 1000", "steps: 50", "tasks.lm: warmup: 100 is longer than steps: 50"),
        ("lr: 4e-3", "lr: 0", "tasks.lm.lr should be greater than 0, got 0"),
        ("lr: 4e-3", "lr: fast", "tasks.lm.lr should be a number, got 'fast'"),
        ("lr: 4e-3", "beta1: 1.0", "tasks.lm lacks the key 'lr'"),
        ("heads: 2", "heads: 5", "tasks.lm.model: heads: 5 does not divide width: 64"),
        ("width: 64, ", "", "tasks.lm.model lacks the key 'width'"),
        (
            "batch: 8\n",
            "batch: 8\n    claimed: true\n",
            "unknown key 'claimed' in tasks.lm; did you mean 'trained: claimed'?",
        ),
        ("lm:\n", "lmm:\n", "unknown key 'lmm' in tasks; did you mean 'lm'?"),
        ("tasks:", "task:", "unknown key 'task' in the file; did you mean 'tasks'?"),
        ("tasks:", "task:", "the file lacks the key 'tasks'"),
        ("multiples: [1, 2, 4, 8, 16]", "multiples: [2, 1, 1]", "ascending order with no value twice: [1, 2]"),
        ("multiples: [1, 2, 4, 8, 16]", "multiples: ['1', 2]", "suites.loss.multiples[0] should be a whole number"),
        ("multiples: [1, 2, 4, 8, 16]", "multiples: []", "suites.loss.multiples: is empty"),
        ("multiples: [1, 2, 4, 8, 16]", "multiples: 4", "suites.loss.multiples should be a list, got 4"),
        ("loss:", "lost:", "unknown key 'lost' in suites; did you mean 'loss'?"),
        ("mqar-32", "mqra-32", "'mqra-32' is no kind of recall"),
        ("source: wiki", "source: wikipedia", "data.source cannot be 'wikipedia'; did you mean 'wiki'?"),
        ("source: wiki", "source: hub", "source: hub and the block hub: {dataset, documents} go together"),
        ("vocab: 1024", "vocab: 10", "data.vocab should be greater than or equal to 256, got 10"),
    ],
)
def test_a_fault_names_the_key_and_the_mend(old: str, new: str, expected: str) -> None:
    assert old in PROFILE
    found = profile_faults(PROFILE.replace(old, new, 1))
    assert any(expected in fault for fault in found), found


def test_the_line_is_that_of_the_key() -> None:
    text = PROFILE.replace("examples: 128", "exampels: 128")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "exampels" in row)
    assert profile_faults(text) == [f"p.yaml:{line}: unknown key 'exampels' in suites.recall; did you mean 'examples'?"]


def test_every_fault_is_reported_at_once() -> None:
    text = PROFILE.replace("lr: 4e-3", "lr: 0").replace("examples", "exampels").replace("conv: 4", "conv: -4", 1)
    assert len(profile_faults(text)) == 3


def test_the_profile_of_these_tests_is_valid() -> None:
    assert profile_faults(PROFILE) == []


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -float("inf")])
def test_a_number_is_finite_wherever_it_comes_from(value: float) -> None:
    doc = yamlio.Document("python", {"lr": value})
    assert closed.check(config.Overrides, doc.value, doc) is None
    assert doc.faults() == [f"python: lr should be a finite number, got {value}"]


def test_a_profile_without_a_task_says_so() -> None:
    doc = yamlio.parse(b"tasks: {}\n", "p.yaml")
    assert closed.check(config.profile_model(), doc.value, doc) is not None
    profile = config.Profile(name="none", data=config.Data(), tasks={}, suites={})
    with pytest.raises(UserError, match="no task 'lm'"):
        profile.task("lm")


def test_an_unknown_profile_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown profile 'lapdog'; did you mean 'laptop'"):
        config.load_profile("lapdog")
    with pytest.raises(UserError, match="unknown profile"):
        config.load_profile("../config")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: [0]\n", "config.yaml:1: unknown key 'seed' in the file; did you mean 'seeds'?"),
        ("seeds: 0\n", "config.yaml:1: seeds should be a list, got 0"),
        ("seeds: [0, 0]\n", "config.yaml:1: seeds: holds 0 twice"),
        ("seeds: [-1]\n", "config.yaml:1: seeds[0] should be greater than or equal to 0, got -1"),
        ("seeds: []\n", "config.yaml:1: seeds: is empty"),
        ("\nsuites: [los]\n", "config.yaml:2: unknown suite 'los'; did you mean 'loss'?"),
        ("profile: labtop\n", "config.yaml:1: unknown profile 'labtop'; did you mean 'laptop'?"),
        ("profile: ../x\n", "config.yaml:1: profile: '../x' is not a slug"),
        ("strict: no\n", "config.yaml:1: strict should be true or false, got 'no'"),
        ("device: gpu\n", "config.yaml:1: device: 'gpu' is not a device; use auto, cpu, cuda or cuda:0"),
    ],
)
def test_a_fault_of_the_config(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in config_faults(text, tmp_path)


def test_overrides_of_a_command_line_are_typed() -> None:
    given = {"seeds": ["0", "3"], "strict": "true", "profile": "smoke", "suites": ["loss"]}
    read = config.load_config(overrides=given)
    assert read.seeds == (0, 3)
    assert read.strict is True
    assert read.profile == "smoke"
    assert read.suites == ("loss",)
    assert read.device == config.load_config().device


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"seed": 1}, "--config: unknown key 'seed' in the file; did you mean 'seeds'?"),
        ({"strict": "yes"}, "--config: strict should be true or false, got 'yes'"),
        ({"seeds": ["00042"]}, "--config: 00042 is not a plain decimal number"),
        ({"seeds": ["0", 0]}, "--config: seeds: holds 0 twice"),
        ({"seeds": 0}, "--config: seeds should be a list, got 0"),
        ({"seeds": [float("nan")]}, "--config: seeds[0] should be a whole number"),
        ({"suites": ["recal"]}, "--config: unknown suite 'recal'; did you mean 'recall'?"),
        ({"profile": "smok"}, "--config: unknown profile 'smok'; did you mean 'smoke'?"),
        ({"profile": {"a": "b"}}, "--config: profile should be text"),
    ],
)
def test_a_fault_of_an_override(overrides: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        config.load_config(overrides=overrides)
    assert expected in str(caught.value)


def test_a_fault_of_the_file_is_not_blamed_on_the_command_line(tmp_path: Path) -> None:
    assert config_faults("suites: [los]\n", tmp_path, {"seeds": ["1"]}).startswith(str(tmp_path))


def test_no_torch_to_read_settings() -> None:
    """A workflow reads config and profiles before every job; torch would cost a second each time."""
    import subprocess
    import sys

    code = "from harness import config; config.load_profile('laptop'); import sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_key_is_explained() -> None:
    explained = Path("config/README.md").read_text(encoding="utf-8")
    for model in (config.Config, config.Data, config.Hub, tasks.TrainSettings, tasks.ModelSettings):
        for name in model.model_fields:
            assert re.search(rf"[`{{ .]{name}[`,:}}. ]", explained), f"config/README.md does not explain {name}"


def test_the_defaults_that_are_explained_are_the_defaults() -> None:
    explained = Path("config/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", explained, re.MULTILINE)
    stated = {name: value for names, value in rows for name, value in [(names.strip("`"), value.strip("`"))]}
    for model in (config.Config, config.Data):
        for name, known in model.model_fields.items():
            if name in stated and not known.is_required() and known.default is not None:
                value = list(known.default) if isinstance(known.default, tuple) else known.default
                shown = str(value).lower() if isinstance(value, bool) else str(value).replace("'", "")
                assert stated[name] == shown, name


def test_papers_are_chosen_by_name() -> None:
    assert config.load_config().papers == "all"
    assert config.load_config(overrides={"papers": "softpick"}).papers == ("softpick",)
    assert set(plan.Plan.load({"papers": ["gla", "softpick"]}).papers) == {"gla", "softpick"}
    with pytest.raises(UserError, match=r"^--config: unknown paper 'softpik'; did you mean 'softpick'\?$"):
        config.load_config(overrides={"papers": ["softpik"]})


def test_what_a_run_is_trained_on_does_not_depend_on_the_papers_chosen() -> None:
    few, every = plan.Plan.load({"papers": ["gla"]}).runs, plan.Plan.load().runs
    assert few.keys() < every.keys()
    assert all(few[run] == every[run] for run in few), "the claims of all papers count"


def test_a_step_reads_the_plan_that_its_rule_wrote() -> None:
    asked = plan.Plan.load({"papers": ["gla"], "seeds": [3], "suites": ["loss"], "profile": "smoke"})
    parser = argparse.ArgumentParser()
    plan.add_options(parser)
    assert plan.Plan.asked(parser.parse_args(asked.arguments().split())) == asked
    assert plan.Plan.asked(parser.parse_args(plan.Plan.load().arguments().split())) == plan.Plan.load()
