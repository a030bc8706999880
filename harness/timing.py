"""Two pieces of work timed in turns, round after round, in one process; and what follows from their times.

A ratio is taken inside a round, so that a slow moment of the machine hits both of its sides; who goes first alternates.
The clock is an argument: on one CPU thread it counts the process's CPU seconds, which another job on the machine does
not run up; with more threads, or on a GPU whose work is waited for, it is the time on the wall.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Work = Callable[[], object]
Clock = Callable[[], float]  # seconds since some moment
FLAT = 0.1  # growth that still counts as none


@dataclass(frozen=True)
class Rounds:
    """Seconds of both sides, a pair a round."""

    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """The median over rounds of ours / theirs."""
        return statistics.median(self.ratios)

    @property
    def seconds(self) -> float:
        """Our median."""
        return statistics.median(self.ours)


def in_turns(ours: Work, theirs: Work, clock: Clock) -> Iterator[tuple[float, float]]:
    """(seconds of ours, of theirs), round after round for as long as asked; ours goes first in even rounds."""

    def seconds(work: Work) -> float:
        start = clock()
        work()
        return clock() - start

    while True:
        yield seconds(ours), seconds(theirs)
        late = seconds(theirs)
        yield seconds(ours), late


def clock_of(device: str) -> Clock:
    """The clock for a device: CPU seconds on one CPU thread, else the wall's, a GPU's work being waited for."""
    import torch

    if device.startswith("cuda"):

        def waited() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return waited
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def crossover(lengths: Sequence[int], ratios: Sequence[float]) -> float | None:
    """The length from which the ratio stays below 1, by straight lines between logarithms; None where it never does.

    Where every ratio is below 1, the least length measured: the crossing lies there or before.
    """
    above = [place for place, ratio in enumerate(ratios) if ratio >= 1]
    if not above:
        return float(lengths[0])
    if above[-1] == len(lengths) - 1:
        return None
    (x, y), (x_next, y_next) = ((math.log(lengths[k]), math.log(ratios[k])) for k in (above[-1], above[-1] + 1))
    return math.exp(x + (x_next - x) * y / (y - y_next))


def growth(lengths: Sequence[int], seconds: Sequence[float]) -> str:
    """`flat`, `linear`, `faster` or `slower`: how the time of one more token grows with the tokens before it.

    By the line a + b L with the least squares of relative errors. Flat: from the least length to the greatest it rises
    by no more than a tenth. Linear: a >= 0, and it passes within a tenth of every time. Else the times bend, up or
    down. Raises ValueError for fewer than three lengths.
    """
    if len(lengths) < 3:
        raise ValueError("how times grow cannot be told from fewer than three lengths")
    a, b = _line(lengths, seconds)
    if a + b * lengths[-1] <= (1 + FLAT) * (a + b * lengths[0]):
        return "flat"
    slopes = [
        (t_next - t) / (n_next - n)
        for (n, t), (n_next, t_next) in itertools.pairwise(zip(lengths, seconds, strict=True))
    ]
    if a >= 0 and all(abs(a + b * n - t) <= FLAT * t for n, t in zip(lengths, seconds, strict=True)):
        return "linear"
    return "faster" if slopes[-1] > slopes[0] else "slower"


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(a, b) of a + b x with the least squares of relative errors."""
    weight = [1 / value**2 for value in y]
    total = sum(weight)
    x_mean, y_mean = (sum(w * v for w, v in zip(weight, values, strict=True)) / total for values in (x, y))
    spread = sum(w * (v - x_mean) ** 2 for w, v in zip(weight, x, strict=True))
    b = sum(w * (u - x_mean) * (v - y_mean) for w, u, v in zip(weight, x, y, strict=True)) / spread
    return y_mean - b * x_mean, b


def megahertz(device: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> float | None:
    """The clock that the processor runs at just now, the cores' mean; None where the machine does not tell."""
    if device.startswith("cuda"):
        import torch

        try:
            return float(torch.cuda.clock_rate(device))
        except (RuntimeError, ImportError):  # the management library is not installed
            return None
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return None
    rates = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return statistics.mean(rates) if rates else None
