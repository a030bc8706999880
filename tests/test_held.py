"""Records that still hold are put back, byte for byte; whatever a number rests on makes it measured again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from harness import dependencies, evaluate, held, suites
from harness.files import seal
from harness.metrics import Metric
from harness.suites import loss
from tests.test_evaluate import PROFILE, RUN, SUITES, edit, trained

__all__ = ["trained"]  # a fixture


@pytest.fixture
def measured(trained, monkeypatch):
    """Both suites measured once; then which suites are measured again."""
    run(monkeypatch, *SUITES)
    again: list[str] = []
    original = evaluate.evaluate

    def watched(run, suite, *given):
        again.append(suite)
        return original(run, suite, *given)

    monkeypatch.setattr(evaluate, "evaluate", watched)
    return again


def run(monkeypatch, *suites, more=()):
    given = ["evaluate", RUN, "--suite", *suites, "--seed", "1", "--profile", "tiny", "--device", "cpu", *more]
    monkeypatch.setattr("sys.argv", given)
    evaluate.main()


def test_a_record_that_was_removed_is_put_back_byte_for_byte(trained, monkeypatch, measured):
    files = [trained / task / "seed1" / f"{suite}.json" for task, suite in (("lm", "loss"), ("recall", "recall"))]
    before = [file.read_bytes() for file in files]
    files[0].unlink()
    files[1].write_text("{")
    run(monkeypatch, *SUITES)
    assert measured == []
    assert [file.read_bytes() for file in files] == before


def test_what_is_asked_for_anew_is_measured_whatever_holds(trained, monkeypatch, measured):
    run(monkeypatch, "loss", more=["--anew"])
    assert measured == ["loss"]
    run(monkeypatch, "loss")
    assert measured == ["loss"]  # the new record holds in turn


def test_another_setting_of_one_suite_measures_that_suite_alone(trained, monkeypatch, measured):
    monkeypatch.setitem(SUITES, "loss", loss.Settings(tokens=128, multiples=(1, 2)))
    run(monkeypatch, *SUITES)
    assert measured == ["loss"]
    monkeypatch.setitem(SUITES, "loss", loss.Settings(tokens=256, multiples=(1, 2)))
    run(monkeypatch, *SUITES)
    assert measured == ["loss", "loss"]  # the last record is kept, not all that ever were


def test_other_code_of_one_suite_measures_that_suite_alone(trained, monkeypatch, measured, tmp_path):
    file, original = tmp_path / "new.py", dependencies.job
    file.write_text("")

    def edited(*modules):
        return [*original(*modules), *([str(file)] if "harness.suites.recall" in modules else [])]

    monkeypatch.setattr(dependencies, "job", edited)
    run(monkeypatch, *SUITES)
    assert measured == ["recall"]


def test_how_a_command_line_is_read_is_no_ground():
    file, module = "harness/arguments.py", "harness.arguments"
    for step in ("harness.train", "harness.evaluate", "harness.noise", "harness.tune"):
        assert file in dependencies.whole(step)
        assert file not in dependencies.job(step)
    assert dependencies.imports(module) - {"harness"} <= set(dependencies.SETTLED)


def heavier(trained):
    weights = trained / "lm" / "seed1" / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights)


def another_length(trained):
    path = trained / "lm" / "seed1" / "run.json"
    settings = json.loads(path.read_text())["settings"]
    edit(path, settings=settings | {"length": 16})


def another_choice_of_a_method(trained):
    path = trained / "lm" / "seed1" / "run.json"
    edit(path, model=json.loads(path.read_text())["model"] | {"method": None, "conv": 4})
    assert held.basis("loss", json.loads(path.read_text()), path.parent, PROFILE, "cpu")  # pyright: ignore[reportArgumentType]


def another_corpus(trained):
    path = PROFILE.data.folder / "manifest.json"
    manifest = {key: value for key, value in json.loads(path.read_text()).items() if key != "seal"}
    edit(path, settings={"seed": 1}, seal=seal(manifest | {"settings": {"seed": 1}}))


def a_damaged_copy(trained):
    path = held.STATE / RUN / "lm" / "seed1" / "loss.json"
    path.write_text(path.read_text()[:-9])


@pytest.mark.parametrize(
    "change", [heavier, another_length, another_choice_of_a_method, another_corpus, a_damaged_copy]
)
def test_what_a_number_rests_on_makes_it_measured_again(trained, monkeypatch, measured, change):
    change(trained)
    run(monkeypatch, "loss")
    assert measured == ["loss"]


def test_a_failure_is_not_kept(trained, monkeypatch, measured):
    monkeypatch.setattr(loss, "evaluate", lambda *given: iter(()))
    heavier(trained)
    run(monkeypatch, "loss")
    run(monkeypatch, "loss")
    assert measured == ["loss", "loss"]


def test_other_data_files_and_obstacles_are_other_grounds(trained, monkeypatch, tmp_path):
    folder = trained / "lm" / "seed1"
    training = json.loads((folder / "run.json").read_text())
    file = tmp_path / "questions.jsonl"
    seen = set()
    for content, lacking in ((None, {"a": "no data"}), ("1", {}), ("2", {})):
        if content:
            file.write_text(content)
        monkeypatch.setattr(loss, "files", lambda profile: [file], raising=False)
        monkeypatch.setattr(loss, "obstacles", lambda profile, found=lacking: found, raising=False)
        seen.add(held.basis("loss", training, folder, PROFILE, "cpu"))  # pyright: ignore[reportArgumentType]
    assert len(seen) == 3
    for kernels in ("0", "1"):
        monkeypatch.setenv("ATTEST_KERNELS", kernels)
        seen.add(held.basis("loss", training, folder, PROFILE, "cuda:0"))  # pyright: ignore[reportArgumentType]
    assert len(seen) == 5


def test_what_the_model_wrote_is_put_back_with_its_record_and_goes_with_a_failure(trained, monkeypatch, measured):
    answers, original = trained / "lm" / "seed1" / "loss.raw.json", loss.evaluate

    def asking(*given):
        yield suites.Sample("test", None, "asked", "written", ["wanted"], 1.0)
        yield from original(*given)

    monkeypatch.setattr(loss, "evaluate", asking)
    heavier(trained)
    run(monkeypatch, "loss")
    before = answers.read_bytes()
    answers.write_text("[]")
    run(monkeypatch, "loss")
    assert (measured, answers.read_bytes()) == (["loss"], before)
    monkeypatch.setattr(loss, "evaluate", lambda *given: iter(()))
    heavier(trained)
    run(monkeypatch, "loss")
    assert not answers.exists()


def test_times_of_another_machine_do_not_hold(trained, monkeypatch):
    folder, seen = trained / "lm" / "seed1", set()
    training = json.loads((folder / "run.json").read_text())
    for timed in (False, True):
        monkeypatch.setattr(loss, "METRICS", {"nats": Metric(unit="nats", better="lower", timed=timed)})
        for name in ("this", "another"):
            monkeypatch.setattr(held.provenance, "hardware", lambda on, name=name: {"processor": name})
            seen.add(held.basis("loss", training, folder, PROFILE, "cpu"))  # pyright: ignore[reportArgumentType]
    assert len(seen) == 3


def test_what_is_timed_beside_softmax_rests_on_the_code_of_softmax():
    for suite, beside in (("efficiency", True), ("loss", False)):
        code = dependencies.job("harness.evaluate", f"harness.suites.{suite}", "impls.gla")
        assert ("impls/softmax.py" in code) == beside


def test_a_suite_that_draws_nothing_rests_on_the_same_twice(trained):
    folder = trained / "lm" / "seed1"
    training = json.loads((folder / "run.json").read_text())
    first, second = (
        held.basis("loss", training | {"seconds": seconds}, folder, PROFILE, "cpu")  # pyright: ignore[reportArgumentType]
        for seconds in np.arange(2)
    )
    assert first == second
