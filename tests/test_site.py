"""The site as files: honest numbers, reasons for gaps, nothing from data that runs, the same bytes every time."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import unquote

import pandas
import pytest

from harness import vendor
from harness.errors import UserError
from harness.files import read_json, sha256_file
from tests.site_files import Html, copied, digests
from tests.site_fixture import TITLES, built

ROOT = Path(__file__).parents[1]
PITFALLS = ROOT.parent / "shared" / "pitfalls" / "dev" / "h01_site_checks.py"


@lru_cache
def parsed(path: Path) -> Html:
    return Html(path.read_text(encoding="utf-8"))


def pages() -> list[Path]:
    return sorted(built().rglob("*.html"))


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_every_kind_of_page_is_there():
    found = {str(path.relative_to(built())) for path in pages()}
    wanted = {
        "history.html",
        "index.html",
        "claims.html",
        "compare.html",
        "methods.html",
        "provenance.html",
        "runs/index.html",
    }
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
    rows = list(csv.DictReader(copied(built(), "measurements.csv").splitlines()))
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
            shown = [
                float(value or text)
                for value, text in re.findall(r'data-v(?:="([^"]*)")?>(?:<a [^>]*>)?([^< ]*)', body)
            ]
            values = [float(row["value"]) for row in group]
            assert shown[0] == float(f"{fmean(values):.8g}"), (run, cell)
            assert {float(f"{value:.8g}") for value in values} <= set(shown[1:]), (run, cell)


def test_the_leaderboard_has_its_numbers_in_full():
    measured: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader(copied(built(), "measurements.csv").splitlines()):
        if (row["suite"], row["task"], row["metric"]) == ("loss", "test", "bits_per_byte"):
            measured.setdefault((row["run"], row["length"]), []).append(float(row["value"]))
    text = (built() / "downloads" / "tables" / "index-leaderboard.csv").read_text(encoding="utf-8")
    told = [float(cell) for row in csv.reader(text.splitlines()) for cell in row if re.fullmatch(r"-?\d+\.\d+", cell)]
    for (run, length), values in measured.items():
        assert any(number == pytest.approx(fmean(values), rel=1e-12) for number in told), (run, length)


def measured_sorted(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(rows, key=lambda row: (row["suite"], row["task"], row["length"], row["metric"], int(row["seed"])))


def test_every_claim_stands_with_its_verdict_and_scale_gap():
    verdicts = strict(copied(built(), "verdicts.json"))
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
    for name in ("measurements.parquet", "bibliography.bib", "site.zip"):
        assert (folder / name).stat().st_size > 100, name
    names = {path.name for path in (folder / "tables").iterdir()}
    assert names == {"index-papers.csv", "claims-claims.csv", *(f"index-leaderboard.{e}" for e in ("csv", "md", "tex"))}
    rows = strict(copied(built(), "measurements.json"))
    assert isinstance(rows, list)
    assert len(rows) == len(copied(built(), "measurements.csv").splitlines()) - 1
    assert len(pandas.read_parquet(folder / "measurements.parquet")) == len(rows), "Parquet is read as it lies there"


def test_the_front_page_says_how_packed_files_are_unpacked():
    text = (built() / "index.html").read_text(encoding="utf-8").partition('<h2 id="downloads">')[2]
    packed = re.findall(r'<a href="(downloads/[^"]*\.xz)" download>([^<]*)</a>', text)
    assert {path for path, _ in packed} == {f"downloads/{path.name}" for path in built().rglob("*.xz")}
    assert packed, "the made-up results are long enough"
    assert all(said.endswith(" (.xz)") for _, said in packed)
    told, _, links = text.partition("<ul")
    assert "<code>xz -d FILE</code> or 7-Zip" in told
    assert ".xz" in links
    if (built() / "downloads" / "measurements.csv.xz").is_file():
        read = pandas.read_csv(built() / "downloads" / "measurements.csv.xz")
        assert len(read) == len(strict(copied(built(), "measurements.json")))


def test_the_crate_says_what_every_file_is_and_under_which_licence():
    graph = {node["@id"]: node for node in read_json(built() / "ro-crate-metadata.json")["@graph"]}
    root = graph["./"]
    assert root["datePublished"] == "2026-01-02"
    assert graph["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    parts = [graph[part["@id"]] for part in root["hasPart"]]
    described = {part["@id"] for part in parts}
    files = {path for path in built().rglob("*") if path.is_file() and path.parent.name in ("downloads", "vendor")}
    names = {path.relative_to(built()).as_posix() for path in files}
    unnamed = {"downloads/site.zip", "assets/vendor/vendor.json", "assets/vendor/LICENSES.txt"}
    assert names - described == unnamed, "the archive holds the crate, the other two are licences themselves"
    for part in parts:
        assert part["license"], part
        assert (built() / part["@id"]).exists()
        if part["@type"] == "File":
            assert sha256_file(built() / part["@id"]) == part["sha256"]
    assert graph[root["license"]["@id"]]["name"] == "Apache License 2.0"
    assert {graph[source["@id"]]["license"] for source in root["isBasedOn"]} == {"CC0-1.0"}
    assert "BSD-3-Clause" in graph["assets/vendor/vega.js"]["license"]


def test_vendored_files_are_what_vendor_json_says(tmp_path):
    vendor.check()
    folder = shutil.copytree(vendor.FOLDER, tmp_path / "vendor")
    (folder / "more.js").write_text("1")
    with (folder / "vega.js").open("a") as file:
        file.write(" ")
    with pytest.raises(UserError, match=r"more\.js is not named in vendor\.json.*\n.*vega\.js is not the file of"):
        vendor.check(folder)
    assert vendor.told(
        {"sha256": "a", "version": "1"}, {"file": "x.js", "name": "x", "version": "2", "sha256": "b"}
    ) == ("x.js: x 2, was 1; see whether LICENSES.txt still fits")


def test_the_zip_holds_the_site():
    with zipfile.ZipFile(built() / "downloads" / "site.zip") as file:
        packed = {name.removeprefix("attest/"): hashlib.sha256(file.read(name)).hexdigest() for name in file.namelist()}
    there = digests(built())
    there.pop("downloads/site.zip")
    assert packed == there
