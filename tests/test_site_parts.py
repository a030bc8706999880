"""Parts of the site that rest on files of their own: heads, answers, and the scores behind a comparison."""

from __future__ import annotations

import base64
import csv
import lzma
import re
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import items
from harness.files import write_json
from harness.report import evidence, export, raw, run, suite, tables
from harness.report.evidence import Kept, Run
from harness.report.items import LEVELS, read
from harness.report.reading import load
from harness.report.ties import Ties
from tests.site_files import Html, copied
from tests.site_fixture import TITLES, built, whole_plan


def test_grids_of_heads_show_the_means_of_the_table():
    means: dict[tuple[str, ...], list[float]] = {}
    for row in csv.DictReader(copied(built(), "measurements.csv").splitlines()):
        if row["suite"] == "sinks" and "-head" in row["task"]:
            means.setdefault((row["run"], row["task"], row["metric"]), []).append(float(row["value"]))
    text = (built() / "suites" / "sinks.html").read_text(encoding="utf-8")
    grids = re.findall(r'<table class="grid">.*?</table>', text, re.DOTALL)
    assert len(grids) == len({metric for _, _, metric in means}) * len({run for run, _, _ in means}) == 5 * 9
    seen = 0
    for grid in grids:
        for value, id, task, metric in re.findall(
            r'data-v="([^"]+)"[^>]*><a href="\.\./runs/([^.]+)\.html#sinks\.([\w-]+)\.0\.(\w+)"', grid
        ):
            assert float(value) == pytest.approx(fmean(means[id, task, metric]), rel=1e-9)
            seen += 1
    assert seen == len(means)


def test_answers_are_text_and_their_cells_lead_to_them():
    page = built() / "raw" / "recall.html"
    found = Html(page.read_text(encoding="utf-8"))
    for title in TITLES:
        assert title in found.text
    assert "␀bell␇ ␛[31m␡␍" in found.text
    assert "␈" in found.text
    assert not set(found.text) & {chr(n) for n in (*range(9), 11, 12, *range(14, 32), 127)}
    assert "7,718 characters left out" in found.text
    assert "of seed 0 or, where that kept none, of the seed named beside the run" in found.text
    assert re.search(r"by\s+gla \(seed 1\)", found.text), "its seed 0 kept no answers"
    assert {"recall.needle-1.128", "recall.mqar-4.128"} <= set(found.ids)
    (one,) = (built() / "runs").glob("gla-*.html")
    text = one.read_text(encoding="utf-8")
    row = text.partition('<tr id="recall.needle-1.128.accuracy">')[2].partition("</tr>")[0]
    assert 'href="../raw/recall.html#recall.needle-1.128">read some</a>' in row
    assert text.count(">read some</a>") == 2
    assert f'href="../runs/{one.name}">' in page.read_text(encoding="utf-8")


def test_a_method_is_made_again_from_its_base_and_measured_anew():
    bare = Run("bare-0", "bare", {}, {}, "bare", [], records={("lm", 0): {}})
    half = Run("half-0", "half", {}, {}, "half", [], "method", records={("lm", 0): {"base": "bare-0"}})
    evidence: Any = SimpleNamespace(
        profile=SimpleNamespace(name="laptop"),
        config=SimpleNamespace(hub=None),
        seeds=[0],
        tasks={"loss": "lm"},
        runs={"bare-0": bare, "half-0": half},
        skipped=lambda run, task: False,
    )
    lines = [line.removeprefix("python -m harness.") for line in run.commands(evidence, half)]
    assert lines[:3] == [
        "train bare-0 --task lm --seed 0 --profile laptop",
        "apply half-0 --task lm --seed 0 --profile laptop",
        "evaluate half-0 --suite loss --seed 0 --profile laptop --anew",
    ]
    assert run.commands(evidence, bare)[1].startswith("python -m harness.evaluate bare-0 ")


def test_a_row_without_a_measurement_says_why():
    found = load(whole_plan(), built().parent)
    gla, one = (next(run for run in found.models.values() if run.impl == name) for name in ("gla", "softmax"))
    cell = next(cell for cell in found.cells if cell.suite == "recall")
    place = next(k for k, column in enumerate(run.measurements(found, one)[0].columns) if column.label == "Seed 0")

    def row(of, id):
        table = next(table for table in run.measurements(found, of) if id in {row.id for row in table.rows})
        return next(row for row in table.rows if row.id == id).items

    one.values.pop(cell)
    shared = row(one, cell.id)
    assert shared[place - 1].text == shared[place - 1].why == "the suite gave no finite number"
    assert [item.text for item in shared[place : place + 3]] == ["", "", ""], "what all seeds share is told once"
    one.records["recall", 1]["suites"]["recall"] = {"status": "failed", "reason": "died: <b>"}
    own = row(one, cell.id)
    assert own[place - 1].text == "missing"
    assert [item.text for item in own[place : place + 3]] == [
        "the suite gave no finite number",
        "failed",
        "the suite gave no finite number",
    ]
    assert own[place + 1].why == "failed: died: <b>"
    caption = next(table.caption for table in run.measurements(found, gla) if table.id == "suite-recall")
    assert f"rows without a link are only in results/runs/{gla.id}/recall/seed*/recall.raw.json" in caption
    assert (built().parent / "runs" / gla.id / "recall" / "seed1" / "recall.raw.json").is_file()


def test_answers_are_few_where_questions_are_long_and_each_cell_comes_first():
    def asked(task, k):
        return raw.Asked((task, None), f"{task} {k}" + "x" * 900, [])

    groups: dict[raw.Cell, list[raw.Asked]] = {
        ("a", None): [asked("a", k) for k in range(5)],
        ("b", None): [asked("b", k) for k in range(2)],
    }
    drawn = [(each.prompt[:3], first) for each, first in raw.chosen(groups, 2_800)]
    assert drawn == [("a 0", True), ("a 1", False), ("b 0", True)]
    assert len(raw.chosen(groups, 10**6)) == 7
    assert len(raw.chosen(groups, 1)) == 1, "one is shown however long it is"
    assert raw.cut("x" * 5_000).left_out == "3,800"
    assert raw.cut("x" * 1_200).begin == "x" * 1_200


def test_those_who_wrote_the_same_stand_under_one_answer(tmp_path):
    runs = {name: Run(name, name, {}, {}, name, []) for name in "abc"}
    written = {}
    for name, output, score in (("a", "7", 1.0), ("b", "8", 0.0), ("c", "7", 1.0)):
        sample = {"task": "t", "length": 8, "prompt": "?", "output": output, "answers": ["7"], "score": score}
        write_json(tmp_path / f"{name}.json", [sample])
        written[name] = {"s": Kept(5 if name == "b" else 3, tmp_path / f"{name}.json")}
    found: Any = SimpleNamespace(written=written, runs=runs, seeds=(3, 5))
    (page,) = raw.pages(found)
    (shown,) = page.context["texts"]
    assert [(answer.text.begin, answer.score, [r.id for r in answer.runs]) for answer in shown.answers] == [
        ("7", "1.000", ["a", "c"]),
        ("8", "0.000", ["b"]),
    ]
    assert page.context["later"] == {"b": 5}, "only a seed that is not the first is told"
    assert raw.anchors(found) == {name: {"s.t.8"} for name in "abc"}


def test_a_damaged_file_of_answers_shows_none(tmp_path):
    path = tmp_path / "recall.raw.json"
    path.write_text("[{")
    assert raw.samples(path) == []
    write_json(path, [{"task": "a"}])
    assert raw.samples(path) == []


def test_scores_of_two_runs_compare_as_they_did(tmp_path):
    def scores(run, seed, *values, metric="accuracy"):
        row = {"run": run, "seed": seed, "suite": "cloze", "task": "next", "length": None, "metric": metric}
        return items.Scores(row, np.array(values, dtype=float))

    path = tmp_path / "items.parquet"
    assert read(path) == {}
    table = [scores("a", 0, 1, 0, 0.5), scores("a", 1, 1, 1, 0.5), scores("b", 0, 0, 1, 0.5), scores("b", 1, 1, 1)]
    path.write_bytes(items.to_parquet([*table, scores("a", 0, 7, 7, metric="flat")]))
    found = read(path)

    def levels(run, cell):
        return np.frombuffer(base64.b64decode(found[run][cell]), dtype="<u2").tolist()

    a, b = (levels(run, "cloze.next.0.accuracy") for run in "ab")
    assert a == [LEVELS, round(LEVELS / 2), round(LEVELS / 2)], "means over seeds 1, 1/2, 1/2 of what spans 0 to 1"
    assert b == [0, LEVELS, round(LEVELS / 2)], "a seed with other items is left out"
    assert levels("a", "cloze.next.0.flat") == [0, 0]
    assert "cloze.next.0.flat" not in found["b"]


def test_a_long_result_is_packed_and_unpacks_to_itself(tmp_path, monkeypatch):
    source = tmp_path / "rows.json"
    source.write_text("".join(f'{{"value": {k / 7}}}\n' for k in range(2_000)))
    sizes = []
    for large in (10**9, 0):
        monkeypatch.setattr(export, "LARGE", large)
        export.pack(source, tmp_path / "rows.json.xz")
        assert lzma.decompress((tmp_path / "rows.json.xz").read_bytes()) == source.read_bytes()
        sizes.append((tmp_path / "rows.json.xz").stat().st_size)
    assert sizes[0] < sizes[1] < source.stat().st_size
    monkeypatch.setattr(export, "LONG", 0)
    (tmp_path / "measurements.parquet").write_bytes(b"PAR1")
    (tmp_path / "runs.json").write_text("[]")
    found: Any = SimpleNamespace(results=tmp_path)
    assert export.copied(found)["runs.json"] == "downloads/runs.json.xz"
    assert export.copied(found)["measurements.parquet"] == "downloads/measurements.parquet"
    export.pack(source, tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == source.read_bytes()


def test_a_cell_says_its_number_once():
    said = [tables.Item(text, value).number for text, value in (("0.875", 0.875), ("128", 128.0), ("0.9", 0.875))]
    assert said == ["", "", "0.875"]
    item = tables.Item("0.333", 1 / 3)
    assert (item.value, item.number) == (1 / 3, "0.33333333"), "a page keeps eight digits, the cell all"
    assert tables.Item("1.2 G", 1_234_567_891).number == "1234567891", "a whole number is kept whole"
    assert [tables.Item("0", 0).number, tables.Item("0.000", 0.0).number, tables.Item("ok").number] == ["0", "0", ""]


def test_what_needs_no_model_is_told_once(monkeypatch):
    monkeypatch.setattr(evidence, "FLOORS", {"nats"})
    found = load(whole_plan(), built().parent)
    runs = list(found.models.values())
    (row,) = suite.heat_map(Ties(found), "loss", "nats", runs).rows
    assert row.items[0].text == "every run"
    assert not any(item.href for item in row.items)
    shown = {row.id for table in run.measurements(found, runs[0]) for row in table.rows}
    assert "loss.length.256.bits_per_byte" in shown
    assert not any(id.endswith(".nats") for id in shown)
    charts = {chart.id: chart for chart in suite.pictures(found, "loss", runs)}
    assert not any(id.startswith("loss-position-nats") for id in charts)


def test_a_run_that_is_not_trained_for_a_suite_is_left_out_of_it():
    found = load(whole_plan(), built().parent)
    one = next(iter(found.models.values()))
    for (task, _), record in one.records.items():
        if task == "recall":
            record["status"] = "skipped"
    pages = {page.path: page.context for page in suite.pages(found)}
    assert pages["suites/recall.html"]["left_out"] == 1
    assert one.label not in {row.items[0].text for table in pages["suites/recall.html"]["tables"] for row in table.rows}
    assert pages["suites/loss.html"]["left_out"] == 0
    assert {table.id for table in run.measurements(found, one)} == {"suite-loss", "suite-sinks"}


def test_the_key_names_what_the_charts_show():
    found = load(whole_plan(), built().parent)
    context = next(page.context for page in suite.pages(found) if page.path == "suites/sinks.html")
    assert context["charts"] == context["legend"] == []
    context = next(page.context for page in suite.pages(found) if page.path == "suites/recall.html")
    assert {run.label for run, _ in context["legend"]} == {name for each in context["charts"] for name in each.series}
