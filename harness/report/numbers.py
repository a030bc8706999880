"""How numbers are summed up over seeds, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import stdtrit

CONFIDENCE = 0.95


@lru_cache
def t_quantile(df: int) -> float:
    """The two-sided 95 % quantile of Student's t with df >= 1 degrees of freedom."""
    return float(stdtrit(df, (1 + CONFIDENCE) / 2))


@dataclass(frozen=True)
class Summary:
    """Values of one cell by seed: their mean and half the 95 % interval of the mean, None for a single seed."""

    values: dict[int, float]
    mean: float
    half: float | None

    @property
    def seeds(self) -> int:
        return len(self.values)

    @property
    def low(self) -> float:
        return min(self.values.values())

    @property
    def high(self) -> float:
        return max(self.values.values())


def summarise(values: Mapping[int, float]) -> Summary | None:
    """The summary of the finite values by seed; None when there is none."""
    finite = {seed: float(value) for seed, value in sorted(values.items()) if math.isfinite(value)}
    n = len(finite)
    if n == 0:
        return None
    mean = math.fsum(finite.values()) / n
    if n == 1:
        return Summary(finite, mean, None)
    variance = math.fsum((value - mean) ** 2 for value in finite.values()) / (n - 1)
    return Summary(finite, mean, t_quantile(n - 1) * math.sqrt(variance / n))


def decimals(values: Iterable[float | None]) -> int:
    """Decimals that suit a column: three below 10, none from 1,000 on."""
    sizes = [abs(value) for value in values if value is not None and math.isfinite(value)]
    largest = max(sizes, default=0.0)
    return 3 if largest < 10 else 2 if largest < 100 else 1 if largest < 1000 else 0


def show(value: float | None, places: int = 3, *, sign: bool = False) -> str:
    """`2.171`, `−0.004`, `12,345`, `3.2e−6` for what would vanish; an em dash for None, NaN and infinities."""
    if value is None or not math.isfinite(value):
        return "—"
    vanishes = value != 0 and abs(value) < 0.5 * 10**-places
    text = f"{value:.1e}" if vanishes else f"{value:,.{places}f}"
    if vanishes:
        digits, exponent = text.split("e")
        text = f"{digits}e{int(exponent)}"
    if sign and value > 0:
        text = f"+{text}"
    return text.replace("-", "−")


def count(value: int | float | None) -> str:
    """`1,234`; an em dash for None."""
    return show(value, 0)


def compact(value: float | None) -> str:
    """`1.2 M`, `34 k`, `512`; an em dash for None."""
    if value is None or not math.isfinite(value):
        return "—"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def commit(name: str) -> str:
    """The first letters of a commit, and whether files differed from it."""
    digest, _, dirty = name.partition("-")
    return f"{digest[:12]}-{dirty}" if dirty else digest[:12]


def duration(seconds: float | None) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`; an em dash for None."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def digits(value: float) -> float:
    """A number as pages keep it behind its text: a whole one as it is, another to eight digits; downloads have all."""
    return float(value) if float(value).is_integer() else float(f"{value:.8g}")
