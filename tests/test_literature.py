"""The page of the literature: every paper that is known, and several papers' numbers for one setting side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import site, spec
from harness.config import Config, load_profile
from harness.errors import UserError
from harness.plan import Plan
from harness.report import catalogue, literature
from harness.report.reading import load
from harness.runs import resolve
from harness.spec import Paper, load_files
from tests.judging import claim, paper
from tests.site_files import Html
from tests.site_fixture import make
from tests.test_catalogue import CATALOGUE

NUMBER = {"model": "Transformer++", "scale": "340M", "data": "SlimPajama", "metric": "Wikitext perplexity"}


def evidence(folder: Path, papers: dict[str, Paper]):
    profile = load_profile("laptop")
    plan = Plan(Config(suites=("loss",)), profile, papers, resolve(papers, profile))
    make(plan, folder, gaps=False)
    return load(plan, folder)


def with_numbers(*numbers: dict[str, Any]) -> Paper:
    return paper(claim("untested", reason="r", numbers=[NUMBER | given for given in numbers]))


def test_numbers_of_one_setting_stand_together_whatever_their_spelling(tmp_path):
    papers = {
        "a": with_numbers({"value": 28.39, "source": "Table 5"}, {"value": 42.0, "source": "Table 5", "scale": "1.3B"}),
        "b": with_numbers({"value": 26.88, "source": "abstract", "model": "transformer++ ", "data": "slimpajama"}),
        "c": with_numbers({"value": 27.0, "source": "Table 1", "data": "FineWeb"}),
    }
    found = literature.groups(evidence(tmp_path, papers))
    assert sorted([entry.slug for entry in group] for group in found) == [["a"], ["a", "b"], ["c"]]
    together = next(group for group in found if len(group) == 2)
    rows = literature.table(evidence(tmp_path, papers), "t", "T", [together]).rows
    assert [row.items[3].value for row in rows] == [26.88, 28.39]
    assert {row.items[4].text for row in rows} == {"1.51"}
    assert rows[0].items[7].why


def test_the_same_number_twice_in_a_paper_counts_once(tmp_path):
    papers = {"a": with_numbers({"value": 28.39, "source": "Table 5"}, {"value": 28.39, "source": "Table 2"})}
    (group,) = literature.groups(evidence(tmp_path, papers))
    assert len(group) == 1


def test_the_papers_here_disagree_about_their_baseline(tmp_path):
    """GLA's Table 5 and HOLA's abstract: Transformer++, 340M parameters, 15B tokens of SlimPajama."""
    papers = load_files([Path("papers/gla.yaml"), Path("papers/hola.yaml")])
    made = evidence(tmp_path, papers)
    site.build(made, tmp_path / "site")
    page = Html((tmp_path / "site/literature.html").read_text())
    assert "28.39" in page.text
    assert "26.88" in page.text
    tables = (tmp_path / "site/literature.html").read_text().split("<table")
    (shared,) = (table for table in tables if table.startswith(' id="shared"'))
    assert shared.count("Transformer++") == 2
    assert "runs/softmax-" in shared, "ours stands beside theirs"
    assert "RetNet" not in shared


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("value: 28.39, source: T, run: nobody, measured: loss/test/perplexity", "names an unknown run 'nobody'"),
        ("value: 28.39, source: T, run: softmax, measured: loss/test/preplexity", "did you mean 'perplexity'"),
        ("value: 28.39, source: T, run: softmax", "run and measured go together"),
        ("value: 28.39, source: T, unit: nats", "unknown key 'unit'"),
        ("value: 28.39", "lacks the key 'source'"),
        ("value: high, source: T", "should be a number"),
    ],
)
def test_a_wrong_number_is_a_fault_with_its_line(tmp_path, given, fault):
    text = Path("papers/gla.yaml").read_text()
    right = "value: 28.39, source: Table 5, run: softmax, measured: loss/test/perplexity"
    assert text.count(right) == 1
    (tmp_path / "gla.yaml").write_text(text.replace(right, given))
    with pytest.raises(UserError, match=rf"gla\.yaml:[0-9]+: .*{fault}"):
        spec.load_files([tmp_path / "gla.yaml"])


def test_every_paper_of_the_list_has_a_row_with_its_state_and_can_be_found(tmp_path):
    papers = load_files([Path("papers/gla.yaml"), Path("papers/hola.yaml")])
    papers["unlisted"] = paper(claim("untested", reason="r"))
    made = evidence(tmp_path, papers)
    silent = replace(made, verdicts={**made.verdicts, "hola": [{"verdict": "untested"}]})
    rows = {row.items[1].text: [item.text for item in row.items] for row in catalogue.table(silent).rows}
    listed = catalogue.entries()
    assert len(listed) == 138
    assert set(rows) == {entry.arxiv for entry in listed} | {paper.arxiv for paper in papers.values()}
    assert {row[5] for row in rows.values()} == set(catalogue.STATES)
    assert rows["2312.06635"][5] == "judged"
    assert rows["2607.02303"][5] == "specified", "nothing of it has a verdict"
    assert rows["2504.20966"][5] == "specified", "its spec is not part of this build"
    assert rows["2310.14079"][5] == "planned"
    assert all(row[5] == "out of reach" and row[6] for row in rows.values() if row[4] == "tier 5")
    assert rows[papers["unlisted"].arxiv][4] == "not listed"
    site.build(made, tmp_path / "site")
    page = Html((tmp_path / "site/literature.html").read_text())
    index = (tmp_path / "site/assets/index.js").read_text()
    for entry in listed:
        assert f"arxiv-{entry.arxiv}" in page.ids
        assert entry.title in page.text
        assert entry.arxiv in index or entry.arxiv in {paper.arxiv for paper in papers.values()}
    assert not any(href.startswith("papers/softpick") for href in page.links), "no page of it is made"


def test_the_list_is_that_of_the_catalogue_beside_this_checkout():
    if not CATALOGUE.is_file():
        pytest.skip(f"{CATALOGUE.name} is not beside this checkout")
    theirs = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    ours = {(e.arxiv, e.title, e.year, e.tier, e.field) for e in catalogue.entries()}
    keys = ("arxiv", "title", "year", "harness_tier", "field")
    assert ours == {tuple(entry[key] for key in keys) for entry in theirs}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("2401.00001,2024,6,lm-attention,T,r", "tier from 1 to 5"),
        ("2401.00001,2024,5,lm-attention,T,", "no empty cell"),
        ("2401.00001,soon,1,lm-attention,T,r", "a paper is arxiv, year"),
        ("2401.00000,2024,1,lm-attention,T,r", "stands in the list before"),
    ],
)
def test_a_wrong_line_of_the_list_is_refused(tmp_path, line, fault):
    file = tmp_path / "literature.csv"
    file.write_text(f"arxiv,year,tier,field,title,reason\n2401.00000,2024,1,lm-attention,T,r\n{line}\n")
    with pytest.raises(UserError, match=rf"literature\.csv:3: .*{fault}"):
        catalogue.entries(file)
