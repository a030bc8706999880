"""A study and a method, each added by one module and one paper: made, measured, judged and shown."""

from __future__ import annotations

import json
import re
import signal
import sys
import time

import pytest

from tests.workflow_project import SOFTMAX, Project, paper

LADDER = '''"""The mean of n draws. Nobody 2024, arXiv:2401.00007."""

import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from impls import study
from impls.study import Metric, Row


class Study(study.Study):
    METRICS: ClassVar = {"error": Metric(unit="1", better="lower", summary="distance of the mean from 0")}
    AXES: ClassVar = {"mean": "draws"}

    @dataclass(frozen=True, kw_only=True)
    class Config:
        scale: float = 1.0
        raises: bool = False
        pause: float = 0.0

    def cells(self):
        return [("mean", n, "error") for n in (1, 4, 16)]

    def parts(self):
        return ["one", "four", "sixteen"]

    def measure(self, part, seed, device):
        n = {"one": 1, "four": 4, "sixteen": 16}[part]
        if self.config.raises and n == 4:
            raise ArithmeticError("the <b>ladder</b> fell")
        time.sleep(self.config.pause)
        draws_SN = torch.randn(self.scaled(4000, 400), n) * self.config.scale
        error_S = draws_SN.mean(1).abs()
        yield Row("mean", n, "error", error_S.mean().item(), len(error_S))
'''
HALVED = '''"""A model that adds half of what its mixers give. Nobody 2024, arXiv:2401.00008."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from impls import method
from impls.method import Metric


class Method(method.Method):
    METRICS: ClassVar = {"kept": Metric(unit="share", better="none", summary="of the output's width that is kept")}

    @dataclass(frozen=True, kw_only=True)
    class Config:
        share: float = 0.5

    def choose(self, model, calibration, seed):
        assert calibration[0][0].shape == calibration[0][1].shape
        width = model.shape.width
        return {"kept": torch.randperm(width)[: int(width * self.config.share)].tolist()}

    def install(self, model, choices):
        keep = torch.zeros(model.shape.width)
        keep[choices["kept"]] = 1
        for layer in model.layers:
            layer.mixer.out.register_buffer("keep", keep.clone())
            layer.mixer.out.register_forward_hook(lambda module, inputs, output: output * module.keep)
        return model

    def heal(self, model, base, calibration, seed):
        with torch.no_grad():
            model.norm.weight.mul_(1.25)

    def report(self, choices):
        return {"kept": self.config.share}
'''
FINE, COARSE = {"impl": "ladder"}, {"impl": "ladder", "args": {"scale": 3.0}}
CLAIM = {"quote": "is so", "where": "abstract", "margin": 0.1, "margin_from": "ours"}


def study_paper() -> dict:
    """The finer ladder is lower than the coarse one, and falls with draws; a third one raises."""
    found = paper("2401.00007", fine=FINE, coarse=COARSE, broken={"impl": "ladder", "args": {"raises": True}})
    found["claims"] = [
        CLAIM | {"id": "lower", "kind": "compare", "run": "fine", "baseline": "coarse", "expect": "lower",
                 "metric": "study/mean/error@4"},
        CLAIM | {"id": "falls", "kind": "trend", "run": "fine", "over": "length", "expect": "falls",
                 "metric": "study/mean/error"},
        CLAIM | {"id": "blocked", "kind": "compare", "run": "broken", "baseline": "coarse", "expect": "lower",
                 "metric": "study/mean/error@16"},
    ]  # fmt: skip
    return found


def method_paper() -> dict:
    """Half a model is worse than the whole one, and says how much it keeps."""
    found = paper("2401.00008", half={"impl": "halved", "base": "whole"}, whole=SOFTMAX)
    found["claims"] = [
        CLAIM | {"id": "worse", "kind": "compare", "run": "half", "baseline": "whole", "expect": "higher",
                 "metric": "loss/test/bits_per_byte@1x"},
        {"id": "keeps", "quote": "is so", "where": "abstract", "kind": "value", "run": "half", "value": 0.5,
         "metric": "method/lm/kept", "tolerance": 0.01, "tolerance_from": "ours"},
    ]  # fmt: skip
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("built"))
    project.write("impls/ladder.py", LADDER)
    project.write("impls/halved.py", HALVED)
    project.write("papers/ladder.yaml", study_paper())
    project.write("papers/half.yaml", method_paper())
    project.write("config/config.yaml", {"profile": "tiny", "seeds": [0, 1], "suites": ["loss"], "device": "cpu"})
    done = project.snakemake()
    assert done.returncode == 0, done.stdout
    return project


def read(project: Project, name: str) -> list[dict]:
    return json.loads((project.folder / "results" / name).read_text())


def page(project: Project, name: str) -> str:
    return (project.folder / "results/site" / name).read_text()


def test_a_study_is_measured_and_judged(built: Project):
    rows = [row for row in read(built, "measurements.json") if row["suite"] == "study"]
    cells = {(row["run"], row["seed"], row["length"]) for row in rows if row["impl"] == "ladder"}
    assert len(cells) == 2 * (3 + 3 + 1)  # seeds; the broken one got as far as its first part
    verdicts = {verdict["claim"]: verdict for verdict in read(built, "verdicts.json")}
    assert verdicts["lower"]["verdict"] == verdicts["falls"]["verdict"] == "reproduced"
    assert verdicts["falls"]["unit"] == "1 per doubling"
    assert verdicts["blocked"]["verdict"] == "blocked"
    why = verdicts["blocked"]["reason"]
    assert "broken lacks seeds 0, 1: study failed: ArithmeticError: the <b>ladder</b> fell" in why


def test_a_method_is_made_from_the_trained_model_and_measured_by_the_suites(built: Project):
    verdicts = {verdict["claim"]: verdict for verdict in read(built, "verdicts.json")}
    assert verdicts["worse"]["run_values"] != verdicts["worse"]["baseline_values"]
    assert verdicts["keeps"]["verdict"] == "reproduced"
    (half,) = {run["run"] for run in read(built, "runs.json") if run["impl"] == "halved"}
    made = json.loads((built.folder / f"results/runs/{half}/lm/seed1/run.json").read_text())
    assert (made["status"], made["base"].partition("-")[0]) == ("ok", "softmax")
    assert len(made["model"]["method"]["choices"]["kept"]) == 8
    costs = json.loads((built.folder / "results/costs.json").read_text())
    assert costs[half]["lm"]["flops_per_token"] == costs[made["base"]]["lm"]["flops_per_token"]


def test_both_are_on_the_site_and_neither_in_the_way(built: Project):
    ladder, half = page(built, "papers/ladder.html"), page(built, "papers/half.html")
    assert "draws" in ladder
    assert "<svg" in ladder
    assert "the &lt;b&gt;ladder&lt;/b&gt; fell" in ladder
    assert "FLOPs a token" not in ladder
    assert "Learning curve" not in ladder
    assert "kept" in half
    front = page(built, "index.html")
    board = front[front.index('id="leaderboard"') : front.index("</table>", front.index('id="leaderboard"'))]
    assert "ladder" not in board
    assert "halved" in board
    assert "ladder" not in page(built, "proof.html")
    assert built.would_run() == {}


def test_what_an_edit_of_either_reruns(built: Project):
    report = {"aggregate": 1, "judge": 1, "history": 1, "site": 1}
    with built.edited("impls/ladder.py", lambda text: text + "# edited\n"):
        assert built.would_run() == {"study": 6} | report
    with built.edited("impls/halved.py", lambda text: text + "# edited\n"):
        assert built.would_run() == {"apply": 2, "evaluate": 2, "costs": 1} | report


def test_a_killed_study_goes_on_and_ends_in_the_same_bytes(built: Project):
    built.write("papers/slow.yaml", paper("2401.00009", slow={"impl": "ladder", "args": {"pause": 0.7}}))
    try:
        asked = "from harness.plan import Plan; print(*Plan.load().made_by('study'))"
        listed = built.run([sys.executable, "-c", asked])
        known = {path.name for path in (built.folder / "results/runs").glob("ladder-*")}
        (run,) = set(listed.stdout.split()) - known
        command = [sys.executable, "-m", "harness.study", run, "--seed", "0", "--profile", "tiny", "--device", "cpu"]
        folder = built.folder / f"results/runs/{run}/study/seed0"
        kept = built.folder / f"results/state/{run}/study/seed0"
        assert built.run(command).returncode == 0
        whole = (folder / "study.json").read_bytes()
        for name in ("study.json", "run.json"):
            (folder / name).unlink()
        killed = built.popen(command)
        until = time.monotonic() + 60
        while not (kept / "one.json").is_file() and time.monotonic() < until:
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert [path.name for path in kept.glob("*.json")] == ["one.json"]
        assert not (folder / "study.json").exists()
        again = built.run(command)
        assert "one was measured before" in again.stdout
        assert timeless((folder / "study.json").read_bytes()) == timeless(whole)
        assert not kept.exists()
    finally:
        (built.folder / "papers/slow.yaml").unlink()


def timeless(content: bytes) -> bytes:
    return re.sub(rb'"seconds": [0-9.]+', b"", content)
