"""One command that measures a model of the Hub: its table, its records, and what it refuses."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import evaluate, hub, measure, pretrained
from harness.config import load_profile
from harness.errors import UserError
from tests import tiny_model

pytest.importorskip("lm_eval")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in hub.OFFLINE:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_a_model_is_measured_by_one_command_and_again_only_where_something_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    model, data = tiny_model.save(tmp_path / "tiny"), tiny_model.save_hub(tmp_path / "hub")
    given = [str(model), "--suite", "zeroshot", "longbench", "--profile", "smoke", "--device", "cpu"]
    given += ["--hub", str(data), "--out", str(tmp_path / "out"), "--set", "zeroshot.limit=3"]
    assert measure.main(given) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["suite", "task", "length", "metric", "value", "±", "n", "unit"]
    assert [line.split()[:3] for line in told[1:3]] == [["zeroshot", "piqa", name] for name in ("acc", "acc_norm")]
    assert [line.split()[-2] for line in told[1:3]] == ["3", "3"]
    assert any(
        line.startswith("zeroshot leaves out lambada_openai: its data set is not in the folder") for line in told
    )
    (folder,) = tmp_path.glob("out/hf_tiny-*/lm/seed0")
    record = json.loads((folder / "zeroshot.json").read_text())
    assert record["status"] == "ok"
    assert set(record["questions"]) == {"piqa"}
    assert json.loads((folder / "run.json").read_text())["settings"] == {"hf": str(model), "length": tiny_model.WINDOW}

    again: list[str] = []
    original = evaluate.evaluate
    monkeypatch.setattr(
        evaluate, "evaluate", lambda run, suite, *rest: again.append(suite) or original(run, suite, *rest)
    )
    assert measure.main(given) == 0
    assert again == []
    assert capsys.readouterr().out.splitlines() == told
    measure.main([*given[:-1], "zeroshot.limit=4"])
    file = data / "baber" / "piqa" / "validation.jsonl"
    file.write_text(file.read_text().replace("read", "tear"))
    measure.main([*given[:-1], "zeroshot.limit=4"])
    assert again == ["zeroshot", "zeroshot"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--suite", "loss"], r"--suite loss: a model of the Hub is measured with .*: longbench, ruler, zeroshot$"),
        (["--set", "zeroshot.limt=3"], r"--set zeroshot\.limt:1: .*did you mean 'limit'"),
        (["--set", "zeroshot.limit=none"], r"--set zeroshot\.limit:1: limit"),
        (["--set", "zeroshoot.limit=3"], r"there is no suite 'zeroshoot'; did you mean 'zeroshot'\?"),
        (["--set", "limit=3"], r"--set limit=3: write suite\.key=value"),
        (["--hub", "nowhere"], r"hub: nowhere is no folder"),
        ([], r"hf: no/model cannot be read"),
    ],
)
def test_what_cannot_be_is_one_sentence(given: list[str], sentence: str, tmp_path: Path):
    with pytest.raises(UserError, match=sentence):
        measure.main(["no/model", "--profile", "smoke", "--device", "cpu", "--out", str(tmp_path), *given])
    assert not list(tmp_path.iterdir())


def test_settings_are_read_as_in_a_profile():
    profile = measure.changed(load_profile("smoke"), ["ruler.lengths=[256, 512]", "longbench.tasks=[trec]"])
    assert profile.suite("ruler").lengths == (256, 512)
    assert profile.suite("ruler").samples == 2
    assert profile.suite("longbench").tasks == ("trec",)


def test_a_corpus_of_an_earlier_version_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[Path] = []
    monkeypatch.setattr(measure.data, "make", lambda settings, folder, say, hub: made.append(folder))
    profile: Any = SimpleNamespace(data=SimpleNamespace(folder=tmp_path), hub=None)
    (tmp_path / "manifest.json").write_text('{"seal": ""}')
    measure.corpus(profile)
    assert not made
    (tmp_path / "manifest.json").write_text("{}")
    measure.corpus(profile)
    (tmp_path / "manifest.json").unlink()
    measure.corpus(profile)
    assert made == [tmp_path, tmp_path]


class Payload:
    """What would leave a file behind if it were unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.save(tmp_path_factory.mktemp("hub") / "model")


def test_weights_that_are_pickled_are_not_read(model: Path, tmp_path: Path):
    mark, copy = tmp_path / "ran", tmp_path / "model"
    shutil.copytree(model, copy)
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(UserError, match="cannot be read"):
        pretrained.load(str(copy), None)
    assert not mark.exists()


def test_code_beside_a_model_does_not_run(model: Path, tmp_path: Path):
    mark, copy = tmp_path / "ran", tmp_path / "model"
    shutil.copytree(model, copy)
    settings = json.loads((copy / "config.json").read_text())
    settings |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
    (copy / "config.json").write_text(json.dumps(settings))
    (copy / "mine.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    with pytest.raises(UserError, match="cannot be read"):
        pretrained.load(str(copy), None)
    assert not mark.exists()
