"""Evaluation of a run on disk: its record, its failures, and what it must leave alone."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness import evaluate, held, scoring
from harness.config import Data
from harness.errors import UserError
from harness.evaluate import is_number, undisturbed
from harness.files import seal, sha256_file, write_json
from harness.model import Shape, build
from harness.suites import Row, loss, recall
from harness.tasks import lm
from harness.tasks import recall as recall_task

RUN = "softmax-00000000"
MODEL = {"width": 16, "layers": 1, "heads": 2, "mlp": 16, "conv": 4}
COMMON: dict[str, Any] = {"model": MODEL, "length": 32, "batch": 2, "steps": 1, "lr": 1e-3, "warmup": 0}
SETTINGS = {
    "lm": lm.Settings(**COMMON, valid_every=1, valid_tokens=64),
    "recall": recall_task.Settings(**COMMON, kinds=("mqar-4",)),
}
SUITES = {
    "loss": loss.Settings(tokens=256, multiples=(1, 2)),
    "recall": recall.Settings(examples=8, kinds=("mqar-4", "needle-1"), multiples=(1, 4)),
}
PROFILE = SimpleNamespace(name="tiny", data=Data(), task=SETTINGS.__getitem__, suite=SUITES.__getitem__)
VOCAB = {"lm": 50, "recall": recall_task.VOCAB}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Untrained models of both tasks in results/runs and a corpus of random tokens, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate, "load_profile", lambda name: PROFILE)
    for task, vocab in VOCAB.items():
        shape = {
            "impl": "softmax",
            "args": {"heads": 2},
            "vocab": vocab,
            "width": 16,
            "layers": 1,
            "mlp": 16,
            "conv": 4,
        }
        folder = tmp_path / "results" / "runs" / RUN / task / "seed1"
        record = {
            "run": RUN,
            "impl": "softmax",
            "task": task,
            "seed": 1,
            "status": "ok",
            "reason": None,
            "model": shape,
        }
        write_json(folder / "run.json", record | {"settings": SETTINGS[task].model_dump(mode="json")})
        model = build(Shape(**shape), seed=3)
        save_file(model.state_dict(), folder / "model.safetensors")
    data = tmp_path / PROFILE.data.folder
    data.mkdir(parents=True)
    np.save(data / "test.npy", np.random.default_rng(0).integers(0, 50, 300).astype(np.uint16))
    np.save(data / "token_bytes.npy", np.arange(50, dtype=np.uint16))
    names = ("test.npy", "token_bytes.npy")
    manifest = {"tokenizer": {"vocab": 50}, "files": {name: sha256_file(data / name) for name in names}}
    write_json(data / "manifest.json", manifest | {"seal": seal(manifest)})
    return tmp_path / "results" / "runs" / RUN


def run_main(monkeypatch, suite, *more):
    shutil.rmtree(held.STATE, ignore_errors=True)  # so that it is measured, whatever was before
    monkeypatch.setattr(
        sys, "argv", ["evaluate", RUN, "--suite", suite, "--seed", "1", "--profile", "tiny", "--device", "cpu", *more]
    )
    return evaluate.main()


def read(trained, suite, task):
    return json.loads((trained / task / "seed1" / f"{suite}.json").read_text())


def edit(path, **changes):
    write_json(path, json.loads(path.read_text()) | changes)


def poison(trained, task):
    """A model all of whose logits are NaN."""
    folder = trained / task / "seed1"
    shape = json.loads((folder / "run.json").read_text())["model"]
    weights = {
        name: torch.full_like(tensor, math.nan) for name, tensor in build(Shape(**shape), 3).state_dict().items()
    }
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(("suite", "task"), [("loss", "lm"), ("recall", "recall")])
def test_a_record_holds_every_cell_and_is_the_same_twice(trained, monkeypatch, suite, task):
    assert run_main(monkeypatch, suite, "--strict") == 0
    first = read(trained, suite, task)
    assert run_main(monkeypatch, suite) == 0
    second = read(trained, suite, task)
    for record in (first, second):
        assert record.pop("seconds") >= 0
        assert record.pop("commit")
    assert json.dumps(first) == json.dumps(second)
    assert (first["run"], first["impl"], first["task"], first["seed"], first["suite"]) == (
        RUN,
        "softmax",
        task,
        1,
        suite,
    )
    assert (first["status"], first["reason"]) == ("ok", None)
    cells = {"loss": loss, "recall": recall}[suite].cells(PROFILE)
    assert [(row["task"], row["length"], row["metric"]) for row in first["rows"]] == cells
    assert set(first["rows"][0]) == {"task", "length", "metric", "value", "n", "stderr", "unit"}


def test_a_model_without_an_opinion_costs_what_a_uniform_one_does(trained, monkeypatch):
    weights = trained / "lm" / "seed1" / "model.safetensors"
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(weights).items()}, weights)
    run_main(monkeypatch, "loss")
    rows = {(row["task"], row["length"], row["metric"]): row for row in read(trained, "loss", "lm")["rows"]}
    assert rows["test", 32, "nats"]["value"] == pytest.approx(math.log(50), rel=1e-6)
    text = np.load(PROFILE.data.folder / "test.npy")[1:257]
    share = 256 * rows["test", 32, "nats"]["value"] / math.log(2) / text.sum()  # token i spells i bytes here
    assert rows["test", 32, "bits_per_byte"]["value"] == pytest.approx(share, rel=1e-9)
    assert rows["test", 32, "bits_per_byte"]["unit"] == "bits/byte"


def test_items_are_the_scores_behind_the_rows(trained, monkeypatch):
    run_main(monkeypatch, "recall")
    record = read(trained, "recall", "recall")

    def key(row):
        return f"{row['task']}/{row['metric']}@{row['length']}"

    assert list(record["items"]) == sorted(map(key, record["rows"]))
    for row in record["rows"]:
        items = [float(item) for item in record["items"][key(row)].split()]
        assert len(items) == 8
        assert sum(items) / row["n"] == pytest.approx(row["value"])
    run_main(monkeypatch, "loss")
    record = read(trained, "loss", "lm")
    for row in record["rows"]:
        items = np.array(record["items"][key(row)].split(), dtype=float)
        assert items.mean() == pytest.approx(row["value"], rel=1e-6)
        assert items.std(ddof=1) / len(items) ** 0.5 == pytest.approx(row["stderr"] or 0, rel=1e-5), key(row)


def test_picks_do_not_depend_on_the_batch(trained, monkeypatch):
    run_main(monkeypatch, "recall")
    together = read(trained, "recall", "recall")
    monkeypatch.setattr(scoring, "LARGEST", 1)  # one row at a time
    run_main(monkeypatch, "recall")
    apart = read(trained, "recall", "recall")
    assert together["rows"] == apart["rows"]
    assert together["items"] == apart["items"]


@pytest.mark.parametrize("status", ["failed", "diverged"])
def test_a_suite_is_blocked_by_a_training_without_a_model(trained, monkeypatch, status):
    folder = trained / "recall" / "seed1"
    edit(folder / "run.json", status=status, reason="the loss is NaN at step 928")
    (folder / "model.safetensors").write_bytes(b"")
    assert run_main(monkeypatch, "recall") == 0
    record = read(trained, "recall", "recall")
    assert (record["status"], record["reason"]) == ("blocked", f"training {status}: the loss is NaN at step 928")
    assert record["rows"] == []
    assert run_main(monkeypatch, "recall", "--strict") == 1


def test_nan_is_no_row_and_the_reason_says_where(trained, monkeypatch):
    poison(trained, "lm")
    assert run_main(monkeypatch, "loss") == 0
    record = read(trained, "loss", "lm")
    assert (record["status"], record["rows"]) == ("failed", [])
    assert record["reason"].startswith("not finite: test/bits_per_byte@32, test/nats@32,")
    assert run_main(monkeypatch, "loss", "--strict") == 1
    poison(trained, "recall")
    run_main(monkeypatch, "recall")
    record = read(trained, "recall", "recall")
    assert (record["status"], record["rows"], record["items"]) == ("failed", [], {})


def test_a_suite_that_breaks_half_way_keeps_what_it_measured(trained, monkeypatch, capsys):
    def breaks(model, settings, profile, seed, device):
        yield Row("mqar-4", 32, "accuracy", 0.5, 8, 0.1)
        raise RuntimeError("out of\n memory")

    monkeypatch.setattr(recall, "evaluate", breaks)
    assert run_main(monkeypatch, "recall") == 0
    record = read(trained, "recall", "recall")
    assert (record["status"], record["reason"]) == ("failed", "RuntimeError: out of memory")
    assert [row["value"] for row in record["rows"]] == [0.5]
    assert "Traceback" in capsys.readouterr().err  # in the log


def test_a_cell_forgotten_or_not_announced_is_said(trained, monkeypatch):
    strange = [Row("mqar-4", 32, "accuracy", 0.0, 8, 0.0), Row("mqar-5", 32, "accuracy", 1.0, 8)]
    monkeypatch.setattr(recall, "evaluate", lambda *_: iter(strange))
    run_main(monkeypatch, "recall")
    record = read(trained, "recall", "recall")
    assert record["reason"] == (
        "not measured: needle-1/accuracy@32, needle-1/accuracy@128; "
        "measured but not announced by cells(): mqar-5/accuracy@32"
    )
    assert [(row["task"], row["value"]) for row in record["rows"]] == [("mqar-4", 0.0)]  # 0.0 is a measurement


def test_a_text_too_short_is_one_sentence(trained, monkeypatch):
    monkeypatch.setitem(SUITES, "loss", loss.Settings(tokens=256, multiples=(1, 16)))
    assert run_main(monkeypatch, "loss") == 0
    assert read(trained, "loss", "lm")["reason"].startswith("256 tokens of test text do not fill windows of 32, 512")


def test_broken_weights_are_a_failure_of_the_cell(trained, monkeypatch):
    (trained / "lm" / "seed1" / "model.safetensors").write_bytes(b"not weights")
    assert run_main(monkeypatch, "loss") == 0
    assert read(trained, "loss", "lm")["status"] == "failed"


@pytest.mark.parametrize("digest", ["of these", "of others"])
def test_weights_that_are_not_those_that_were_written_give_no_number(trained, monkeypatch, digest):
    weights = trained / "lm" / "seed1" / "model.safetensors"
    edit(weights.with_name("run.json"), digest=sha256_file(weights) if digest == "of these" else "0" * 64)
    run_main(monkeypatch, "loss")
    record = read(trained, "loss", "lm")
    assert (record["status"] == "ok", bool(record["rows"])) == (digest == "of these",) * 2
    if digest == "of others":
        assert "model.safetensors is damaged (its SHA-256 is not in run.json); delete results/runs/" in record["reason"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": 2}, "is of seed 2, not 1"),
        ({"run": "gla-11111111"}, "is of run 'gla-11111111'"),
        ({"status": "?"}, "damaged"),
    ],
)
def test_a_record_of_another_run_is_refused(trained, monkeypatch, changes, sentence):
    edit(trained / "lm" / "seed1" / "run.json", **changes)
    with pytest.raises(UserError, match=sentence):
        run_main(monkeypatch, "loss")
    assert not (trained / "lm" / "seed1" / "loss.json").exists()


def test_mode_and_random_state_are_left_alone():
    drop, fixed = torch.nn.Dropout(), torch.nn.Sequential(torch.nn.Linear(2, 2))
    model = torch.nn.Sequential(drop, fixed)
    model.train()
    fixed.eval()
    state = torch.get_rng_state()
    with undisturbed(model):
        assert not model.training
        assert not drop.training
        assert not model(torch.ones(1, 2)).requires_grad
        torch.rand(3)
    assert model.training
    assert drop.training
    assert not fixed.training
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(RuntimeError), undisturbed(model):
        raise RuntimeError
    assert model.training


def test_evaluation_draws_no_random_numbers(trained, monkeypatch):
    np.random.seed(5)
    expected, state = np.random.RandomState(5).random(), torch.get_rng_state()
    run_main(monkeypatch, "recall")
    assert np.random.random() == expected
    assert torch.equal(state, torch.get_rng_state())


def test_numbers():
    assert is_number(Row("a", None, "b", 0.0, 1))
    assert is_number(Row("a", None, "b", 0.0, 1, 0.0))
    assert not any(is_number(Row("a", None, "b", value, 1)) for value in (math.nan, math.inf, -math.inf))
    assert not is_number(Row("a", None, "b", 1.0, 1, math.nan))


def test_a_run_that_was_never_trained_is_one_sentence_and_exit_code_1():
    command = [sys.executable, "-m", "harness.evaluate", "softmax-ffffffff", "--suite", "recall", "--seed", "0"]
    command += ["--profile", "laptop", "--device", "cpu"]
    ended = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == (
        "results/runs/softmax-ffffffff/recall/seed0/run.json is missing; run snakemake to make it\n"
    )
