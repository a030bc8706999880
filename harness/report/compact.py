"""The same picture in fewer letters: what vl-convert writes for every mark is said once for each group of them.

Nothing that is seen changes but places, which are kept to a tenth of a pixel.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

INHERITED = (
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor"),
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
OFTEN = 3  # times that a shape occurs before it is kept apart
XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'


def compact(body: str) -> str:
    """The inside of an SVG, which names no namespace but xlink. Raises ParseError when it is no XML."""
    root = ET.fromstring(f"<g {XLINK}>{body}</g>")
    _prune(root)
    _place(root)
    _share(root)
    _join(root)
    _repeat(root)
    return ET.tostring(root, encoding="unicode").replace(f" {XLINK}", "")


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
        for name in ("transform", "d"):
            if name in child.attrib:
                child.set(name, LONG.sub(_short, child.attrib[name]))
        _prune(child)


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


def _repeat(root: ET.Element) -> None:
    """Shapes that occur often, such as the dots of seeds, are drawn once and used."""
    paths = [path for path in root.iter("path") if MOVED.fullmatch(path.get("transform", ""))]
    often = [shape for shape, n in Counter(path.get("d") or "" for path in paths).items() if n >= OFTEN]
    kept = {shape: f"s{place}" for place, shape in enumerate(often)}
    for path in paths:
        if (shape := path.get("d")) in kept:
            at = MOVED.fullmatch(path.attrib.pop("transform"))
            assert at is not None
            del path.attrib["d"]
            path.tag = "use"
            path.attrib |= {"href": f"#{kept[shape]}", "x": at[1], "y": at[2]}
    if kept:
        shapes = ET.Element("defs")
        shapes.extend(ET.Element("path", {"id": name, "d": shape}) for shape, name in kept.items())
        root.insert(0, shapes)
