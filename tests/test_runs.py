"""Runs are named by what they are: nothing else about a paper changes a name, and everything about the run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import config, runs, spec
from harness.errors import UserError

PAPER = """title: A mixer
arxiv: "2312.06635"
year: 2023
authors: [A. Author]
summary: A sentence.
scale_gap: large
runs:
  gla: {impl: gla, args: {expand_k: 1.0, gate_rank: 8}, recipe: {lm: {lr: 1e-3, weight_decay: 0.1}}}
  softmax: {impl: softmax}
claims:
  - id: better
    quote: It is better.
    where: abstract
    kind: compare
    run: gla
    baseline: softmax
    metric: recall/mqar-32/accuracy
    expect: higher
    margin: 0.1
    margin_from: ours
"""


@pytest.fixture
def profile() -> config.Profile:
    return config.load_profile("smoke")


def paper(text: str, folder: Path) -> spec.Paper:
    path = folder / "paper.yaml"
    path.write_text(text, encoding="utf-8")
    return spec.load_files([path])["paper"]


def ids(text: str, folder: Path, profile: config.Profile) -> dict[str, str]:
    return runs.run_ids(paper(text, folder), profile)


SAME = {
    "a comment": ("runs:", "runs:  # a comment"),
    "the order of args": ("expand_k: 1.0, gate_rank: 8", "gate_rank: 8, expand_k: 1.0"),
    "the order of keys": ("softmax: {impl: softmax}", "softmax: {recipe: {}, args: {}, impl: softmax}"),
    "the spelling of a number": ("lr: 1e-3", "lr: 0.00100"),
    "a whole number for a float": ("expand_k: 1.0", "expand_k: 1"),
    "block style": ("softmax: {impl: softmax}", "softmax:\n    impl: softmax\n    args: {}"),
    "an empty recipe": ("softmax: {impl: softmax}", "softmax: {impl: softmax, recipe: {lm: {}}}"),
    "a claim's margin": ("margin: 0.1", "margin: 0.2"),
    "a claim's sentence": ("It is better.", "It is much better."),
    "the title": ("title: A mixer", "title: Another"),
    "the summary": ("summary: A sentence.", "summary: Another."),
}  # fmt: skip
OTHER = {
    "an argument": ("gate_rank: 8", "gate_rank: 9"),
    "an argument more": ("gate_rank: 8", "gate_rank: 8, gate_temperature: 8"),
    "an argument less": (", gate_rank: 8", ""),
    "the recipe": ("weight_decay: 0.1", "weight_decay: 0.2"),
    "the task of the recipe": ("recipe: {lm:", "recipe: {recall:"),
    "the mechanism": ("impl: gla, args: {expand_k: 1.0, gate_rank: 8}", "impl: retnet"),
}


@pytest.mark.parametrize("edit", SAME.values(), ids=SAME.keys())
def test_a_name_stays(edit: tuple[str, str], tmp_path: Path, profile: config.Profile) -> None:
    assert edit[0] in PAPER
    assert ids(PAPER.replace(*edit), tmp_path, profile) == ids(PAPER, tmp_path, profile)


@pytest.mark.parametrize("edit", OTHER.values(), ids=OTHER.keys())
def test_a_name_changes(edit: tuple[str, str], tmp_path: Path, profile: config.Profile) -> None:
    assert edit[0] in PAPER
    before, after = ids(PAPER, tmp_path, profile), ids(PAPER.replace(*edit), tmp_path, profile)
    assert after["gla"] != before["gla"]
    assert after["softmax"] == before["softmax"]


def test_what_a_paper_calls_its_run_is_not_its_name(tmp_path: Path, profile: config.Profile) -> None:
    renamed = PAPER.replace("  gla:", "  ours:").replace("run: gla", "run: ours")
    assert ids(renamed, tmp_path, profile)["ours"] == ids(PAPER, tmp_path, profile)["gla"]


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"vocab": 300}},
        {"lm": {"steps": 30}},
        {"lm": {"lr": 1e-4}},
        {"lm": {"length": 32}},
        {"recall": {"kinds": ("mqar-4",)}},
    ],
)
def test_training_under_another_profile_is_another_run(change: dict[str, Any], profile: config.Profile) -> None:
    data = profile.data.model_copy(update=change.get("data", {}))
    tasks = {name: task.model_copy(update=change.get(name, {})) for name, task in profile.tasks.items()}
    other = profile.model_copy(update={"data": data, "tasks": tasks})
    run = spec.Run(impl="softmax")
    assert runs.run_settings(run, other).id != runs.run_settings(run, profile).id


def test_what_is_evaluated_is_no_part_of_a_run(profile: config.Profile) -> None:
    other = profile.model_copy(update={"name": "other", "suites": {}})
    run = spec.Run(impl="softmax")
    assert runs.run_settings(run, other).id == runs.run_settings(run, profile).id


def test_a_run_has_the_form_of_a_file_name(profile: config.Profile) -> None:
    found = runs.resolve(spec.load_papers(), profile)
    assert list(found) == sorted(found)
    for name, run in found.items():
        assert name == run.id
        assert name.rpartition("-")[0] == run.impl
        assert len(name.rpartition("-")[2]) == 8
        assert int(name.rpartition("-")[2], 16) >= 0


def test_papers_share_their_baselines(profile: config.Profile) -> None:
    papers = spec.load_papers()
    names = [name for paper in papers.values() for name in runs.run_ids(paper, profile).values()]
    assert set(names) == set(runs.resolve(papers, profile))
    assert len(set(names)) < len(names)
    plain = [paper for paper in papers.values() if "softmax" in paper.runs and paper.runs["softmax"].impl == "softmax"]
    assert len(plain) > 10
    assert len({runs.run_ids(paper, profile)["softmax"] for paper in plain}) == 1


def test_a_recipe_replaces_only_what_it_names(tmp_path: Path, profile: config.Profile) -> None:
    settings = runs.run_settings(paper(PAPER, tmp_path).runs["gla"], profile)
    own, common = settings.tasks["lm"], profile.task("lm")
    assert (own.lr, own.weight_decay) == (0.001, 0.1)
    assert own.model_copy(update={"lr": common.lr, "weight_decay": common.weight_decay}) == common
    assert settings.tasks["recall"] == profile.task("recall")
    assert settings.recipe == {"lm": {"lr": 0.001, "weight_decay": 0.1}}


def test_a_recipe_that_does_not_fit_is_one_sentence(profile: config.Profile) -> None:
    run = spec.Run.model_validate({"impl": "gla", "recipe": {"lm": {"warmup": 10**6}}})
    with pytest.raises(UserError, match="longer than steps"):
        runs.run_settings(run, profile)


def test_the_training_length_is_filled_in_for_each_task(profile: config.Profile) -> None:
    settings = runs.run_settings(spec.Run(impl="sigmoid", args={"n": "train_length"}), profile)
    assert settings.args == {"n": "train_length"}
    for task in profile.tasks:
        assert settings.args_at(task) == {"n": profile.task(task).length}


def test_two_runs_of_one_name_are_refused(
    profile: config.Profile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Constant:
        def __init__(self, _: bytes):
            pass

        def hexdigest(self) -> str:
            return "0" * 64

    monkeypatch.setattr(runs.hashlib, "sha256", Constant)
    text = PAPER.replace("softmax: {impl: softmax}", "softmax: {impl: gla}")
    with pytest.raises(UserError, match="got the name gla-00000000"):
        runs.resolve({"paper": paper(text, tmp_path)}, profile)


def test_numbers_have_one_spelling() -> None:
    assert runs.canonical({"b": 1.0, "a": [1e-3, True, None, "1"]}) == '{"a":[0.001,true,null,"1"],"b":1}'
    assert runs.canonical(1e22) == runs.canonical(10**22)
    assert runs.canonical((1, 2)) == runs.canonical([1, 2])
    assert runs.canonical(-0.0) == "0"
    with pytest.raises(ValueError, match="JSON"):
        runs.canonical(float("nan"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_never_matters(value: dict[str, Any]) -> None:
    assert runs.canonical(dict(reversed(value.items()))) == runs.canonical(value)


def trained(profile: config.Profile, who: str, *tasks: str) -> config.Profile:
    """The profile with these tasks trained only for `who`, the others for all runs."""
    by_task = {name: who if name in tasks else "all" for name in profile.tasks}
    changed = {name: settings.model_copy(update={"trained": by_task[name]}) for name, settings in profile.tasks.items()}
    return profile.model_copy(update={"tasks": changed})


def test_a_run_is_trained_on_what_a_claim_measures_it_on(tmp_path: Path, profile: config.Profile) -> None:
    """The claim of PAPER measures both of its runs on recall; none measures anything on lm."""
    narrow = trained(profile, "claimed", "lm", "recall", "trigger")
    found = runs.resolve({"paper": paper(PAPER, tmp_path)}, narrow)
    assert [run.wanted for run in found.values()] == [{"recall"}, {"recall"}]
    assert {task: runs.asked(next(iter(found.values())), task) for task in narrow.tasks} == {
        "lm": False,
        "recall": True,
        "trigger": False,
    }
    wide = runs.resolve({"paper": paper(PAPER, tmp_path)}, trained(profile, "all"))
    assert all(runs.asked(run, task) for run in wide.values() for task in wide[run.id].tasks)
    assert wide.keys() == found.keys(), "who is trained is no part of a run's name"


def test_each_mechanism_is_seen_once_where_no_claim_measures_it(tmp_path: Path, profile: config.Profile) -> None:
    """On lm, which no claim of PAPER measures; the plainest run of a mechanism stands for it, on all tasks alike."""
    more = "  other: {impl: gla, args: {expand_k: 1.0}}\n  plain: {impl: retnet}\n"
    more += "  odd: {impl: retnet, args: {heads: 1}}\n"
    papers = {"paper": paper(PAPER.replace("claims:", more + "claims:"), tmp_path)}
    found = runs.resolve(papers, trained(profile, "mechanisms", "lm", "recall"))
    names = {id: name for name, id in runs.run_ids(papers["paper"], profile).items()}
    assert {names[id]: set(run.wanted) for id, run in found.items()} == {
        "gla": {"lm", "recall"},  # it is measured on recall, so it is the one to see on lm
        "softmax": {"lm", "recall"},
        "other": set(),
        "plain": {"lm", "recall"},
        "odd": set(),
    }
    assert found.keys() == runs.resolve(papers, profile).keys()


def test_a_precondition_is_a_measurement_that_a_claim_needs(tmp_path: Path, profile: config.Profile) -> None:
    need = "    needs: [{run: softmax, metric: trigger/quiet/first_token_mass, at_least: 0.5, lacking: no sink}]\n"
    found = runs.resolve({"paper": paper(PAPER + need, tmp_path)}, profile)
    assert {run.impl: run.wanted for run in found.values()} == {"gla": {"recall"}, "softmax": {"recall", "trigger"}}
