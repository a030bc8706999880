"""Reported numbers as data, and the page where several papers' numbers for one setting stand side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import site, spec
from harness.config import Config, load_profile
from harness.errors import UserError
from harness.plan import Plan
from harness.report import literature
from harness.report.reading import load
from harness.runs import resolve
from harness.spec import Paper, load_files
from tests.judging import claim, paper
from tests.site_files import Html
from tests.site_fixture import make

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
