"""Several processes that train one model: `processes: 2` in a profile, `python -m harness.train … --processes 2`, or
`torchrun --standalone --nproc-per-node 2 -m harness.train …`, which the two others become.

Each process holds the whole model and takes its share of the rows of every batch; gradients are added up, not
averaged, for each is already of the mean over all scored tokens of all processes (a mean of means would weigh tokens
by which process saw them). So N processes train what one does with the same settings, but for the order of sums. The
first process alone writes. Where one is lost, the others cannot go on: the command fails, and the same command goes
on from the state that was saved last.

They are processes of one machine, and talk to each other without keys or passwords: start them where you trust all who
can reach it.

A process alone is a group too, and changes no bit of what it computes.
"""

from __future__ import annotations

import fcntl
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import UserError
from harness.parent import end_with_parent
from harness.tasks import Batch

if TYPE_CHECKING:
    from torch import Tensor


T = TypeVar("T")

# How long a process waits for another, which may itself wait for GPUs or for a lock that a long training holds. One
# that is gone is noticed at once for all that: its connections close, and torchrun ends the others.
PATIENCE = timedelta(days=7)


class Elsewhere(Exception):
    """What another process of the group raised."""


class Group:
    """The processes of one training. `together`, `each`, `all` and `add` are called by all, in the same order."""

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """This process's rows of a batch, its neighbours' before and after; perhaps none."""
        rows = len(batch.inputs_BT)
        first, last = (rows * rank // self.size for rank in (self.rank, self.rank + 1))
        return Batch(*(ids[first:last] for ids in batch))

    def seed(self, seed: int) -> int:
        """The seed of this process: its own, for its rows are others; that of the first is the seed itself."""
        return seed + 2**31 * self.rank

    @contextmanager
    def together(self) -> Iterator[None]:
        """All leave the block, or none: what one raises inside is Elsewhere in the others.

        UserError and torch.OutOfMemoryError are so in the others too. No other method of the group is called inside.
        """
        error = None
        try:
            yield
        except Exception as raised:
            error = raised
        others = sorted(filter(None, self.each(error and _told(error))))
        if error:
            raise error
        if others:
            raise _heard(*others[0])

    def turns(self, items: Iterable[T]) -> Iterator[T]:
        """This process's items: every N-th."""
        return islice(items, self.rank, None, self.size)

    def all(self, items: list[T]) -> list[T]:
        """The items of every process, in the order of ranks."""
        return [item for own in self.each(items) for item in own]

    def each(self, value: Any) -> list[Any]:
        """What every process gave, in the order of ranks: plain data or tensors on the CPU."""
        if self.size == 1:
            return [value]
        from torch import distributed

        found: list[Any] = [None] * self.size
        _reach(lambda: distributed.all_gather_object(found, value))
        return found

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of what it is in all processes."""
        if self.size > 1:
            from torch import distributed

            def at_once() -> None:
                for work in [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]:
                    if work is not None:
                        work.wait()

            _reach(at_once)


def _told(error: Exception) -> tuple[int, str]:
    """What the others are told of an exception: its place among what it may be to them, and its text."""
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return 1, str(error)
    return 0 if isinstance(error, UserError | OSError) else 2, traceback.format_exception_only(error)[-1].strip()


def _heard(place: int, text: str) -> Exception:
    """The exception for what another process told."""
    import torch

    return (UserError, torch.OutOfMemoryError, Elsewhere)[place](text)


ALONE = Group()


def leads() -> bool:
    """Whether this process is alone, or the first of those that torchrun started."""
    return not _started() or os.environ["RANK"] == "0"


def spread(module: str, processes: int) -> None:
    """Become torchrun with so many processes of this very command; nothing where they are one or started already."""
    if processes > 1 and not _started():
        if sys.platform == "linux":  # else gloo listens where the machine's name leads, perhaps to all who are near
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", module]
        os.execv(sys.executable, [sys.executable, *launcher, *sys.argv[1:]])


@contextmanager
def joined(name: str) -> Iterator[tuple[Group, str]]:
    """The group that this process belongs to and the device it has for itself (see `harness.device.claim`).

    Raises UserError where the others cannot be reached, where each is to have a GPU and there are fewer, or where all
    are to have the same.
    """
    from harness.device import claim

    if not _started():
        with claim(name) as device:
            yield ALONE, device
        return
    needed = int(os.environ["LOCAL_WORLD_SIZE"])
    if needed > 1 and name.startswith("cuda:"):
        raise UserError(f"processes: {needed} on one GPU, {name}; set device: auto or cuda, or processes: 1")
    import torch
    from torch import distributed

    end_with_parent()  # torchrun, which may be killed
    gpus = name != "cpu" and torch.cuda.is_available()
    found = torch.cuda.device_count() if gpus else 0
    if gpus and needed > found:
        raise UserError(f"processes: {needed} on a machine of {found} GPUs; set processes to {found}, or device: cpu")
    _reach(lambda: distributed.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=PATIENCE))
    group = Group(distributed.get_rank(), distributed.get_world_size())
    try:
        with ExitStack() as held:
            with _taking_turns(group, gpus):
                device = held.enter_context(claim(name))
            yield group, device
    finally:
        distributed.destroy_process_group()


@contextmanager
def _taking_turns(group: Group, gpus: bool) -> Iterator[None]:
    """One training at a time takes its GPUs, so that no two wait for what the other has; all leave together."""
    from harness.device import slots

    if not gpus:
        yield
        return
    with (slots() / "several.lock").open("w") as file:
        if os.environ["LOCAL_RANK"] == "0":
            fcntl.flock(file, fcntl.LOCK_EX)
        group.each(None)
        yield
        group.each(None)


def _started() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _reach(call: Callable[[], object]) -> None:
    """Call what needs the other processes. Raises UserError where one of them is gone."""
    try:
        call()
    except RuntimeError as error:
        why = str(error).partition("\n")[0]
        raise UserError(
            f"another process of this training is lost ({why}); the same command goes on from the last saved state"
        ) from error
