"""From a Vega-Lite spec to a picture: the SVG by vl-convert, offline, and its text alternative."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import vl_convert

from harness.report.numbers import decimals, show

HOVER = "hover"  # the name of a layer that only answers the pointer: not drawn in the still picture

Point = tuple[str, int, float, float]  # series, seed, x, y


SVG = re.compile(r'<svg[^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>\s*', re.DOTALL)
PLACE = re.compile(r' (?:d|transform|x2|y2)="[^"]*"')
LONG = re.compile(r"\d+\.\d{3,}")
ROLE = re.compile(r' (?:role|aria-\w+)="[^"]*"')
ID = re.compile(r'((?:id=|href=)"#?|url\(#)([A-Za-z_][\w-]*)')


@dataclass(frozen=True)
class Chart:
    """A drawn chart: the inside of its SVG, its view box, a text alternative, and the Vega-Lite spec as strict JSON."""

    id: str
    title: str
    description: str
    view_box: str
    body: str
    spec: str

    @property
    def json(self) -> str:
        """The spec as JSON that no HTML parser can end early."""
        return self.spec.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def draw(id: str, title: str, spec: dict[str, Any], description: str) -> Chart:
    still = {**spec, "layer": [layer for layer in spec["layer"] if layer.get("name") != HOVER]}
    view_box, body = _svg(json.dumps(still))
    body = ID.sub(rf"\g<1>{id}-\g<2>", body)  # ids of several pictures share one page
    return Chart(id, title, description, view_box, body, json.dumps(spec, allow_nan=False, separators=(",", ":")))


@lru_cache(maxsize=256)
def _svg(spec: str) -> tuple[str, str]:
    """(view box, inside of the SVG) of a Vega-Lite spec; papers that share their runs share their pictures."""
    match = SVG.fullmatch(vl_convert.vegalite_to_svg(spec))
    if match is None:
        raise RuntimeError("the renderer returned no SVG")
    view_box, body = match.groups()
    body = ROLE.sub("", body)  # the picture has one text alternative, not one for every mark
    return view_box, PLACE.sub(lambda place: LONG.sub(lambda number: f"{float(number[0]):.4g}", place[0]), body)


def describe(title: str, x: str, y: str, points: Sequence[Point]) -> str:
    """A sentence a screen reader can speak: the axes, then each series from its first to its last mean."""
    places = decimals(point[3] for point in points)
    parts = []
    for name in dict.fromkeys(point[0] for point in points):
        at: dict[float, list[float]] = {}
        for _, _, px, py in (point for point in points if point[0] == name):
            at.setdefault(px, []).append(py)
        means = [show(sum(at[key]) / len(at[key]), places) for key in (min(at), max(at))]
        parts.append(f"{name} {means[0]} to {means[1]}" if len(at) > 1 else f"{name} {means[0]}")
    return f"{title}: {y} against {x}. First to last, mean over seeds: {'; '.join(parts)}."
