"""The site as files: honest numbers, reasons for gaps, nothing from data that runs, the same bytes every time."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from harness import site, stats, vendor
from harness.config import Config
from harness.files import read_json, sha256_file
from harness.plan import Plan
from harness.report import charts, drawing, export, numbers, palette, ties
from harness.report.reading import load
from harness.report.tables import Column, Item, Row, Table, to_csv, to_latex, to_markdown
from harness.runs import resolve
from tests import site_fixture
from tests.site_fixture import TITLES, built, make, ordinary_paper, whole_plan

ROOT = Path(__file__).parents[1]
PITFALLS = ROOT.parent / "shared" / "pitfalls" / "dev" / "h01_site_checks.py"
VOID = {"meta", "link", "input", "br", "img", "path", "circle", "rect", "line"}


class Html(HTMLParser):
    """Elements with their attributes, ids, links, the texts of cells, and scripts by type."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.cells: list[tuple[dict[str, str], str]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.ids = [given["id"] for _, given in self.elements if "id" in given]
        self.links = [v for _, given in self.elements for k, v in given.items() if k in ("href", "src")]

    def handle_starttag(self, tag, attrs):
        given = {key: value or "" for key, value in attrs}
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "th"):
            self.cells.append((given, ""))
        if tag == "script":
            self.scripts.append((given.get("type", ""), ""))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self._open:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
            return
        self.text += data
        if {"td", "th"} & set(self._open):
            self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data)


@lru_cache
def parsed(path: Path) -> Html:
    return Html(path.read_text(encoding="utf-8"))


def pages() -> list[Path]:
    return sorted(built().rglob("*.html"))


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def digests(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_every_kind_of_page_is_there():
    found = {str(path.relative_to(built())) for path in pages()}
    wanted = {"index.html", "claims.html", "compare.html", "methods.html", "provenance.html", "runs/index.html"}
    assert wanted | {"suites/loss.html", "suites/recall.html", "papers/eight.html", "papers/paper-0.html"} <= found
    assert sum(path.startswith("runs/softmax-") for path in found) == 1


def test_published_failures_of_static_sites():
    if not PITFALLS.exists():
        pytest.skip(f"{PITFALLS.name} is not beside this checkout")
    done = subprocess.run([sys.executable, PITFALLS, "--site", built()], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "PASS", done.stdout + done.stderr


def test_text_of_papers_is_only_ever_text():
    everything = "".join(parsed(path).text for path in pages())
    for title in TITLES:
        assert title in everything
    for path in pages():
        for tag, given in parsed(path).elements:
            assert not [key for key in given if key.startswith("on")], (path, tag, given)
            assert given.get("id") != "pwn"
            assert tag != "img"
        for kind, text in parsed(path).scripts:
            assert "alert(" not in text or kind == "application/json", path
            assert kind != "application/json" or strict(text) is not None


def test_links_are_relative_and_lead_somewhere():
    for path in pages():
        for link in parsed(path).links:
            if re.match(r"https://(arxiv\.org/abs|doi\.org)/", link):
                continue
            assert not re.match(r"[a-z]+:|/", link, re.IGNORECASE), f"{path.name}: {link}"
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{path.name}: {link} leads nowhere"
            if anchor and "=" not in anchor and target.suffix == ".html":
                assert anchor in parsed(target).ids, f"{path.name}: {link} has no such place"


def test_ids_are_unique_and_pages_small():
    for path in pages():
        ids = parsed(path).ids
        assert len(ids) == len(set(ids)), (path.name, sorted(one for one in set(ids) if ids.count(one) > 1))
        assert path.stat().st_size < 1_000_000, path.name


def test_no_cell_shows_a_word_of_the_machine():
    for path in pages():
        for given, text in parsed(path).cells:
            shown = text.strip().lower()
            assert shown not in ("nan", "none", "null", "inf", "undefined", "—", "-1"), (path.name, given)


def test_missing_cells_carry_their_reason():
    for path in pages():
        for given, text in parsed(path).cells:
            if "none" in given.get("class", "").split() and "colspan" not in given:
                assert given["title"], (path.name, text)
    overview = parsed(built() / "index.html").text
    assert "diverged: the loss is not finite at step 310" in overview
    assert "failed: RuntimeError: out of memory" in overview
    assert "not run yet" in overview


def test_means_over_fewer_seeds_say_so():
    (page,) = (built() / "runs").glob("delta_net-*.html")
    assert "failed: ValueError: <b>solve_triangular</b> met a singular matrix & stopped" in parsed(page).text
    assert "2/3 seeds" in parsed(built() / "suites" / "recall.html").text


def test_numbers_of_run_pages_are_those_of_the_table():
    rows = list(csv.DictReader((built() / "downloads" / "measurements.csv").open(encoding="utf-8")))
    by_run: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    for run, measured in by_run.items():
        text = (built() / "runs" / f"{run}.html").read_text(encoding="utf-8")
        for (suite, task, length, metric), group in itertools.groupby(
            measured_sorted(measured), key=lambda row: (row["suite"], row["task"], row["length"], row["metric"])
        ):
            cell = f'<tr id="{suite}.{task}.{length or 0}.{metric}">'
            body = text.partition(cell)[2].partition("</tr>")[0]
            shown = [float(value) for value in re.findall(r'data-v="([^"]*)"', body)]
            values = [float(row["value"]) for row in group]
            assert shown[0] == pytest.approx(sum(values) / len(values), rel=1e-12)
            assert set(values) <= set(shown[1:]), (run, cell)


def measured_sorted(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(rows, key=lambda row: (row["suite"], row["task"], row["length"], row["metric"], int(row["seed"])))


def test_every_claim_stands_with_its_verdict_and_scale_gap():
    verdicts = read_json(built() / "downloads" / "verdicts.json")
    for verdict in verdicts:
        text = (built() / "papers" / f"{verdict['paper']}.html").read_text(encoding="utf-8")
        row = text.partition(f'<tr id="claim-{verdict["claim"]}"')[2].partition('<tr id="claim-')[0]
        assert f'<span class="verdict {verdict["verdict"]}">' in row
        assert "Scale gap:" in row
    counts = [verdict["verdict"] for verdict in verdicts]
    tested = sum(counts.count(name) for name in ("reproduced", "contradicted", "inconclusive"))
    assert f"{counts.count('reproduced')} of {tested} tested claims reproduced" in parsed(built() / "index.html").text


def test_downloads_are_strict_and_complete():
    for path in built().rglob("*.json"):
        strict(path.read_text(encoding="utf-8"))
    folder = built() / "downloads"
    for name in ("measurements.csv", "measurements.parquet", "verdicts.json", "bibliography.bib", "site.zip"):
        assert (folder / name).stat().st_size > 100, name
    assert len(list((folder / "charts").glob("*.svg"))) > 20
    graph = read_json(built() / "ro-crate-metadata.json")["@graph"]
    for part in (part for part in graph if part["@type"] == "File"):
        assert sha256_file(built() / part["@id"]) == part["sha256"]


def test_equal_inputs_give_equal_bytes_under_another_hash_seed(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.site_fixture import whole_plan; from harness import site;"
        "from harness.report.reading import load;"
        "site.build(load(whole_plan(), Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    again = tmp_path / "site"
    subprocess.run([sys.executable, "-c", code, built().parent, again], check=True, cwd=ROOT, env=env)
    first, second = digests(built()), digests(again)
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} == set()


def test_a_build_that_dies_leaves_the_old_site(tmp_path, monkeypatch):
    out = tmp_path / "site"
    out.mkdir()
    (out / "index.html").write_text("old")

    def die(evidence, folder):
        (folder / "index.html").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(site, "write", die)
    with pytest.raises(KeyboardInterrupt):
        site.build(None, out)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert (out / "index.html").read_text() == "old"


def test_what_killed_builds_left_is_tidied_up(tmp_path):
    gone = "999999999"  # beyond the largest process id
    (tmp_path / f".site.{gone}.a").mkdir()
    (tmp_path / f".site.{gone}.b.old").mkdir()
    (tmp_path / f".site.{gone}.b.old" / "index.html").write_text("old")
    (tmp_path / f".site.{os.getpid()}.c").mkdir()
    site.recover(tmp_path / "site")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".site.{os.getpid()}.c", "site"]
    assert (tmp_path / "site" / "index.html").read_text() == "old"


@pytest.mark.parametrize("seeds", [(4,), (0, 1)])
def test_few_seeds_and_no_results_render(tmp_path, seeds):
    plan = whole_plan()
    papers = {"eight": ordinary_paper()}
    few = Plan(Config(seeds=seeds), plan.profile, papers, resolve(papers, plan.profile))
    make(few, tmp_path, gaps=False)
    site.build(load(few, tmp_path), tmp_path / "site")
    text = Html((tmp_path / "site" / "index.html").read_text(encoding="utf-8")).text
    assert "No measurement that this profile plans is missing" in text


def test_nothing_measured_yet_renders(tmp_path, monkeypatch):
    monkeypatch.setattr(site_fixture, "trouble", lambda run, task, seed: ("missing", "run.json is missing"))
    papers = {"eight": ordinary_paper()}
    plan = Plan(Config(), whole_plan().profile, papers, resolve(papers, whole_plan().profile))
    make(plan, tmp_path)
    site.build(load(plan, tmp_path), tmp_path / "site")
    for path in (tmp_path / "site").rglob("*.html"):
        assert "nan" not in {text.strip().lower() for _, text in Html(path.read_text(encoding="utf-8")).cells}
    assert "not run yet" in (tmp_path / "site" / "suites" / "loss.html").read_text(encoding="utf-8")


def test_numbers_that_are_not_finite_are_missing(tmp_path):
    import pyarrow
    from pyarrow import parquet

    for path in ("runs.json", "verdicts.json"):
        (tmp_path / path).write_bytes((built().parent / path).read_bytes())
    table = parquet.read_table(built().parent / "measurements.parquet").to_pylist()
    for row, bad in zip(table, itertools.cycle([float("nan"), float("inf"), None, 1.0]), strict=False):
        row["value"] = bad
    parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "measurements.parquet")
    evidence = load(whole_plan(), tmp_path)
    values = {v.value for run in evidence.runs.values() for by in run.values.values() for v in by.values()}
    assert values == {1.0}


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
    assert r"| b | — (died: a\|b) |" in to_markdown(table)


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
    assert strict(chart.json)


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
    assert 40 <= len(steps) <= charts.CURVE + 2
    assert steps == sorted(steps)


def test_with_many_runs_each_is_compared_with_the_leader():
    rng = np.random.default_rng(5)
    values = {f"r{k}": {seed: k / 50 + float(rng.normal(0, 0.01)) for seed in range(3 + k % 2)} for k in range(9)}
    found = ties._p_values(values, "r0", [f"r{k}" for k in range(1, 9)], 0.001)
    for id, p in found.items():
        difference = stats.difference([values[id][seed] - values["r0"][seed] for seed in range(3)], 0.001)
        assert p == pytest.approx(2 * min(difference.p_above(0.0), difference.p_below(0.0)), rel=1e-9)


def test_vendored_files_are_what_vendor_json_says():
    for record in read_json(vendor.FOLDER / "vendor.json"):
        assert sha256_file(vendor.FOLDER / record["file"]) == record["sha256"]
        assert {"name", "version", "licence", "source"} <= record.keys()
    named = {record["file"] for record in read_json(vendor.FOLDER / "vendor.json")}
    assert {path.name for path in vendor.FOLDER.iterdir()} == named | {"vendor.json", "LICENSES.txt"}


def test_the_zip_holds_the_site():
    import zipfile

    with zipfile.ZipFile(built() / "downloads" / "site.zip") as file:
        packed = {name.removeprefix("attest/"): hashlib.sha256(file.read(name)).hexdigest() for name in file.namelist()}
    there = digests(built())
    there.pop("downloads/site.zip")
    assert packed == there
