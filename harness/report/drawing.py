"""From Vega-Lite specs to pictures: SVG by vl-convert, offline.

python -m harness.report.drawing     draws the specs on standard input, one a line, for a build with many charts
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from harness.report.compact import compact
from harness.report.numbers import decimals, show
from harness.report.palette import GRID, INK, RULE

HOVER = "hover"  # the name of a layer that only answers the pointer: not drawn in the still picture
MANY = 40  # pictures at a time beyond which other processes help
KEPT = 512  # pictures remembered, since papers that share their runs share them

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
CONFIG: dict[str, Any] = {
    "aria": False,
    "background": None,
    "font": FONT,
    "padding": 4,
    "view": {"stroke": None},
    "axis": {
        "domainColor": RULE,
        "tickColor": RULE,
        "gridColor": GRID,
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFlush": False,
    },
    "line": {"strokeWidth": 2},
    "point": {"size": 44, "filled": True},
}

Point = tuple[str, int, float, float]  # series, seed, x, y

SVG = re.compile(r'<svg[^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>\s*', re.DOTALL)
ROLE = re.compile(r' (?:role|aria-\w+)="[^"]*"')
ID = re.compile(r'((?:id=|href=)"#?|url\(#)([A-Za-z_][\w-]*)')


@dataclass(frozen=True)
class Chart:
    """A chart as data: its title, its text alternative, its Vega-Lite spec, which lacks the shared `CONFIG`, and what
    its page says of that (`harness.report.shared`)."""

    id: str
    title: str
    description: str
    spec: dict[str, Any]
    page: dict[str, Any]

    @property
    def series(self) -> list[str]:
        """The names of what is drawn."""
        return self.spec["encoding"]["color"]["scale"]["domain"]

    @property
    def json(self) -> str:
        """The page's part as strict JSON that no HTML parser can end early."""
        text = json.dumps(self.page, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    @property
    def still(self) -> str:
        """The spec of the still picture, on one line."""
        layers = [layer for layer in self.spec["layer"] if layer.get("name") != HOVER]
        return json.dumps({**self.spec, "layer": layers, "config": CONFIG}, allow_nan=False)


@dataclass(frozen=True)
class Picture:
    """A drawn chart: the view box and the inside of its SVG."""

    view_box: str
    body: str


class Gallery:
    """Draws charts and remembers the latest; with many at a time, on every core."""

    def __init__(self) -> None:
        self._drawn: dict[str, Picture] = {}
        self._helpers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *exception: object) -> None:
        for helper in self._helpers:
            helper.kill()
            helper.wait()

    def hang(self, charts: Iterable[Chart]) -> None:
        """Draw what is not remembered."""
        wanted = [spec for spec in dict.fromkeys(chart.still for chart in charts) if spec not in self._drawn]
        for spec in list(self._drawn)[: max(0, len(self._drawn) + len(wanted) - KEPT)]:
            del self._drawn[spec]
        self._drawn |= zip(wanted, self._draw(wanted), strict=True)

    def picture(self, chart: Chart) -> Picture:
        """The picture of a chart, its inner ids made its own, for several pictures share one page."""
        if chart.still not in self._drawn:
            self.hang([chart])
        drawn = self._drawn[chart.still]
        own = f"c{zlib.crc32(chart.id.encode()):x}"
        return Picture(drawn.view_box, ID.sub(rf"\g<1>{own}-\g<2>", drawn.body))

    def _draw(self, specs: Sequence[str]) -> list[Picture]:
        cores = os.cpu_count() or 1
        if len(specs) < MANY or cores < 2:
            return [draw(spec) for spec in specs]
        while len(self._helpers) < cores:
            command = [sys.executable, "-m", "harness.report.drawing"]
            helper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
            self._helpers.append(helper)
        shares = [specs[k :: len(self._helpers)] for k in range(len(self._helpers))]
        with ThreadPoolExecutor(len(shares)) as pool:
            parts = list(pool.map(_ask, self._helpers, shares))
        return [parts[k % len(parts)][k // len(parts)] for k in range(len(specs))]


def _ask(helper: subprocess.Popen[str], specs: Sequence[str]) -> list[Picture]:
    """Pictures by another process, which answers each line with one."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    found = []
    for spec in specs:
        print(spec, file=helper.stdin, flush=True)
        line = helper.stdout.readline()
        if not line:
            raise RuntimeError("a process that draws charts ended; what it said stands above")
        found.append(Picture(*json.loads(line)))
    return found


def draw(spec: str) -> Picture:
    """The picture of a Vega-Lite spec."""
    import vl_convert

    match = SVG.fullmatch(vl_convert.vegalite_to_svg(spec))
    if match is None:
        raise RuntimeError("the renderer returned no SVG")
    view_box, body = match.groups()
    body = ROLE.sub("", body)  # the picture has one text alternative, not one for every mark
    return Picture(view_box, compact(body))


def describe(title: str, x: str, y: str, points: Sequence[Point]) -> str:
    """A sentence a screen reader can speak: the axes, then each series from its first to its last mean."""
    places = decimals(point[3] for point in points)
    series: dict[str, dict[float, list[float]]] = {}
    for name, _, px, py in points:
        series.setdefault(name, {}).setdefault(px, []).append(py)
    parts = []
    for name, at in series.items():
        means = [show(sum(at[key]) / len(at[key]), places) for key in (min(at), max(at))]
        parts.append(f"{name} {means[0]} to {means[1]}" if len(at) > 1 else f"{name} {means[0]}")
    return f"{title}: {y} against {x}. First to last, mean over seeds: {'; '.join(parts)}."


def main() -> None:
    for line in sys.stdin:
        picture = draw(line)
        print(json.dumps([picture.view_box, picture.body]), flush=True)


if __name__ == "__main__":
    main()
