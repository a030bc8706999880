"""Training as a command: equal bytes from equal seeds, killed or not; failures are records with a reason."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness import state, train
from harness.fit import Fit
from harness.job import Job
from tests.test_memory import job  # noqa: F401  (a fixture)

REPO = Path(__file__).parents[1]
STEPS = 200
MADE = ("model.safetensors", "curve.jsonl")

PROFILE = f"""
data: {{source: stdlib}}
tasks:
  recall:
    model: {{width: 16, layers: 1, heads: 2, mlp: 16, conv: 4}}
    length: 32
    batch: 2
    steps: {STEPS}
    lr: 6e-3
    warmup: 4
    save_every: 20
    kinds: [mqar-4, needle-2, mqar-8]
"""

PAPER = """
title: A paper
arxiv: "2401.00001"
year: 2024
authors: [A. Author]
summary: A summary.
scale_gap: None.
runs:
  softmax: {impl: softmax}
  raising: {impl: raising}
  exploding: {impl: exploding}
claims: [{id: c, quote: q, where: abstract, kind: untested, reason: r}]
"""

NAMES = """
from harness.config import load_profile
from harness.runs import resolve
from harness.spec import load_papers
print(*resolve(load_papers(), load_profile("tiny")))
"""

RAISING = '''
from impls import softmax

class Mixer(softmax.Mixer):
    """Raises at its third forward pass."""

    calls = 0

    def forward(self, x_BTD):
        Mixer.calls += 1
        if Mixer.calls > 2:
            raise RuntimeError("no third time")
        return super().forward(x_BTD)
'''

EXPLODING = '''
from impls import softmax

class Mixer(softmax.Mixer):
    """Not a number from the sixth forward pass on."""

    calls = 0

    def forward(self, x_BTD):
        Mixer.calls += 1
        return super().forward(x_BTD) * (float("nan") if Mixer.calls > 5 else 1.0)
'''


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's code with one small profile and one paper, two of whose mechanisms fail."""
    tmp_path = tmp_path_factory.mktemp("checkout")
    for name in ("harness", "impls"):
        shutil.copytree(REPO / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "config" / "profiles").mkdir(parents=True)
    (tmp_path / "config" / "profiles" / "tiny.yaml").write_text(PROFILE)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a-paper.yaml").write_text(PAPER)
    (tmp_path / "impls" / "raising.py").write_text(RAISING)
    (tmp_path / "impls" / "exploding.py").write_text(EXPLODING)
    names = subprocess.run([sys.executable, "-c", NAMES], cwd=tmp_path, capture_output=True, text=True, check=True)
    (tmp_path / "runs").write_text(names.stdout)
    return tmp_path


class Training:
    """`python -m harness.train` of one run in a checkout."""

    def __init__(self, checkout: Path, impl: str, *more: str, seed: int = 0):
        self.checkout = checkout
        self.run = next(name for name in (checkout / "runs").read_text().split() if name.startswith(f"{impl}-"))
        settings = ["--task", "recall", "--seed", str(seed), "--profile", "tiny", "--device", "cpu", *more]
        self.command = [sys.executable, "-m", "harness.train", self.run, *settings]
        self.folder = checkout / "results" / "runs" / self.run / "recall" / f"seed{seed}"
        self.state = checkout / "results" / "state" / self.run / "recall" / f"seed{seed}" / "state.pt"

    def start(self) -> subprocess.Popen[str]:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            self.command, cwd=self.checkout, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self) -> tuple[int, str]:
        """(exit code, what it printed)."""
        process = self.start()
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def interrupt(self, kind: signal.Signals, pause: float = 0.0) -> tuple[int, str]:
        """Start it, send the signal `pause` seconds after it saved its state anew; (exit code, what it printed)."""
        before = self.state.stat().st_mtime_ns if self.state.exists() else 0
        process = self.start()
        while process.poll() is None and (not self.state.exists() or self.state.stat().st_mtime_ns == before):
            time.sleep(0.002)
        time.sleep(pause)
        process.send_signal(kind)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / "run.json").read_text())

    def made(self) -> list[bytes]:
        return [(self.folder / name).read_bytes() for name in MADE]


class Finished(NamedTuple):
    """What a run left behind that nobody disturbed."""

    made: list[bytes]
    record: dict[str, Any]
    state_left: bool


@pytest.fixture(scope="module")
def undisturbed(checkout: Path) -> Finished:
    training = Training(checkout, "softmax")
    code, said = training.finish()
    assert code == 0, said
    return Finished(training.made(), training.record(), training.state.exists())


@pytest.fixture
def training(checkout: Path, undisturbed: Finished) -> Training:
    """The same run, not yet started."""
    shutil.rmtree(checkout / "results")
    return Training(checkout, "softmax")


def test_two_runs_of_one_seed_give_equal_bytes_and_another_seed_others(training: Training, undisturbed: Finished):
    assert training.finish()[0] == 0
    assert training.made() == undisturbed.made
    other = Training(training.checkout, "softmax", seed=1)
    assert other.finish()[0] == 0
    assert all(a != b for a, b in zip(other.made(), undisturbed.made, strict=True))


def test_the_record_says_how_it_was_made(undisturbed: Finished):
    record = undisturbed.record
    assert (record["status"], record["reason"]) == ("ok", None)
    assert (record["step"], record["steps"], record["tokens"]) == (STEPS, STEPS, STEPS * 64)
    assert record["within_budget"]
    assert record["parameters"] == record["reference_parameters"]
    assert record["mlp_width"] == record["model"]["mlp"] == 16
    assert record["model"]["args"]["heads"] == 2
    assert record["device"] == "cpu"
    assert set(record["versions"]) >= {"python", "torch", "numpy"}
    assert record["hardware"]["instructions"]
    curve = [json.loads(line) for line in undisturbed.made[1].splitlines()]
    assert [point["step"] for point in curve] == list(range(1, STEPS + 1))
    assert set(curve[0]) == {"step", "tokens", "loss", "lr", "grad_norm"}
    tail = [point["loss"] for point in curve[-STEPS // 10 :]]
    assert record["final_loss"] == pytest.approx(sum(tail) / len(tail))
    assert not undisturbed.state_left


def test_killed_at_random_moments_it_ends_in_the_same_bytes(training: Training, undisturbed: Finished):
    rng = random.Random(time.time_ns())
    codes = [training.interrupt(signal.SIGKILL, pause=rng.uniform(0, 0.1))[0] for _ in range(2)]
    if 0 in codes:
        pytest.skip("the machine is too slow to kill a run in time")
    assert codes == [-signal.SIGKILL] * 2
    assert not training.folder.exists()
    code, said = training.finish()
    assert code == 0
    assert "resumed at step" in said
    assert training.made() == undisturbed.made


def test_asked_to_stop_it_saves_exits_with_the_signals_code_and_goes_on(training: Training, undisturbed: Finished):
    code, said = training.interrupt(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM after step" in said
    assert not training.folder.exists()
    stopped = int(said.split("after step ")[1].split(";")[0])
    code, said = training.finish()
    assert code == 0
    assert f"resumed at step {stopped} " in said
    assert training.made() == undisturbed.made


def test_asked_twice_to_stop_it_saves_all_the_same(job: Job, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    late: list[int] = []
    step, save = Fit._step, state.save

    def stepped(made: Fit) -> Any:
        if made.steps_done == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(made)

    def saved(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save(*given)

    monkeypatch.setattr(Fit, "_step", stepped)
    monkeypatch.setattr(state, "save", saved)
    before = signal.signal(signal.SIGTERM, lambda kind, _: late.append(kind))
    try:
        with pytest.raises(SystemExit) as left:
            train.train(job, "cpu", print)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 128 + signal.SIGTERM
    assert not late, "the second signal would have ended it before its state was saved"
    assert job.state_file.exists()


def test_a_damaged_state_is_never_used(training: Training, undisturbed: Finished):
    training.interrupt(signal.SIGTERM)
    content = bytearray(training.state.read_bytes())
    content[len(content) // 2] ^= 1
    training.state.write_bytes(content)
    code, said = training.finish()
    assert code == 0
    assert "state.pt is damaged, so it is not used: training starts from step 0" in said
    assert training.made() == undisturbed.made


@pytest.mark.parametrize(
    ("impl", "strict", "status", "reason", "step"),
    [
        ("raising", [], "failed", "RuntimeError: no third time", 2),
        ("exploding", ["--strict"], "diverged", "the loss is nan at step 6", 5),
    ],
)
def test_a_run_that_fails_is_a_record_with_the_reason(
    checkout: Path, impl: str, strict: list[str], status: str, reason: str, step: int
):
    training = Training(checkout, impl, *strict)
    code, said = training.finish()
    assert code == len(strict)
    record = training.record()
    assert (record["status"], record["reason"], record["step"]) == (status, reason, step)
    assert record["final_loss"] is None
    assert reason in said
    assert ("Traceback" in said) is (status == "failed")
    assert training.made()[0] == b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ", "weights without tensors"
    assert len(training.made()[1].splitlines()) == step


def test_an_unknown_run_is_refused_with_the_nearest(checkout: Path):
    training = Training(checkout, "softmax")
    training.command[3] = training.run[:-1] + "x"
    code, said = training.finish()
    assert code == 1
    assert "Traceback" not in said
    assert f"did you mean '{training.run}'?" in said
