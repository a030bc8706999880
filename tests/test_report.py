"""The parts of the site: numbers, tables, references, colours, charts, ties."""

from __future__ import annotations

import csv
import itertools
import json
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from harness import stats
from harness.report import charts, drawing, export, numbers, palette, ties
from harness.report.compact import compact
from harness.report.shared import brief, difference
from harness.report.tables import Column, Item, Row, Table, to_csv, to_latex, to_markdown
from tests.site_fixture import ordinary_paper


def test_numbers_are_written_for_people():
    assert numbers.show(2.17149) == "2.171"
    assert numbers.show(-0.0041) == "−0.004"
    assert numbers.show(3.24e-6) == "3.2e−6"
    assert numbers.show(12345.6, 0) == "12,346"
    assert numbers.show(float("nan")) == numbers.show(None) == numbers.show(float("inf")) == "—"
    assert numbers.show(0.25, sign=True) == "+0.250"
    assert [numbers.duration(s) for s in (3.21, 42, 200, 7500)] == ["3.2 s", "42 s", "3 min 20 s", "2 h 05 min"]


def test_an_interval_of_known_numbers():
    found = numbers.summarise({0: 1.0, 1: 2.0, 2: 3.0, 3: float("nan")})
    assert found is not None
    assert (found.mean, found.seeds) == (2.0, 3)
    assert found.half == pytest.approx(4.302653 / 3**0.5)  # t of 2 degrees of freedom, spread 1
    one = numbers.summarise({5: 0.5})
    assert one is not None
    assert one.half is None
    assert numbers.summarise({0: float("inf")}) is None


def test_a_table_survives_each_way_out():
    columns = (Column("A & B"), Column("x|y", unit="s", better="lower", numeric=True))
    rows = (
        Row((Item("50 % of #1_x"), Item("1.5", 1.5, pm="±0.1", best=True))),
        Row((Item("b"), Item("x", why="died: a|b"))),
    )
    table = Table("t", "Caption", columns, rows)
    assert list(csv.reader(to_csv(table).splitlines())) == [
        ["A & B", "x|y (s) ↓", "missing"],
        ["50 % of #1_x", "1.5", ""],
        ["b", "", "x|y (s) ↓: died: a|b"],
    ]
    assert r"\textbf{1.5 $\pm$0.1} \\" in to_latex(table)
    assert r"50 \% of \#1\_x &" in to_latex(table)
    assert r"| b | — (x) |" in to_markdown(table)


def test_a_reference_keeps_its_letters():
    entry = export.bibtex("eight-things", ordinary_paper())
    assert entry.startswith("@article{lovelace2025eight,\n")
    assert "author        = {Ada Lovelace and Zoë Ångström}" in entry
    assert entry.count("{") == entry.count("}")


def luminance(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(luminance(one) @ [0.2126, 0.7152, 0.0722]) for one in (a, b))
    return (high + 0.05) / (low + 0.05)


BLIND = {  # Machado, Oliveira & Fernandes 2009, doi:10.1109/TVCG.2009.113, severity 1
    "nobody": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def oklab(linear: np.ndarray) -> np.ndarray:
    """Björn Ottosson's OKLab, https://bottosson.github.io/posts/oklab/."""
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.array(to_lab) @ np.cbrt(np.array(to_lms) @ np.clip(linear, 0, 1))


@pytest.mark.parametrize(("colours", "paper"), [(palette.LIGHT, "#ffffff"), (palette.DARK, "#14161a")])
def test_colours_stand_out_and_apart(colours, paper):
    assert min(contrast(colour, paper) for colour in colours) >= 3
    for eyes in BLIND.values():
        seen = [oklab(np.array(eyes) @ luminance(colour)) for colour in colours]
        assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 0.07


def test_a_new_mechanism_changes_no_colour():
    names = [f"m{k}" for k in range(40)]
    few, many = palette.styles(names[:9]), palette.styles(names)
    assert all(many[name] == few[name] for name in few)
    looks = [(style.colour, style.shape, style.dash) for style in many.values()]
    assert len(set(looks[:32])) == 32


def test_a_chart_is_drawn_with_its_text_and_its_own_ids():
    styles = palette.styles(["a<b", "c"])
    points = [(name, seed, x, y + seed) for name, y in (("a<b", 0.2), ("c", 0.4)) for seed in (0, 1) for x in (4, 8)]
    chart = charts.profile("id1", "A title", points, styles, x="pairs", y="accuracy", chance=0.1)
    assert "a<b 0.700 to 0.700; c 0.900 to 0.900" in chart.description
    with drawing.Gallery() as gallery:
        body = gallery.picture(chart).body
    assert ">chance</text>" in body
    assert palette.LIGHT[1] in body
    assert "<b" not in chart.json
    assert chart.spec["params"] == [{"name": "focus", "value": None}]


def test_many_charts_are_drawn_by_several_processes_alike(monkeypatch):
    styles = palette.styles(["a"])
    drawn = [
        charts.curves(f"c{k}", "Curve", [("a", 0, s, k + 1 / s) for s in range(1, 9)], styles, y="y") for k in range(5)
    ]
    with drawing.Gallery() as alone, drawing.Gallery() as helped:
        alone.hang(drawn)
        monkeypatch.setattr(drawing, "MANY", 2)
        helped.hang(drawn)
        assert len({alone.picture(chart).body for chart in drawn}) == 5
        assert [alone.picture(chart) for chart in drawn] == [helped.picture(chart) for chart in drawn]


def test_a_curve_is_thinned_evenly_with_both_ends():
    styles = palette.styles(["a"])
    chart = charts.curves("c", "Curve", [("a", 0, step, 1.0) for step in range(1, 5001)], styles, y="y")
    steps = [int(line.split(",")[2]) for line in chart.spec["data"]["values"].splitlines()[1:]]
    assert (steps[0], steps[-1]) == (1, 5000)
    assert 24 <= len(steps) <= charts.CURVE + 2
    assert steps == sorted(steps)


def test_with_many_runs_each_is_compared_with_the_leader():
    rng = np.random.default_rng(5)
    values = {f"r{k}": {seed: k / 50 + float(rng.normal(0, 0.01)) for seed in range(3 + k % 2)} for k in range(9)}
    found = ties._p_values(values, "r0", [f"r{k}" for k in range(1, 9)], 0.001)
    for id, p in found.items():
        difference = stats.difference([values[id][seed] - values["r0"][seed] for seed in range(3)], 0.001)
        assert p == pytest.approx(2 * min(difference.p_above(0.0), difference.p_below(0.0)), rel=1e-9)


def test_a_picture_says_the_same_in_fewer_letters():
    line = '<line transform="translate({},5)" x2="0" y2="{}" stroke="#333" stroke-width="1" opacity="1"/>'
    dot = '<path transform="translate({},2.249)" d="M3,0A3,3,0,1,1,-3,0Z" fill="#f00" opacity="0.85"/>'
    frame = '<path class="background" d="M0,0h9v9h-9Z"/><path class="foreground" d="" display="none"/>'
    text = '<text text-anchor="end" transform="translate(-7,4.04)" fill="#333" opacity="1">a &lt; b</text>'
    ticks, dots = (line.format(1, 5) + line.format(2, -5)), "".join(dot.format(x) for x in range(4))
    body = f'<g class="a" fill="none">{frame}<g class="b" pointer-events="none">{ticks}</g>{text}<g>{dots}</g></g>'
    found = compact(body)
    assert len(found) < 0.6 * len(body)
    tree = ET.fromstring(found)
    assert [path.get("d") for path in tree.iter("path")] == [
        "M3,0A3,3,0,1,1,-3,0Z",
        "M1,5l0,5M2,5l0,-5",
        "M0,2.2L1,2.2L2,2.2L3,2.2",
    ]
    (marker,) = tree.iter("marker")
    assert f"marker:url(#{marker.get('id')})" in {path.get("style") for path in tree.iter("path")}
    assert (marker[0].get("fill"), marker[0].get("fill-opacity")) == ("#f00", "0.85")
    assert [(each.get("x"), each.get("y"), each.text) for each in tree.iter("text")] == [("-7", "4", "a < b")]
    shared = {(name, value) for group in tree.iter("g") for name, value in group.attrib.items()}
    assert {("stroke", "#333"), ("stroke-width", "1")} <= shared


def test_a_difference_says_what_is_new_and_what_goes():
    base = {"a": 1, "b": [1, 2], "c": {"d": 3, "e": 4}, "g": 5}
    whole = {"a": 1, "b": [1, 7], "c": {"d": 3, "f": 6}, "h": [8]}
    assert difference(base, whole) == {"g": None, "b": {1: 7}, "c": {"e": None, "f": 6}, "h": [8]}
    with pytest.raises(ValueError, match="it goes"):
        difference({"a": 1}, {"a": None})
    with pytest.raises(ValueError, match="it goes"):
        difference({}, {"a": None})
    assert difference({"a": None}, {"a": None}) == {}
    assert brief([("0", "1", "5", "9"), ("0", "1", "6", "9"), ("1", "1", "6", "9")]) == "0,1,5,9\n,,6,9\n1,,,9"


def merged(base: Any, own: Any) -> Any:
    """`own` put over `base`, as the pages' script does."""
    if not isinstance(own, dict) or not isinstance(base, dict | list):
        return own
    for key, part in own.items():
        place = int(key) if isinstance(base, list) else key
        if part is None:
            del base[place]
        else:
            held = base[place] if isinstance(base, list) else base.get(place)
            base[place] = merged(held, part)
    return base


def test_each_kind_of_chart_is_put_together_again():
    styles = palette.styles(["a<b", "c"])
    points = [(name, seed, x, x / 7 + seed) for name in ("c", "a<b") for seed in (0, 1) for x in (4, 8)]
    axes: Any = {"x": "pairs", "y": "accuracy"}
    drawn = [
        charts.curves("a", "A", points, styles, y="loss"),
        charts.scatter("b", "B", points, styles, **axes),
        charts.scatter("c", "C", points, styles, **axes, domain=(0, 1)),
        charts.rates("d", "D", points, styles),
        *(
            charts.profile("e", "E", points, styles, **axes, domain=domain, chance=chance, trained=trained)
            for domain, chance, trained in itertools.product((None, (0, 1)), (None, 0.1), (None, 8))
        ),
    ]
    assert {chart.page["kind"] for chart in drawn} == set(charts.kinds())
    for chart in drawn:
        page, wanted = json.loads(chart.json), json.loads(json.dumps(chart.spec))
        whole = merged(json.loads(json.dumps(charts.kinds()[page["kind"]])), page["own"])
        for channel, look in (("color", "colour"), ("shape", "shape"), ("strokeDash", "dash")):
            values = [getattr(styles[name], look) for name in page["names"]]
            whole["encoding"][channel]["scale"] = json.loads(json.dumps({"domain": page["names"], "range": values}))
        rows = [row.split(",") for row in wanted.pop("data")["values"].splitlines()[1:]]
        last: list[str] = []
        told = []
        for line in page["rows"].splitlines():
            last = [field or last[k] for k, field in enumerate(line.split(","))]
            told.append([page["names"][int(last[0])], *last[1:]])
        assert told == rows
        assert whole == wanted, chart.id


def test_reasons_of_many_columns_are_told_once():
    columns = tuple(Column(name) for name in "abcdefg")
    row = Row(tuple(Item("x", why="died" if k > 1 else "late" if k else "") for k in range(7)))
    assert to_csv(Table("t", "T", columns, (row,))).splitlines()[1] == "x,,,,,,,b: late; 5 columns: died"
