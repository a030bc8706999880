"""Softmax in two and in three passes, for `impls.two_pass_softmax`. Dukhan and Ablavatski 2020, arXiv:2001.04438;
constants as in XNNPACK, src/f32-raddextexp and src/f32-vscaleextexp.

    e^x = m 2^n:  n = round(x log2 e),  t = x - n ln 2 in two steps (Cody and Waite),  m = p_5(t)                    (1)
    (M, N) + (m, n) = (M 2^(N - N') + m 2^(n - N'), N')  with  N' = max(N, n)                                        (2)
    two-pass     reads x and sums by eq. 2;  reads x again and writes y = m / M 2^(n - N)                            (3)
    recomputing  c = max x;  S = sum of e^(x - c);  writes y = e^(x - c) / S                                         (4)
    reloading    c = max x;  writes y = e^(x - c), sums S;  reads y and writes y / S                                 (5)
    unshifted    recomputing with c = 0                                                                              (6)

n is a float, so that no float32 x below 10^7 in size overflows it. All are compiled with numba for the processor it
runs on and use the same polynomial; sums are kept in lanes, which LLVM turns into vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import numpy as np
from numba import njit

LANES = 128
f32 = np.float32
LOG2E = f32(1.44269504)
HEX = "0x1.62E43p-1 -0x1.05C61p-29 0x1.0F9F9Cp-7 0x1.573A1Ap-5 0x1.555A80p-3 0x1.FFFDC6p-2 0x1.FFFFF6p-1"
LN2_HIGH, LN2_LOW, P5, P4, P3, P2, P1 = (f32(float.fromhex(text)) for text in HEX.split())
ZERO, HALF, ONE, LOWEST, BIAS, STEP = f32(0), f32(0.5), f32(1), f32(-3e38), f32(127), f32(2**23)
FAST = {"contract", "nnan", "nsz"}  # fused multiply-add; the order of sums stays


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
            each = m * power(n)
            S[j] += each
            written[j] = each
    inverse = ONE / S.sum()
    for i in range(len(x)):
        y[i] *= inverse


def unshifted(x, y):
    """Eq. 6 with numpy's exp, whose overflow is infinity."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        np.exp(x, out=y)
        y /= y.sum()


FORMS = {"two-pass": two_pass, "recomputing": recomputing, "reloading": reloading, "unshifted": unshifted}


class Counted:
    """An array that counts the floats that are read from it and written to it; a part of it counts for the whole."""

    def __init__(self, array: np.ndarray, count: list[int]):
        self.array, self.count = array, count

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at):
        if isinstance(at, slice):
            return Counted(self.array[at], self.count)
        self.count[0] += 1
        return self.array[at]

    def __setitem__(self, at: int, value: np.float32) -> None:
        self.count[0] += 1
        self.array[at] = value


def traffic(form: Callable, x: np.ndarray, y: np.ndarray) -> float:
    """Floats of x and y that a compiled form reads and writes for each x, counted while Python runs its source."""
    seen = globals() | {"largest": largest.py_func}  # a compiled one takes no such array
    count = [0]
    FunctionType(form.py_func.__code__, seen)(Counted(x, count), Counted(y, count))
    return count[0] / len(x)
