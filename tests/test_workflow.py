"""The workflow, run for real in a copy of the project with two mechanisms that train for moments."""

from __future__ import annotations

import base64
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest
import yaml

import impls
from harness import dependencies
from tests.workflow_project import ROOT, SOFTMAX, TINY, Project, paper


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two papers that share the softmax baseline, built in full."""
    project = Project(tmp_path_factory.mktemp("built"))
    project.write("papers/first.yaml", paper("2401.00001", softmax=SOFTMAX))
    linear = {"impl": "linear_attention", "args": {"heads": 2}}
    project.write("papers/second.yaml", paper("2401.00002", linear=linear, softmax=SOFTMAX))
    done = project.snakemake()
    assert done.returncode == 0, done.stdout
    assert "results/site/index.html" in done.stdout
    assert re.search(r"^(\d+) of \1 jobs done$", done.stdout, re.MULTILINE)
    found = project.run([sys.executable, "-m", "harness.failures"])
    assert found.returncode == 0, found.stdout
    return project


JUDGED = {"judge": 1, "history": 1, "site": 1}
REPORT = {"aggregate": 1} | JUDGED
PROOF = {"prove": 1, "proofs": 1}
ONE_RUN = {"train": 2, "costs": 1, "evaluate": 1} | REPORT  # one mechanism on both tasks
EVERYTHING = {"train": 4, "costs": 1, "evaluate": 2} | REPORT


def reorder(text: str) -> str:
    value = yaml.safe_load(text)
    return yaml.safe_dump(dict(reversed(value.items())), sort_keys=False)


def longer(text: str) -> str:
    return text.replace("multiples:\n    - 1\n    - 2\n", "multiples:\n    - 1\n    - 4\n")


@pytest.mark.parametrize(
    ("path", "change", "jobs"),
    [
        pytest.param("papers/second.yaml", lambda t: t + "# a comment\n", {}, id="comment"),
        pytest.param("papers/second.yaml", reorder, {}, id="order of keys"),
        pytest.param("papers/second.yaml", lambda t: t.replace("0.05", "0.07"), JUDGED, id="margin of a claim"),
        pytest.param("papers/second.yaml", lambda t: t.replace("is more", "is less"), JUDGED, id="quote"),
        pytest.param(
            "papers/second.yaml",
            lambda t: t.replace(
                "linear_attention\n    args:\n      heads: 2", "linear_attention\n    args:\n      heads: 1"
            ),
            ONE_RUN | PROOF,
            id="arguments of a run",
        ),
        pytest.param("impls/linear_attention.py", lambda t: t + "# edited\n", ONE_RUN | PROOF, id="module of a run"),
        pytest.param("impls/gla.py", lambda t: t + "# edited\n", {}, id="module of no run"),
        pytest.param(
            "impls/ops.py", lambda t: t + "# edited\n", EVERYTHING | {"prove": 2, "proofs": 1}, id="shared functions"
        ),
        pytest.param("harness/fit.py", lambda t: t + "# edited\n", EVERYTHING, id="training loop"),
        pytest.param("harness/suites/recall.py", lambda t: t + "# edited\n", {"evaluate": 2} | REPORT, id="suite"),
        pytest.param("config/profiles/tiny.yaml", longer, {"evaluate": 2} | REPORT, id="settings of a suite"),
        pytest.param("templates/base.html.j2", lambda t: t + "\n", {"site": 1}, id="template"),
        pytest.param("harness/lock.py", lambda t: t + "# edited\n", {}, id="module without a say"),
    ],
)
def test_what_an_edit_reruns(built: Project, path: str, change: Callable[[str], str], jobs: dict[str, int]):
    with built.edited(path, change):
        assert built.would_run() == jobs


def test_nothing_to_do_is_said_in_seconds(built: Project):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = built.snakemake()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "Nothing to be done" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10  # of one core, however busy it is


def test_a_new_paper_runs_only_what_is_new(built: Project):
    built.write("papers/third.yaml", paper("2401.00003", retnet={"impl": "retnet", "args": {"heads": 2}}, base=SOFTMAX))
    try:
        assert built.would_run() == ONE_RUN | PROOF
    finally:
        (built.folder / "papers/third.yaml").unlink()
    assert built.would_run() == {}


def test_another_profile_with_equal_training_only_reports(built: Project):
    built.write("config/profiles/twin.yaml", TINY)
    try:
        assert built.would_run("--config", "profile=twin") == REPORT | {"costs": 1}
    finally:
        (built.folder / "config/profiles/twin.yaml").unlink()


def test_what_no_claim_measures_is_not_trained_and_its_cells_say_so(built: Project):
    """The claim of the second paper measures both runs on lm; none measures any on recall."""
    narrow = json.loads(json.dumps(TINY))
    narrow["tasks"]["recall"]["trained"] = "claimed"
    built.write("config/profiles/narrow.yaml", narrow)
    measured = {file: file.read_bytes() for file in built.folder.glob("results/runs/*/lm/seed0/loss.json")}
    try:
        assert built.would_run("--config", "profile=narrow", "seeds=[0,7]") == {
            "train": 2,  # of the new seed, on lm alone
            "evaluate": 4,  # the old seed's records change
        } | REPORT | {"costs": 1}
        done = built.snakemake("--config", "profile=narrow", "seeds=[0,7]")
        assert done.returncode == 0, done.stdout
        records = json.loads((built.folder / "results/runs.json").read_text())
        told = {(r["task"], r["status"], r["reason"], r["suites"][s]["status"]) for r in records for s in r["suites"]}
        why = "no claim measures this run on the task recall"
        assert told == {("lm", "ok", None, "ok"), ("recall", "skipped", why, "blocked")}
        page = (built.folder / "results/site/suites/recall.html").read_text()
        assert "Left out: 2 runs that this profile does not train on <code>recall</code>" in page
        assert "leaves out: 2." in (built.folder / "results/site/index.html").read_text()
    finally:
        (built.folder / "config/profiles/narrow.yaml").unlink()
        done = built.snakemake()
        assert done.returncode == 0, done.stdout
    assert len(measured) == 2
    assert {file: file.read_bytes() for file in measured} == measured  # not measured again: `seconds` is the same too


def test_another_seed_trains_that_seed(built: Project):
    assert built.would_run("--config", "seeds=[0,1]") == EVERYTHING


LOADED = """
import atexit, runpy, sys
from pathlib import Path
def tell():
    files = [Path(m.__file__) for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
    here = [str(f.relative_to(Path.cwd())) for f in files if f.is_relative_to(Path.cwd())]
    print("loaded", *here)
atexit.register(tell)
sys.path.insert(0, "")
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def test_the_inputs_of_a_rule_are_what_its_step_loads(built: Project):
    """But for modules that `dependencies` says are settled, and those that are only asked what their settings are."""
    (run,) = (path.name for path in (built.folder / "results/runs").glob("softmax-*"))
    cell = ["--seed", "7", "--profile", "tiny", "--device", "cpu"]
    job, whole = dependencies.job, dependencies.whole
    steps = [
        (["harness.train", run, "--task", "lm", *cell], job("harness.train", "harness.tasks.lm", "impls.softmax")),
        (
            ["harness.evaluate", run, "--suite", "loss", *cell],
            job("harness.evaluate", "harness.suites.loss", "harness.tasks.lm", "impls.softmax"),
        ),
        (["harness.data", "--profile", "tiny", "--out", "elsewhere"], whole("harness.data")),
        (["harness.costs"], job("harness.costs", *(f"impls.{impl}" for impl in ("softmax", "linear_attention")))),
        (["harness.aggregate"], whole("harness.aggregate")),
        (["harness.judge"], whole("harness.judge")),
        (["harness.history"], whole("harness.history")),
        (["harness.site", "--out", "elsewhere/site"], whole("harness.site")),
        (["harness.prove", "softmax", "--record"], job("harness.prove", "impls.softmax")),
        (["harness.proofs.record", "softmax"], job("harness.proofs.record")),
    ]
    asked = {
        str(f.relative_to(ROOT)) for name in ("harness/suites", "harness/tasks") for f in (ROOT / name).glob("*.py")
    }
    asked |= {f"impls/{name}.py" for name in (*impls.names(), "parts", "solvers", "decays", "convs")}
    by_suites = ("hub", "passages", "room", "timing", "vocabulary")
    asked |= {f"harness/{name}.py" for name in by_suites}
    asked |= {str(file.relative_to(ROOT)) for file in (ROOT / "impls/kernels").glob("*.py")}  # imported by mechanisms
    asked |= {str(file.relative_to(ROOT)) for file in (ROOT / "harness/ruler").glob("*.py")}
    settled = set(whole(*dependencies.SETTLED))
    for command, inputs in steps:
        done = built.run([sys.executable, "-c", LOADED, *command])
        (line,) = re.findall(r"^loaded (.*)$", done.stdout, re.MULTILINE)
        assert done.returncode == 0, done.stdout
        assert set(line.split()) - settled - asked <= set(inputs), command[0]
        assert f"{command[0].replace('.', '/')}.py" in inputs


DISTANCE = '''"""Nearer keys weigh more. Nobody 2024, arXiv:2401.00005.

    y_t = Σ_{s<=t} softmax_s(−|q_t − k_s|²) v_s    (1)
"""

from dataclasses import dataclass

from impls import ops
from impls.base import ScoreMixer


class Mixer(ScoreMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 2

    def __init__(self, d_model: int, cfg: Config):
        super().__init__(d_model, cfg.heads, rope=False)

    def attention(self, q_BHTK, k_BHSK):
        distance_BHTS = (q_BHTK[:, :, :, None] - k_BHSK[:, :, None]).square().sum(-1)
        return ops.causal_softmax(-distance_BHTS)  # (1)
'''


def test_a_mechanism_is_one_module_and_one_paper(built: Project):
    """Both added to a project that knows nothing of them: it is trained, judged and shown, and nothing else is."""
    built.write("impls/distance.py", DISTANCE)
    built.write("papers/fifth.yaml", paper("2401.00005", distance={"impl": "distance"}, softmax=SOFTMAX))
    seeds = ("--config", "seeds=[0,1]")  # a verdict needs two
    try:
        done = built.snakemake(*seeds)
        assert done.returncode == 0, done.stdout
        results = built.folder / "results"
        trained = {(r["task"], r["seed"]): r["status"] for r in json.loads((results / "runs.json").read_text())
                   if r["impl"] == "distance"}  # fmt: skip
        assert trained == {(task, seed): "ok" for task in ("lm", "recall") for seed in (0, 1)}
        verdicts = json.loads((results / "verdicts.json").read_text())
        (verdict,) = (v for v in verdicts if v["paper"] == "fifth" and v["kind"] == "compare")
        assert verdict["verdict"] in ("reproduced", "contradicted", "inconclusive")
        assert len(verdict["run_values"]) == len(verdict["baseline_values"]) == 2
        page = (results / "site/papers/fifth.html").read_text()
        assert verdict["verdict"] in page
        assert "is better" in page
        assert built.would_run(*seeds) == {}
    finally:
        (built.folder / "papers/fifth.yaml").unlink()
        (built.folder / "impls/distance.py").unlink()


BROKEN = '''"""A mechanism that cannot run. Nobody 2024, arXiv:2401.00004."""

from dataclasses import dataclass

from impls.base import TokenMixer


class Mixer(TokenMixer):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = 2

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()

    def forward(self, x_BTD):
        raise ArithmeticError("the mixer is <b>upside down</b>")
'''


def test_a_mechanism_that_raises_leaves_every_page_and_says_why(built: Project):
    built.write("impls/upside_down.py", BROKEN)
    built.write(
        "papers/fourth.yaml",
        paper("2401.00004", upside_down={"impl": "upside_down"}, softmax=SOFTMAX),
    )
    try:
        done = built.snakemake()
        assert done.returncode == 0, done.stdout
        records = json.loads((built.folder / "results/runs.json").read_text())
        status = {(record["impl"], record["task"]): record["status"] for record in records}
        assert status == {
            (impl, task): "failed" if impl == "upside_down" else "ok"
            for impl in ("linear_attention", "softmax", "upside_down")
            for task in ("lm", "recall")
        }
        pages = {page.stem: page.read_text() for page in (built.folder / "results/site").rglob("*.html")}
        assert {"index", "first", "second", "fourth"} <= set(pages)
        assert "the mixer is &lt;b&gt;upside down&lt;/b&gt;" in pages["fourth"]
        assert '<span class="verdict failed">failed</span>' in pages["proof"]
        assert built.would_run() == {}

        strict = built.snakemake("--config", "strict=true")
        assert strict.returncode != 0
        assert "ArithmeticError: the mixer is <b>upside down</b>" in strict.stdout

        forgotten = built.run([sys.executable, "-m", "harness.failures", "--remove"])
        assert forgotten.returncode == 0, forgotten.stdout
        assert built.would_run() == ONE_RUN | PROOF
    finally:
        (built.folder / "papers/fourth.yaml").unlink()
        (built.folder / "impls/upside_down.py").unlink()


def test_a_report_of_snakemake_holds_the_site(built: Project):
    done = built.snakemake("--report", "report.html")
    assert done.returncode == 0, done.stdout
    packed = base64.b64encode((built.folder / "results/site/downloads/site.zip").read_bytes()).decode()
    assert packed in (built.folder / "report.html").read_text()
    (built.folder / "report.html").unlink()


def test_a_fault_is_one_message_without_a_traceback(built: Project):
    with built.edited("papers/second.yaml", lambda text: text.replace("margin:", "margn:")):
        done = built.snakemake()
    assert done.returncode == 1
    assert re.search(r"^papers/second\.yaml:\d+: .*margn.*margin", done.stdout, re.MULTILINE)
    assert "Traceback" not in done.stdout
    assert "File" not in done.stdout
    unknown = built.snakemake("--config", "profile=tyni")
    assert unknown.returncode == 1
    assert "tiny" in unknown.stdout


def test_snakemake_finds_nothing_to_lint():
    """But for one piece of advice: all rules share one environment, environment.yml, so none names its own."""
    command = [sys.executable, "-m", "snakemake", "--lint"]
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert "Lints for rule train" in done.stdout
    titles = set(re.findall(r"^    \* (.+?):$", done.stdout, re.MULTILINE))
    assert titles == {"Specify a conda environment or container for each rule."}
