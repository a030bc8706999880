"""The charts of the site: Altair makes each kind once, data are poured in, vl-convert draws the SVG offline."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import altair as alt

from harness.report.drawing import HOVER, Chart, Point, describe
from harness.report.palette import MUTED, RULE, Style
from harness.report.shared import brief, difference

WIDTH, HEIGHT = 330, 215  # so that three fit beside each other on a desk, and one on a phone, at their own size
TICKS = 8
CURVE = 32  # points of a drawn learning curve
SEEN = "focus == null || datum.run == focus"


def _opacity(value: float) -> Any:
    return alt.condition(SEEN, alt.value(value), alt.value(value / 8))


def _tips(x: str, y: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("run:N", title="mechanism"),
        alt.Tooltip("seed:N", title="seed"),
        alt.Tooltip("x:Q", title=x, format=",~r"),
        alt.Tooltip("y:Q", title=y, format=",.4~r"),
    ]


def _base() -> alt.Chart:
    return alt.Chart(alt.NamedData("rows"))


@lru_cache
def _curves() -> dict[str, Any]:
    """Thin lines, one a seed; x is logarithmic, since most of the fall is early."""
    x = alt.X("x:Q").scale(type="log", nice=False).axis(grid=False, tickCount=5, format="~s")
    y = alt.Y("y:Q").scale(zero=False)
    line = _base().mark_line(strokeWidth=1.5, point=False).encode(x, y, detail="seed:N", opacity=_opacity(0.8))
    spots = line.mark_point(size=70).encode(opacity=alt.value(0), tooltip=_tips("x", "y")).properties(name=HOVER)
    return _finish(alt.layer(line, spots))


@lru_cache
def _profile() -> dict[str, Any]:
    """A line through the means, a band from the lowest to the highest seed, and a dot for every seed."""
    x = alt.X("x:Q").scale(type="log", base=2, nice=False).axis(grid=False, format="~d")
    y = alt.Y("y:Q").scale(zero=False)
    band = (
        _base().mark_area(line=False, point=False).encode(x, y=alt.Y("min(y):Q"), y2="max(y):Q", opacity=_opacity(0.12))
    )
    line = _base().mark_line(point=False).encode(x, alt.Y("mean(y):Q"), opacity=_opacity(1))
    dots = _base().mark_point(size=36).encode(x, y, opacity=_opacity(0.85), tooltip=_tips("x", "y"))
    return _finish(alt.layer(band, line, dots))


@lru_cache
def _scatter() -> dict[str, Any]:
    """One large mark at the mean of each mechanism and a small one for every seed."""
    x, y = alt.X("x:Q").scale(zero=False, padding=12), alt.Y("y:Q").scale(zero=False, padding=12)
    dots = _base().mark_point(size=22).encode(x, y, opacity=_opacity(0.55), tooltip=_tips("x", "y"))
    means = _base().mark_point(size=130).encode(alt.X("mean(x):Q"), alt.Y("mean(y):Q"), opacity=_opacity(1))
    return _finish(alt.layer(dots, means))


def _finish(chart: Any) -> dict[str, Any]:
    style = {"color": alt.Color("run:N").legend(None), "shape": alt.Shape("run:N").legend(None)}
    chart = chart.encode(**style, strokeDash=alt.StrokeDash("run:N").legend(None))
    spec = chart.properties(width=WIDTH, height=HEIGHT).add_params(alt.param(name="focus", value=None)).to_dict()
    for part in (spec, *spec["layer"]):  # what is drawn is poured in later
        part.pop("data", None)
    del spec["config"]  # the site's own look takes its place
    return spec


def curves(id: str, title: str, points: Sequence[Point], styles: Mapping[str, Style], *, y: str) -> Chart:
    """Training curves: loss against step, one line a seed."""
    shown = _thin([point for point in points if point[2] >= 1])
    spec = _pour(_curves(), shown, styles, "training step", y)
    return _chart(id, title, shown, spec, "curves", "training step", y)


def _thin(points: Sequence[Point]) -> list[Point]:
    """At most CURVE points of each line, as evenly spaced on a logarithmic axis as they come, both ends among them."""
    lines: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        lines.setdefault(point[:2], []).append(point)
    kept: list[Point] = []
    for line in lines.values():
        last = math.log(max(line[-1][2], 2))
        slots = {round(math.log(point[2]) / last * CURVE): point for point in line[:-1]}
        kept += [*sorted(slots.values(), key=lambda point: point[2]), line[-1]]
    return kept


def profile(
    id: str,
    title: str,
    points: Sequence[Point],
    styles: Mapping[str, Style],
    *,
    x: str,
    y: str,
    domain: tuple[float, float] | None = None,
    chance: float | None = None,
    trained: float | None = None,
) -> Chart:
    """A measure against length or number of pairs. `chance` and `trained` draw the guesser and the training length."""
    spec = _pour(_profile(), points, styles, x, y)
    axis = spec["layer"][0]["encoding"]["x"]["axis"]
    places = sorted({point[2] for point in points})
    ticks = places if len(places) <= TICKS else [place for place in places if math.log2(place / places[0]).is_integer()]
    for layer in spec["layer"]:
        layer["encoding"]["x"]["axis"] = {**axis, "values": ticks}
        if domain:
            layer["encoding"]["y"]["scale"] = {"domain": list(domain), "nice": False}
    within = trained if trained is not None and places and places[0] < trained <= places[-1] else None
    kind = _ruled(spec, chance, within)
    return _chart(id, title, points, spec, kind, x, y)


def _ruled(spec: dict[str, Any], chance: float | None, trained: float | None) -> str:
    """Draw the guesser and the training length, as far as they are given, into a profile; the kind that makes it."""
    kind = "profile"
    if chance is not None:
        kind += "-chance"
        spec["layer"].insert(0, _rule("y", chance))
        spec["layer"].append(_label("y", chance, "chance", {"x": WIDTH - 2, "align": "right", "dy": -6}))
    if trained is not None:
        kind += "-trained"
        spec["layer"].insert(0, _rule("x", trained))
        spec["layer"].append(_label("x", trained, "trained", {"y": 4, "align": "left", "dx": 4}))
    return kind


@lru_cache
def kinds() -> dict[str, dict[str, Any]]:
    """What all charts of a kind share."""
    found = {"curves": _curves(), "scatter": _scatter()}
    for chance, trained in itertools.product((None, 0.0), repeat=2):
        spec = copy.deepcopy(_profile())
        found[_ruled(spec, chance, trained)] = spec
    return found


def rates(id: str, title: str, points: Sequence[Point], styles: Mapping[str, Style]) -> Chart:
    """Held-out loss of pilots against their learning rate."""
    x, y = "learning rate", "held-out loss, nats"
    spec = _pour(_profile(), points, styles, x, y)
    axis = {**spec["layer"][0]["encoding"]["x"]["axis"], "format": "~g", "values": sorted({p[2] for p in points})}
    for layer in spec["layer"]:
        layer["encoding"]["x"]["axis"] = axis
    return _chart(id, title, points, spec, "profile", x, y)


def scatter(
    id: str,
    title: str,
    points: Sequence[Point],
    styles: Mapping[str, Style],
    *,
    x: str,
    y: str,
    domain: tuple[float, float] | None = None,
) -> Chart:
    """One measure against another, a mark for every mechanism; `domain` is of x."""
    spec = _pour(_scatter(), points, styles, x, y)
    for layer in spec["layer"] if domain else ():
        layer["encoding"]["x"]["scale"] = {"domain": list(domain or ()), "nice": False}
    return _chart(id, title, points, spec, "scatter", x, y)


def _pour(kind: dict[str, Any], points: Sequence[Point], styles: Mapping[str, Style], x: str, y: str) -> dict[str, Any]:
    spec = copy.deepcopy(kind)
    seen = {point[0] for point in points}
    names = [name for name in styles if name in seen]
    ranges = {
        "color": [styles[name].colour for name in names],
        "shape": [styles[name].shape for name in names],
        "strokeDash": [list(styles[name].dash) for name in names],
    }
    for channel, values in ranges.items():
        spec["encoding"][channel]["scale"] = {"domain": names, "range": values}
    for layer in spec["layer"]:
        layer["encoding"]["x"]["title"] = x
        layer["encoding"]["y"]["title"] = y
        for tip in layer["encoding"].get("tooltip", []):
            tip["title"] = {"x": x, "y": y}.get(tip["title"], tip["title"])
    parse = {"x": "number", "y": "number", "seed": "number", "run": "string"}
    spec["data"] = {"values": _csv(points), "format": {"type": "csv", "parse": parse}}
    return spec


def _chart(id: str, title: str, points: Sequence[Point], spec: dict[str, Any], kind: str, x: str, y: str) -> Chart:
    """The chart, with what a page has to say of it: what its kind, the styles and the names do not."""
    names = spec["encoding"]["color"]["scale"]["domain"]
    encoding = {channel: {k: v for k, v in said.items() if k != "scale"} for channel, said in spec["encoding"].items()}
    rows = ((str(names.index(run)), str(seed), f"{px:.6g}", f"{py:.5g}") for run, seed, px, py in points)
    bare = {key: part for key, part in spec.items() if key != "data"} | {"encoding": encoding}
    page = {"kind": kind, "own": difference(kinds()[kind], bare), "names": names, "rows": brief(list(rows))}
    return Chart(id, title, describe(title, x, y, points), spec, page)


def _csv(points: Sequence[Point]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("run", "seed", "x", "y"))
    writer.writerows((run, seed, f"{x:.6g}", f"{y:.5g}") for run, seed, x, y in points)
    return out.getvalue()


def _rule(channel: str, value: float) -> dict[str, Any]:
    mark = {"type": "rule", "color": RULE, "strokeDash": [4, 4], "strokeWidth": 1}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": _fixed({channel: {"datum": value}})}


def _label(channel: str, value: float, text: str, place: dict[str, Any]) -> dict[str, Any]:
    mark = {"type": "text", "text": text, "color": MUTED, "fontSize": 11, "baseline": "middle", **place}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": _fixed({channel: {"datum": value}})}


def _fixed(encoding: dict[str, Any]) -> dict[str, Any]:
    """An encoding that takes no colour, shape or dash from the layers' shared ones."""
    return {**encoding, "color": None, "shape": None, "strokeDash": None}
