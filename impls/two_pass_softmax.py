"""Softmax in two passes over memory: is it exact, and is it faster? Dukhan and Ablavatski 2020, "The Two-Pass Softmax
Algorithm", arXiv:2001.04438.

Two-pass softmax is held against two of three passes, recomputing and reloading, and against none of the maximum,
unshifted (`impls.two_pass_kernels`, eqs. 3 to 6).

    up, down at k     x = ±10^k + N(0, 4): largest |y - softmax| over the largest softmax, in float64 (`error`; 1 where
                      y is not finite), and the share of y that is not finite (`lost`)
    memory            floats of x and y that the source of eqs. 3 to 5 reads and writes for each x (`traffic`)
    time at KiB of x  median over rounds of the time over that of eq. 4 in the same round (`relative`; eq. 4 is held
                      against itself), and of a size over that of the smallest one, for each x (`growth`)

Times are of one machine under its load and differ between runs; all else is exact.
Differs from the paper: numba instead of intrinsics, which prefers vectors of 256 bits where there are 512.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from impls import study
from impls.study import Cell, Metric, Row

EXPONENTS = range(1, 7)
KIB = (16, 1024, 16384, 131072)  # of x: in the first two caches, in the last one, and in none of them
SOURCES = ("two-pass", "recomputing", "reloading")  # forms that are written out pass by pass


def accuracy(form: Callable, x: np.ndarray) -> tuple[float, float]:
    """(error, lost) of y for x float32."""
    y = np.empty_like(x)
    form(x, y)
    wanted = np.exp(x.astype(np.float64) - x.max())
    wanted /= wanted.sum()
    lost = ~np.isfinite(y)
    return 1.0 if lost.any() else float(np.abs(y - wanted).max() / wanted.max()), float(lost.mean())


def seconds(form: Callable, x: np.ndarray, y: np.ndarray, repeats: int) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        form(x, y)
    return (time.perf_counter() - start) / repeats


class Study(study.Study):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        form: str = "two-pass"
        rounds: int = 15  # of a measurement of time

        def __post_init__(self):
            if self.form not in (*SOURCES, "unshifted"):
                raise ValueError(f"form={self.form!r} is none of {', '.join(SOURCES)}, unshifted")

    METRICS: ClassVar = {
        "error": Metric(unit="1", better="lower", summary="largest error over the largest probability"),
        "lost": Metric(unit="share", better="lower", summary="outputs that are not finite"),
        "traffic": Metric(unit="floats", better="lower", summary="read and written for each input"),
        "relative": Metric(unit="ratio", better="lower", timed=True, summary="time over three passes'; this machine"),
        "growth": Metric(unit="ratio", better="none", timed=True, summary="time an input over in-cache; this machine"),
    }
    AXES: ClassVar = {"up": "power of ten added", "down": "power of ten subtracted", "time": "KiB of inputs"}

    @property
    def counts(self) -> bool:
        """Whether the form has a source to count by; numpy's exp has none."""
        return self.config.form in SOURCES

    def cells(self) -> list[Cell]:
        exact = [(task, k, metric) for task in ("up", "down") for k in EXPONENTS for metric in ("error", "lost")]
        timed = [("time", size, metric) for size in KIB for metric in ("relative", "growth")]
        memory = [("memory", None, "traffic")] if self.counts else []
        return [*exact, *memory, *timed]

    def parts(self) -> list[str]:
        return ["accuracy", "time"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        from impls.two_pass_kernels import FORMS, traffic  # numba is slow to import

        rng, form = np.random.default_rng([seed, 1]), FORMS[self.config.form]
        if part == "time":
            yield from self.timed(rng, form)
            return
        if self.counts:
            x = rng.normal(0, 2, 1000).astype(np.float32)
            yield Row("memory", None, "traffic", traffic(form, x, np.empty_like(x)), n=len(x))
        for task, sign in (("up", 1), ("down", -1)):
            for k in EXPONENTS:
                x = (sign * 10**k + rng.normal(0, 2, self.scaled(100_000, 1000))).astype(np.float32)
                for metric, value in zip(("error", "lost"), accuracy(form, x), strict=True):
                    yield Row(task, k, metric, value, n=len(x))

    def timed(self, rng: np.random.Generator, form: Callable) -> Iterator[Row]:
        """Rounds in which both are called one after the other, who is first in turn."""
        from impls.two_pass_kernels import recomputing

        smallest, rounds = 0.0, self.scaled(self.config.rounds, 3)
        for size in KIB:
            x = np.resize(rng.normal(0, 2, 2**16).astype(np.float32), size * 256)
            y, repeats = np.zeros_like(x), max(1, 4 * KIB[1] // size)
            own, other = [], []
            for turn in range(rounds + 1):  # the first one compiles and warms up
                order = [(form, own), (recomputing, other)]
                for called, times in order if turn % 2 else reversed(order):
                    times.append(seconds(called, x, y, repeats))
            each = float(np.median(own[1:])) / len(x)
            smallest = smallest or each
            ratios = np.divide(own[1:], other[1:])
            yield Row("time", size, "relative", float(np.median(ratios)), n=rounds)
            yield Row("time", size, "growth", each / smallest, n=rounds)
