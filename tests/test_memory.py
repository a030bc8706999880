"""Too little memory: half the rows in a pass, the same numbers but for rounding, and a record that says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import failures, fit, state, train
from harness.fit import Fit, Point
from harness.job import Job
from harness.runs import resolve
from tests.test_fit import fit as any_fit
from tests.test_fit import never, nothing
from tests.test_tune import papers, profile

ROWS = 4  # of every batch below


def fitted(**changes: Any) -> Fit:
    return any_fit(**{"batch": ROWS, "kinds": ["needle-2"], **changes})


class Device:
    """`total_nll` on a device that holds so many rows; it fails half-way through, with gradients already there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holds: int, draws: bool = False, after: int = 0):
        self.real, self.holds, self.draws, self.free = fit.total_nll, holds, draws, after
        self.passes: list[int] = []
        monkeypatch.setattr(fit, "total_nll", self)

    def __call__(self, model: Any, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(inputs_BT))
        total = self.real(model, inputs_BT, targets_BT)
        if self.draws:
            total = total * (1 + 0.1 * torch.rand(()))
        if len(inputs_BT) > self.holds and len(self.passes) > self.free:
            total.backward(retain_graph=True)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB. Try this.")
        return total


def losses(made: Fit, steps: int = 13) -> list[float]:
    found: list[float] = []
    made.run(lambda done: done == steps, lambda point: found.append(point.loss))
    return found


def weights(made: Fit) -> list[torch.Tensor]:
    return [p.detach().clone() for p in made.model.parameters()]


def test_a_step_in_parts_has_the_loss_and_the_gradient_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch):
    whole, parts = fitted(), fitted()
    expected = whole._backward(whole.task.batch(0))
    device = Device(monkeypatch, holds=1)
    assert parts._backward(parts.task.batch(0)) == pytest.approx(expected, rel=1e-6)
    assert device.passes == [4, 2, 1, 1, 1, 1]
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7)
    assert parts.memory.halved == [{"step": 1, "rows": 2}, {"step": 1, "rows": 1}]


@pytest.mark.parametrize("draws", [False, True])
def test_it_ends_in_the_bits_of_a_run_that_took_so_few_rows_from_the_start(
    monkeypatch: pytest.MonkeyPatch, draws: bool
):
    Device(monkeypatch, holds=2, draws=draws)
    few = fitted(micro_batch=2)
    few_losses = losses(few)
    halved = fitted()
    assert losses(halved) == few_losses
    assert all(map(torch.equal, weights(halved), weights(few)))
    assert halved.curve == few.curve


def test_an_uneven_number_of_rows_is_halved_upwards(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, holds=2)
    losses(fitted(batch=5), 1)
    assert device.passes == [5, 3, 2, 2, 1]


def test_where_memory_is_enough_nothing_is_said_or_changed(monkeypatch: pytest.MonkeyPatch, capsys):
    plain = losses(fitted())
    made = fitted()
    Device(monkeypatch, holds=ROWS)
    assert losses(made) == plain
    assert made.memory.state() == {"rows": None, "halved": []}
    assert capsys.readouterr().err == ""


def test_a_resumed_run_takes_as_few_rows_and_ends_in_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    Device(monkeypatch, holds=2, after=3)
    whole = fitted()
    losses(whole)
    assert whole.memory.halved == [{"step": 4, "rows": 2}]
    monkeypatch.undo()
    Device(monkeypatch, holds=2, after=3)
    cut = fitted()
    losses(cut, 6)
    state.save(tmp_path / "state.pt", "print", cut.state())
    saved = state.load(tmp_path / "state.pt", "print", print)
    assert saved is not None
    monkeypatch.undo()
    again = fitted()
    again.restore(saved)
    losses(again)
    assert again.memory.halved == whole.memory.halved
    assert all(map(torch.equal, weights(again), weights(whole)))


def test_a_row_too_large_for_the_device_ends_the_run_before_its_step(monkeypatch: pytest.MonkeyPatch):
    Device(monkeypatch, holds=0)
    made = fitted()
    with pytest.raises(torch.OutOfMemoryError, match=r"^one row alone, at step 1: CUDA .* allocate 2\.00 GiB$"):
        made.run(never, nothing)
    assert made.steps_done == 0


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.chdir(tmp_path)
    (run,) = resolve(papers(), profile(None)).values()
    return Job(run, "recall", 0, "tiny")


def test_the_record_says_when_rows_were_halved(job: Job, monkeypatch: pytest.MonkeyPatch):
    Device(monkeypatch, holds=8)  # of sixteen, or of eight twice as long
    record = train.train(job, "cpu", print)
    assert (record["status"], record["halved"]) == ("ok", [{"step": 1, "rows": 8}])
    assert json.loads((job.folder / "run.json").read_text())["halved"] == record["halved"]
    monkeypatch.undo()
    assert train.train(job, "cpu", print)["halved"] == []


def whole_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has 1 GiB.")

    monkeypatch.setattr(fit, "AdamW", full)


def one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, holds=0)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (one_row, "out of memory: one row alone, at step 1: CUDA out of memory. Tried to allocate 2.00 GiB"),
        (whole_model, "out of memory: CUDA out of memory. Tried to allocate 9.00 GiB"),
    ],
)
def test_where_nothing_fits_the_run_failed_for_that_reason(
    job: Job, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], said: str
):
    fault(monkeypatch)
    record = train.train(job, "cpu", print)
    assert (record["status"], record["reason"], record["step"]) == ("failed", said, 0)
    (failure,) = failures.find([job.folder / "run.json"])
    assert str(failure).endswith(f"failed: {said}")


def test_steps_after_the_first_are_spared_the_failing_pass(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, holds=2)
    seen: list[Point] = []
    fitted().run(lambda done: done == 3, seen.append)
    assert device.passes == [4, 2, 2, 2, 2, 2, 2]
    assert [point.tokens for point in seen] == [128, 256, 384]
