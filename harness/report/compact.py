"""The same picture in fewer letters: what vl-convert writes for every mark is said once for each group of them.

Nothing that is seen changes but places, which are kept to a tenth of a pixel.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from xml.etree import ElementTree as ET

INHERITED = (
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor", "fill-opacity", "stroke-opacity"),
    *("font-family", "font-size", "font-weight"),
)
SILENT = {  # attributes that say what holds anyway; None: whatever they say
    "class": None,
    "pointer-events": None,
    "opacity": "1",
    "x2": "0",
    "y2": "0",
    "font-weight": "normal",
    "transform": "translate(0,0)",
}
FRAMES = {"background", "foreground"}  # of groups; seen only where they are filled or drawn
MOVED = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
LONG = re.compile(r"-?\d+\.\d+")
OFTEN = 3  # times that a shape follows itself before it is kept apart
XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'


def compact(body: str) -> str:
    """The inside of an SVG, which names no namespace but xlink. Raises ParseError when it is no XML."""
    root = ET.fromstring(f"<g {XLINK}>{body}</g>")
    _prune(root)
    _place(root)
    _voice(root)
    _dots(root)
    _share(root)
    _join(root)
    return ET.tostring(root, encoding="unicode").replace(f" {XLINK}", "").replace(" />", "/>")


def _prune(parent: ET.Element) -> None:
    """Without what is not seen and attributes that change nothing."""
    for child in list(parent):
        empty = child.get("class") in FRAMES and child.get("fill", "none") == child.get("stroke", "none") == "none"
        if child.get("display") == "none" or empty:
            parent.remove(child)
            continue
        for name, value in SILENT.items():
            if child.get(name) is not None and value in (None, child.get(name)):
                del child.attrib[name]
        if child.tag == "path":
            _paint(child)
        for name in ("transform", "d"):
            if name in child.attrib:
                child.set(name, LONG.sub(_short, child.attrib[name]))
        _prune(child)


def _paint(path: ET.Element) -> None:
    """Without the width of a stroke that is not there; opacity as that of the one paint, which groups can hand down."""
    painted = [paint for paint in ("fill", "stroke") if path.get(paint, "none") != "none"]
    if "opacity" in path.attrib and len(painted) == 1:
        path.set(f"{painted[0]}-opacity", path.attrib.pop("opacity"))
    if "stroke" not in painted:
        for name in ("stroke-width", "stroke-dasharray"):
            path.attrib.pop(name, None)


def _short(number: re.Match[str]) -> str:
    text = f"{float(number[0]):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _place(root: ET.Element) -> None:
    """Texts at x and y; straight lines as paths."""
    for element in root.iter():
        at = MOVED.fullmatch(element.get("transform", "translate(0,0)"))
        if at is None or element.tag not in ("text", "line"):
            continue
        element.attrib.pop("transform", None)
        if element.tag == "text":
            element.attrib |= {"x": at[1], "y": at[2]}
        else:
            across, down = element.attrib.pop("x2", "0"), element.attrib.pop("y2", "0")
            element.tag = "path"
            element.set("d", f"M{at[1]},{at[2]}l{across},{down}")


def _join(root: ET.Element) -> None:
    """Paths that stand in one group and say nothing but their shape are one path."""
    for group in root.iter("g"):
        plain = [path for path in group if path.tag == "path" and set(path.attrib) == {"d"}]
        if len(plain) > 1 and len(plain) == len(group):
            plain[0].set("d", "".join(path.get("d") or "" for path in plain))
            group[:] = plain[:1]


def _share(group: ET.Element) -> None:
    """What all children of a group say, the group says; a group that says nothing is its children."""
    for child in group:
        _share(child)
    if group.tag != "g" or not len(group):
        return
    for name in INHERITED:
        said = {child.get(name) for child in group}
        if len(said) == 1 and None not in said and name not in group.attrib:
            group.set(name, said.pop() or "")
            for child in group:
                del child.attrib[name]
    group[:] = [inner for child in group for inner in (child if child.tag == "g" and not child.attrib else [child])]


def _dots(root: ET.Element) -> None:
    """Equal shapes that follow each other, such as the dots of seeds, are the marks at the corners of one path."""
    kept: dict[tuple[tuple[str, str], ...], str] = {}
    for group in list(root.iter("g")):
        parts: list[ET.Element] = []
        for look, run in groupby(list(group), key=_look):
            alike = list(run)
            if not look or len(alike) < OFTEN:
                parts += alike
                continue
            name = kept.setdefault(look, f"s{len(kept)}")
            corners = "L".join(_place_of(path) for path in alike)
            parts.append(ET.Element("path", {"fill": "none", "style": f"marker:url(#{name})", "d": f"M{corners}"}))
        group[:] = parts
    if kept:
        shapes = ET.Element("defs")
        for look, name in kept.items():
            marker = ET.SubElement(
                shapes, "marker", {"id": name, "overflow": "visible", "markerUnits": "userSpaceOnUse"}
            )
            ET.SubElement(marker, "path", dict(look))
        root.insert(0, shapes)


def _look(element: ET.Element) -> tuple[tuple[str, str], ...]:
    """What a path says besides its place; empty for what is no path or is turned."""
    moved = element.get("transform")
    if element.tag != "path" or not (moved is None or MOVED.fullmatch(moved)):
        return ()
    return tuple(sorted((name, value) for name, value in element.items() if name != "transform"))


def _place_of(path: ET.Element) -> str:
    at = MOVED.fullmatch(path.get("transform", "translate(0,0)"))
    assert at is not None
    return f"{at[1]},{at[2]}"


def _voice(root: ET.Element) -> None:
    """The typeface and size of most texts are said once, for all."""
    texts = list(root.iter("text"))
    for name in ("font-family", "font-size"):
        said = Counter(text.get(name) for text in texts).most_common(1)
        if said and said[0][0] is not None and all(name in text.attrib for text in texts):
            root.set(name, said[0][0])
            for text in texts:
                if text.get(name) == said[0][0]:
                    del text.attrib[name]
