"""What a configuration asks for, and what is known to be in its way before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import hub, outlook, plan
from harness.config import Config, Data, Hub, load_profile
from harness.errors import UserError
from harness.plan import Plan
from harness.runs import RunSettings, resolve
from harness.suites import longbench, ruler
from tests.judging import claim, paper


def made(names: tuple[str, ...], hf: str | None = None, **more: Any) -> Plan:
    """A plan of the laptop profile with one softmax run, or with a model of the Hub alone."""
    profile = load_profile("laptop").model_copy(update=more)
    papers = {"p": paper(claim("untested", reason="r"))}
    runs = resolve(papers, profile)
    if hf:
        runs = {"hf_tiny-1": RunSettings("hf_tiny-1", "hf_tiny", {}, {}, dict(profile.tasks), profile.data, hf)}
    return Plan(Config(suites=names, hub=more.get("hub")), profile, papers, runs)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the Hub and has LongBench."""
    monkeypatch.setattr(longbench, "NEEDS", ())
    (tmp_path / longbench.DATA).mkdir(parents=True)
    (tmp_path / longbench.DATA / "trec-test.jsonl").write_text("{}")
    return tmp_path


def test_a_mechanism_is_proved_with_the_arguments_of_all_papers_whichever_are_asked_for():
    few, everything = (Plan.load({"profile": "smoke", "papers": papers}) for papers in (["softpick"], "all"))
    assert set(few.runs) < set(everything.runs)
    assert few.settings_of("softmax") == everything.settings_of("softmax")
    assert few.settings_of("softmax").count("{") > 1


def test_what_is_named_and_not_there_is_refused_in_one_sentence_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"^hub: nowhere is no folder"):
        Plan.load({"profile": "smoke", "hub": "nowhere"})
    profile = load_profile("laptop")
    named = profile.model_copy(
        update={"suites": {"ruler": ruler.Settings(haystack="a.txt", squad=str(tmp_path / "b"))}}
    )
    (tmp_path / "b").write_text("{}")
    with pytest.raises(UserError, match=r"^suites\.ruler\.haystack: a\.txt is missing$"):
        outlook.refuse(Config(suites=("ruler",)), named)
    outlook.refuse(Config(suites=("loss",)), named)  # nobody reads it
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    far = profile.model_copy(update={"data": Data(source="hub", hub=Hub(dataset="a/b", documents=1))})
    with pytest.raises(UserError, match=r"^data\.source is hub \(a/b\), but .* is set; let hub name a folder"):
        outlook.refuse(Config(), far)
    (tmp_path / "a" / "b").mkdir(parents=True)
    outlook.refuse(Config(hub=str(tmp_path)), far)


def test_a_name_that_is_too_long_for_the_disk_is_a_missing_file(tmp_path: Path):
    name = "a" * 300
    assert hub.file(name, None) == Path(name)
    assert hub.file(name, str(tmp_path)) == Path(name)
    profile = load_profile("laptop").model_copy(update={"suites": {"ruler": ruler.Settings(haystack=name)}})
    with pytest.raises(UserError, match=r"^suites\.ruler\.haystack: a+ is missing$"):
        outlook.refuse(Config(suites=("ruler",)), profile)


@pytest.mark.parametrize("verdicts", ['[{"paper": ', "[1]", '[{"verdict": "inconclusive"}]'])
def test_damaged_tables_of_the_last_build_are_named_once_the_plan_is_told(verdicts: str, tmp_path: Path):
    (tmp_path / "verdicts.json").write_text(verdicts)
    (tmp_path / "runs.json").write_text("[]")
    told = outlook.lines(made(("loss",)), tmp_path)
    assert next(told).startswith("profile laptop: ")
    with pytest.raises(UserError, match=r"verdicts\.json .*; make (it|them) with "):
        list(told)


def test_what_a_window_cannot_hold_is_told_before_anything_is_trained(folder: Path):
    said = outlook.notes(made(("loss", "longbench"), hub=str(folder)))
    assert said == [
        f"longbench leaves out {tasks}: not applicable: it writes up to {budget} tokens, which leaves no room for a "
        "prompt in a window of 128"
        for tasks, budget in (("narrativeqa, qasper, samsum", 128), ("gov_report, qmsum, multi_news", 512))
    ]
    wide = made(("longbench",), hub=str(folder), suites={"longbench": longbench.Settings(window=1024)})
    assert outlook.notes(wide) == []


def test_the_window_of_a_local_model_is_known_too(folder: Path, monkeypatch: pytest.MonkeyPatch):
    model = folder / "me" / "tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    wanted = {"longbench": longbench.Settings(tasks=("trec", "qmsum", "gov_report_e"))}
    (said,) = outlook.notes(made(("longbench",), "me/tiny", hub=str(folder), suites=wanted))
    assert said.startswith("longbench of me/tiny leaves out qmsum, gov_report_e: not applicable: it writes up to 512")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (said,) = outlook.notes(made(("loss",), "me/other", hub=str(folder)))
    assert said == "me/other is no folder here, and the environment says to stay offline: its cells will say so"


def test_data_that_appear_change_what_the_evaluation_depends_on(tmp_path: Path):
    def seen() -> Plan:
        return made(("zeroshot",), hub=str(tmp_path))

    (reasons,) = outlook.obstacles(seen())["zeroshot"].values()
    assert "is not in the folder that stands for the Hub" in reasons["piqa"]
    (tmp_path / "baber" / "piqa").mkdir(parents=True)
    (tmp_path / "baber" / "piqa" / "validation.jsonl").write_text("{}")
    (reasons,) = outlook.obstacles(seen())["zeroshot"].values()
    assert "piqa" not in reasons
    assert seen().files() == [str(tmp_path / "baber/piqa/validation.jsonl")]
    assert seen().local("baber/piqa") == seen().files()
    assert seen().local(None) == seen().local("not/here") == []


@pytest.mark.parametrize(("value", "said"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_offline_is_what_the_libraries_of_the_hub_take_for_it(monkeypatch: pytest.MonkeyPatch, value: str, said: bool):
    for name in hub.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert hub.offline() is said


def test_the_command_tells_what_lies_ahead(capsys: pytest.CaptureFixture[str]):
    plan.main(["--profile", "smoke", "--papers", "softpick", "--suites", "loss", "--seeds", "0", "1"])
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("profile smoke: 1 papers, ")
    assert first.endswith(" on lm")
    assert second.startswith("records: ")
