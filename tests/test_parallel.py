"""Several processes train what one does, and stop as one; most tests run them as threads, the last with torchrun."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, distributed

from harness import parallel, train
from harness.config import Config, load_profile
from harness.errors import UserError
from harness.fit import Diverged, Fit, Point
from harness.job import Job
from harness.model import Shape, build
from harness.parallel import ALONE, Elsewhere, Group, joined
from harness.plan import Plan
from harness.runs import resolve
from harness.tasks import Batch, HeldOut
from harness.tasks.recall import Settings, Task
from tests.judging import claim, paper
from tests.test_fit import SHAPE, settings
from tests.test_memory import job  # noqa: F401  (a fixture)
from tests.test_train import STEPS, Training, checkout  # noqa: F401  (a fixture)

STEPS_HERE = 9
BUILDING = threading.Lock()  # weights are drawn from the one generator that all threads share


class Threads(Group):
    """A group whose processes are threads of this one."""

    def __init__(self, rank: int, size: int, table: list[Any], barrier: threading.Barrier):
        super().__init__(rank, size)
        self.table, self.barrier = table, barrier

    def each(self, value: Any) -> list[Any]:
        self.table[self.rank] = value
        self.barrier.wait(60)
        found = list(self.table)
        self.barrier.wait(60)
        return found

    def add(self, tensors: Any) -> None:
        for tensor, *parts in zip(tensors, *self.each([t.clone() for t in tensors]), strict=True):
            tensor.copy_(sum(parts))


def groups(size: int) -> list[Group]:
    table, barrier = [None] * size, threading.Barrier(size)
    return [Threads(rank, size, table, barrier) for rank in range(size)] if size > 1 else [ALONE]


def at_once(size: int, work: Callable[[Group], Any]) -> list[Any]:
    """What each process of a group returns or raises."""

    def outcome(group: Group) -> Any:
        try:
            return work(group)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(outcome, groups(size)))


class Validated(Settings):
    """Settings with held-out text, as those of language modelling."""

    valid_every: int = 4


class Held(Task):
    """Rows of 3, 6 or 3 in a step, so that shares differ in tokens; five batches of different sizes are held out."""

    def held_out(self) -> Iterator[HeldOut]:
        for place in range(5):
            inputs_BT, targets_BT = self.batch(place)
            yield HeldOut(inputs_BT[: place + 1], targets_BT[: place + 1], 10 + place)


def fit(group: Group = ALONE, task: type[Task] = Held, seed: int = 0, **changes: Any) -> Fit:
    chosen = Validated.model_validate(settings(batch=3, steps=STEPS_HERE, **changes).model_dump())
    return fitted(SHAPE, task(chosen, seed), chosen, seed, group)


def fitted(shape: Shape, task: Task, chosen: Settings, seed: int, group: Group) -> Fit:
    with BUILDING:  # a fit seeds the generator
        return Fit(build(shape, seed), task, chosen, seed, "cpu", group)


def trained(group: Group, state: dict[str, Any] | None = None, stop: int | None = None, **changes: Any) -> Any:
    """(points, fit) of a training from a state, or from the start, to its end or a step."""
    made, points = fit(group, **changes), []
    if state is not None:
        made.restore(state)
    made.run(lambda done: done == stop, points.append)
    return points, made


def numbers(points: list[Point]) -> list[list[float]]:
    return [[point.loss, point.grad_norm, point.valid_bpb or 0.0] for point in points]


def weights(made: Fit) -> dict[str, Tensor]:
    return dict(made.model.named_parameters())


# -- shares


@pytest.mark.parametrize("rows", range(6))
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_row_and_every_item_is_some_process_s_and_no_other_s(rows: int, size: int):
    ids_BT = np.arange(2 * rows).reshape(rows, 2)
    shares = [Group(rank, size).share(Batch(ids_BT, ids_BT + 1)) for rank in range(size)]
    assert np.array_equal(np.concatenate([share.inputs_BT for share in shares]), ids_BT)
    assert all(np.array_equal(share.targets_BT, share.inputs_BT + 1) for share in shares)
    assert max(map(len, (share.inputs_BT for share in shares))) <= -(-rows // size)
    turns = [item for rank in range(size) for item in Group(rank, size).turns(range(rows))]
    assert sorted(turns) == list(range(rows))


def test_alone_a_batch_is_not_touched_and_seeds_differ_between_processes():
    batch = Batch(np.arange(4).reshape(2, 2), np.arange(4).reshape(2, 2))
    assert np.shares_memory(ALONE.share(batch).inputs_BT, batch.inputs_BT)
    assert ALONE.seed(7) == 7
    assert len({Group(rank, 3).seed(seed) for rank in range(3) for seed in (0, 1, 2**31 - 1)}) == 9


# -- training


@pytest.mark.parametrize(("size", "micro_batch"), [(2, 1), (4, None)])
def test_several_processes_train_what_one_does(size: int, micro_batch: int | None):
    points, alone = trained(ALONE)
    outcomes = at_once(size, lambda group: trained(group, micro_batch=micro_batch))
    for others, made in outcomes:
        torch.testing.assert_close(torch.tensor(numbers(others)), torch.tensor(numbers(points)), rtol=1e-5, atol=1e-5)
        assert [(p.step, p.tokens, p.lr) for p in others] == [(p.step, p.tokens, p.lr) for p in points]
        for name, p in weights(alone).items():
            torch.testing.assert_close(weights(made)[name], p, rtol=1e-4, atol=1e-5)
            assert torch.equal(weights(made)[name], weights(outcomes[0][1])[name]), "replicas drift apart"
        assert made.curve == outcomes[0][1].curve


def test_what_one_process_raises_ends_all(monkeypatch: pytest.MonkeyPatch):
    accumulate = Fit._accumulate

    def raising(self: Fit, *given: Any) -> Any:
        if self.group.rank == 1 and self.steps_done == 3:
            raise faults[0]
        return accumulate(self, *given)

    monkeypatch.setattr(Fit, "_accumulate", raising)
    for fault, others in (
        (ArithmeticError("upside down"), Elsewhere),
        (UserError("no corpus"), UserError),
        (torch.OutOfMemoryError("one row alone"), torch.OutOfMemoryError),
    ):
        faults = [fault]
        first, second, third = at_once(3, trained)
        assert second is fault
        assert [type(error) for error in (first, third)] == [others] * 2
        assert str(fault) in str(first)


def test_what_is_not_finite_in_one_process_is_so_in_all():
    class Spoiled(Held):
        weight: Any = None

        def batch(self, step: int) -> Batch:
            if step == 4:
                with torch.no_grad():
                    self.weight[0] = torch.nan
            return super().batch(step)

    def work(group: Group) -> Any:
        made = fit(group, Spoiled)
        made.task.weight = next(made.model.parameters()) if group.rank else torch.ones(1)  # pyright: ignore
        made.run(lambda _: False, lambda _: None)

    errors = at_once(2, work)
    assert all(isinstance(error, Diverged) for error in errors)
    assert {str(error) for error in errors} == {"the loss is nan at step 5"}


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 1), (1, 2)])
def test_a_state_is_taken_up_by_another_number_of_processes(before: int, after: int):
    saved = at_once(before, lambda group: trained(group, stop=4)[1].state())[0]
    outcomes = at_once(after, lambda group: trained(group, saved))
    whole, undisturbed = at_once(before, trained)[0]
    assert [point.step for point in outcomes[0][0]] == list(range(5, STEPS_HERE + 1))
    torch.testing.assert_close(
        torch.tensor(numbers(outcomes[0][0])), torch.tensor(numbers(whole[4:])), rtol=1e-5, atol=1e-5
    )
    made = outcomes[0][1]
    assert made.processes == ([2] if before == after else [before, after])
    if before == after:
        assert made.curve == undisturbed.curve
        assert all(torch.equal(weights(made)[name], p) for name, p in weights(undisturbed).items())


class Small:
    """`Fit._passes` where the second process has memory for one row a pass, and the others for any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.real, self.failed = Fit._passes, 0
        monkeypatch.setattr(Fit, "_passes", lambda made, *given: self(made, *given))

    def __call__(self, made: Fit, batch: Batch, scored: int, rows: int) -> Any:
        if made.group.rank == 1 and rows > 1:
            self.failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has 1 GiB.")
        return self.real(made, batch, scored, rows)


def test_each_process_halves_its_own_rows_and_goes_on_with_them_and_the_record_has_all(monkeypatch: pytest.MonkeyPatch):
    small, halved = Small(monkeypatch), [{"step": 1, "rows": rows, "rank": 1} for rows in (2, 1)]

    def work(state: dict[str, Any] | None, stop: int | None) -> Callable[[Group], Any]:
        def saved(group: Group) -> Any:
            made = trained(group, state, stop)[1]
            return made.memory.rows, made.memory.halved, made.state()

        return saved

    first = at_once(2, work(None, 4))
    assert [each[:2] for each in first] == [(None, halved), (1, halved)]
    state = first[0][2]
    assert [each[:2] for each in at_once(2, work(state, None))] == [(None, halved), (1, halved)]
    assert small.failed == 2, "a process that goes on knows how much memory it has"
    assert [each[:2] for each in at_once(1, work(state, None))] == [(None, halved)]


def test_a_mechanism_that_draws_numbers_draws_others_in_each_process_and_goes_on_with_them():
    states = at_once(2, lambda group: (torch.manual_seed(group.seed(3)), torch.get_rng_state())[1])
    assert not torch.equal(*states)
    made = fit(groups(2)[1])
    state = fit().state() | {"random": states, "processes": [2]}
    made.restore(state)
    assert torch.equal(torch.get_rng_state(), states[1])


def test_where_another_process_lacks_memory_the_record_says_so(job: Job, monkeypatch: pytest.MonkeyPatch):  # noqa: F811  a fixture
    def prepared(*given: Any) -> None:
        if given[-1].rank == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 1 has 1 GiB. Try this.")

    monkeypatch.setattr(train, "_prepare", prepared)
    record, other = at_once(2, lambda group: train.train(job, "cpu", print, group))
    assert record["reason"] == other["reason"] == "out of memory: CUDA out of memory. Tried to allocate 9.00 GiB"
    assert json.loads((job.folder / "run.json").read_text())["status"] == "failed"


# -- as a command


def test_a_process_waits_for_days_for_the_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel, "end_with_parent", lambda: None)  # it is this process that would end
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    given = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in {**given, "MASTER_ADDR": "localhost", "TORCHELASTIC_RUN_ID": "here"}.items():
        monkeypatch.setenv(name, str(value))
    with joined("cpu") as (group, device):
        backend = distributed.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        assert backend.options._timeout >= timedelta(days=7)  # pyright: ignore[reportAttributeAccessIssue]
        assert (group.rank, group.size, device) == (0, 1, "cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the interface is that of Linux")
@pytest.mark.parametrize(("given", "used"), [(None, "lo"), ("eth7", "eth7")])
def test_processes_of_one_command_talk_within_the_machine(
    monkeypatch: pytest.MonkeyPatch, given: str | None, used: str
):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")  # so that what is set here goes with the test
    os.environ.pop("GLOO_SOCKET_IFNAME")
    if given:
        os.environ["GLOO_SOCKET_IFNAME"] = given
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, command: became.append(command))
    parallel.spread("harness.train", 1)
    assert not became
    assert os.environ.get("GLOO_SOCKET_IFNAME") == given
    parallel.spread("harness.train", 2)
    assert "--nproc-per-node 2 -m harness.train" in " ".join(became[0])
    assert os.environ["GLOO_SOCKET_IFNAME"] == used


def test_several_processes_are_not_sent_to_one_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "here")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    said = "processes: 2 on one GPU, cuda:1; set device: auto or cuda, or processes: 1"
    with pytest.raises(UserError, match=f"^{said}$"), joined("cuda:1"):
        pass


def test_a_profile_says_how_many_and_its_runs_keep_their_names():
    profile = load_profile("smoke")
    tasks = {name: task.model_copy(update={"processes": 3}) for name, task in profile.tasks.items()}
    three, papers = profile.model_copy(update={"tasks": tasks}), {"p": paper(claim("untested", reason="r"))}
    assert list(resolve(papers, three)) == list(resolve(papers, profile))
    assert Plan(Config(), three, papers, resolve(papers, three)).processes("lm") == 3
    assert Plan(Config(), profile, papers, resolve(papers, profile)).processes("lm") == 1


def several(training: Training) -> subprocess.Popen[str]:
    """The same training by two processes; it is torchrun that is started."""
    training.command += ["--processes", "2"]
    try:
        return training.start()
    finally:
        del training.command[-2:]


def process(launcher: int, rank: int) -> int:
    """The process of that rank, of those that a launcher started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher and f"RANK={rank}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process of rank {rank}")


def until_saved(training: Training, running: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not training.state.exists():
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < end, "waited in vain for a saved state"
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_killed_process_fails_the_job_and_the_same_command_goes_on(checkout: Path, exact: None):  # noqa: F811  a fixture
    training = Training(checkout, "softmax", seed=5)
    running = several(training)
    until_saved(training, running)
    os.kill(process(running.pid, 1), signal.SIGKILL)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert not training.folder.exists()
    assert not list(checkout.rglob("*.tmp"))
    running = several(training)
    said, _ = running.communicate(timeout=240)
    assert running.returncode == 0, said
    assert said.count("resumed at step") == 1
    assert "Traceback" not in said
    record = training.record()
    assert (record["status"], record["step"], record["processes"]) == ("ok", STEPS, [2])
    assert not training.state.exists()
    chosen = Settings.model_validate(record["settings"])

    def work(group: Group) -> Fit:
        made = fitted(Shape(**record["model"]), Task(chosen, 5), chosen, 5, group)
        made.run(lambda _: False, lambda _: None)
        return made

    made = at_once(2, work)[0]
    assert (training.folder / "curve.jsonl").read_text() == "".join(made.curve)
    left = load_file(training.folder / "model.safetensors")
    assert all(torch.equal(left[name], p) for name, p in weights(made).items())
