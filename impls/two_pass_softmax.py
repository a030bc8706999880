"""Softmax in two passes over memory. Dukhan and Ablavatski 2020, "The Two-Pass Softmax Algorithm", arXiv:2001.04438;
constants as in XNNPACK, src/f32-raddextexp and src/f32-vscaleextexp.

    e^x = m 2^n:  n = round(x log2 e),  t = x - n ln 2 in two steps (Cody and Waite),  m = p_5(t)                    (1)
    (M, N) + (m, n) = (M 2^(N - N') + m 2^(n - N'), N')  with  N' = max(N, n)                                        (2)
    two-pass     reads x and sums by eq. 2;  reads x again and writes y = m / M 2^(n - N)                            (3)
    recomputing  c = max x;  S = sum of e^(x - c);  writes y = e^(x - c) / S                                         (4)
    reloading    c = max x;  writes y = e^(x - c), sums S;  reads y and writes y / S                                 (5)
    unshifted    recomputing with c = 0                                                                              (6)

n is a float, so that no float32 x below 10^7 in size overflows it. All are compiled with numba for the processor it
runs on and use the same polynomial; sums are kept in lanes, which LLVM turns into vectors.

    up, down at k     x = ±10^k + N(0, 4): largest |y - softmax| over the largest softmax, in float64 (`error`; 1 where
                      y is not finite), and the share of y that is not finite (`lost`)
    memory            floats that the passes read and write for each x (`traffic`): 3, 4 and 5 for eqs. 3, 4 and 5
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
from numba import njit

from impls import study
from impls.study import Cell, Metric, Row

LANES = 128
f32 = np.float32
LOG2E = f32(1.44269504)
HEX = "0x1.62E43p-1 -0x1.05C61p-29 0x1.0F9F9Cp-7 0x1.573A1Ap-5 0x1.555A80p-3 0x1.FFFDC6p-2 0x1.FFFFF6p-1"
LN2_HIGH, LN2_LOW, P5, P4, P3, P2, P1 = (f32(float.fromhex(text)) for text in HEX.split())
ZERO, HALF, ONE, LOWEST, BIAS, STEP = f32(0), f32(0.5), f32(1), f32(-3e38), f32(127), f32(2**23)
FAST = {"contract", "nnan", "nsz"}  # fused multiply-add; the order of sums stays
EXPONENTS = range(1, 7)
KIB = (16, 1024, 16384, 131072)  # of x: in the first two caches, in the last one, and in none of them


@njit(fastmath=FAST)
def exp_pair(x):
    """(m, n) of eq. 1, both float32."""
    n = np.floor(x * LOG2E + HALF)
    t = (x - n * LN2_HIGH) - n * LN2_LOW
    return ((((P5 * t + P4) * t + P3) * t + P2) * t + P1) * t + ONE, n


@njit(fastmath=FAST)
def power(n):
    """2^n for n <= 127 by the bits of a float; 0 below 2^-126."""
    return np.int32(max(n + BIAS, ZERO) * STEP).view(np.float32)


@njit(fastmath=FAST)
def two_pass(x, y):
    """Eq. 3."""
    M, N = np.zeros(LANES, np.float32), np.full(LANES, LOWEST)
    for i in range(0, len(x), LANES):
        block = x[i : i + LANES]
        for j in range(len(block)):
            m, n = exp_pair(block[j])
            top = max(N[j], n)
            M[j] = M[j] * power(N[j] - top) + m * power(n - top)
            N[j] = top
    top, total = N.max(), ZERO
    for j in range(LANES):
        total += M[j] * power(N[j] - top)
    inverse = ONE / total
    for i in range(len(x)):
        m, n = exp_pair(x[i])
        y[i] = m * inverse * power(n - top)


@njit(fastmath=FAST)
def largest(x):
    """max x."""
    C = np.full(LANES, LOWEST)
    for i in range(0, len(x), LANES):
        block = x[i : i + LANES]
        for j in range(len(block)):
            C[j] = max(C[j], block[j])
    return C.max()


@njit(fastmath=FAST)
def recomputing(x, y):
    """Eq. 4."""
    c = largest(x)
    S = np.zeros(LANES, np.float32)
    for i in range(0, len(x), LANES):
        block = x[i : i + LANES]
        for j in range(len(block)):
            m, n = exp_pair(block[j] - c)
            S[j] += m * power(n)
    inverse = ONE / S.sum()
    for i in range(len(x)):
        m, n = exp_pair(x[i] - c)
        y[i] = m * power(n) * inverse


@njit(fastmath=FAST)
def reloading(x, y):
    """Eq. 5."""
    c, S = largest(x), np.zeros(LANES, np.float32)
    for i in range(0, len(x), LANES):
        block, written = x[i : i + LANES], y[i : i + LANES]
        for j in range(len(block)):
            m, n = exp_pair(block[j] - c)
            written[j] = m * power(n)
            S[j] += written[j]
    inverse = ONE / S.sum()
    for i in range(len(x)):
        y[i] *= inverse


def unshifted(x, y):
    """Eq. 6 with numpy's exp, whose overflow is infinity."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        np.exp(x, out=y)
        y /= y.sum()


TRAFFIC = {"two-pass": 3, "recomputing": 4, "reloading": 5, "unshifted": 5}
FORMS = {"two-pass": two_pass, "recomputing": recomputing, "reloading": reloading, "unshifted": unshifted}


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
            if self.form not in FORMS:
                raise ValueError(f"form={self.form!r} is none of {', '.join(FORMS)}")

    METRICS: ClassVar = {
        "error": Metric(unit="1", better="lower", summary="largest error over the largest probability"),
        "lost": Metric(unit="share", better="lower", summary="outputs that are not finite"),
        "traffic": Metric(unit="floats", better="lower", summary="read and written for each input"),
        "relative": Metric(unit="ratio", better="lower", timed=True, summary="time over three passes'; this machine"),
        "growth": Metric(unit="ratio", better="none", timed=True, summary="time an input over in-cache; this machine"),
    }
    AXES: ClassVar = {"up": "power of ten added", "down": "power of ten subtracted", "time": "KiB of inputs"}

    def cells(self) -> list[Cell]:
        exact = [(task, k, metric) for task in ("up", "down") for k in EXPONENTS for metric in ("error", "lost")]
        timed = [("time", size, metric) for size in KIB for metric in ("relative", "growth")]
        return [*exact, ("memory", None, "traffic"), *timed]

    def parts(self) -> list[str]:
        return ["accuracy", "time"]

    def measure(self, part: str, seed: int, device: str) -> Iterator[Row]:
        rng, form = np.random.default_rng([seed, 1]), FORMS[self.config.form]
        if part == "time":
            yield from self.timed(rng, form)
            return
        yield Row("memory", None, "traffic", TRAFFIC[self.config.form], n=1)
        for task, sign in (("up", 1), ("down", -1)):
            for k in EXPONENTS:
                x = (sign * 10**k + rng.normal(0, 2, self.scaled(100_000, 1000))).astype(np.float32)
                for metric, value in zip(("error", "lost"), accuracy(form, x), strict=True):
                    yield Row(task, k, metric, value, n=len(x))

    def timed(self, rng: np.random.Generator, form: Callable) -> Iterator[Row]:
        """Rounds in which both are called one after the other, who is first in turn."""
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
