"""Proofs on the site: every answer with its number, its limit and its reason, and a badge where equations are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import impls
from harness.report.evidence import reading
from tests.site_files import Html
from tests.site_fixture import built

PAPERS = Path(__file__).parents[1] / "papers"
READINGS = [name for name in impls.names() if reading(name)]


def page(name: str) -> tuple[str, Html]:
    text = (built() / name).read_text(encoding="utf-8")
    return text, Html(text)


def row(impl: str) -> str:
    return page("proof.html")[0].partition(f'<tr id="proof-{impl}"')[2].partition("</tr>")[0]


def test_a_proof_shows_the_gravest_answer_of_its_settings():
    assert '<span class="verdict ok">ok</span> <span class="note">4e-16</span>' in row("gla")
    assert "at most 1e-09; the worst of 2 settings (heads=2)" in row("gla")
    assert '<span class="verdict failed">failed</span> <span class="note">0.3</span>' in row("retnet")
    assert "its rows are normed (0.2 &gt; 1e-09)" in row("retnet")


def test_properties_stand_in_the_order_they_were_asked_in():
    head = page("proof.html")[0].partition('id="proofs"')[2].partition("</thead>")[0]
    places = [head.index(f'<th scope="col">{name}') for name in ("causal by prefix", "weights", "equation")]
    assert places == sorted(places)


def test_what_cannot_be_asked_says_why():
    assert 'title="no weights are defined"' in row("gla")


def test_reasons_stand_in_the_text_and_are_text():
    text, found = page("proof.html")
    shown = found.text.partition("What did not hold")[2].partition("What is asked")[0]
    for reason in ("<i>a prefix</i> of 2 tokens is not close: 0.3 > 1e-09", "its rows are normed", "no scalar loop"):
        assert reason in shown
    assert "<i>a prefix" not in text


def test_every_paper_has_the_row_of_its_mechanisms():
    text, found = page("papers/eight.html")
    assert "proof" in found.ids
    assert {"../proof.html#proof-retnet", "../proof.html#proof-gla"} <= set(found.links)
    assert "proof-sla" not in text


def test_a_mechanism_without_published_equations_bears_a_badge():
    assert "READING" in row("sla")
    assert "READING" not in row("gla")
    assert "not the paper's own equations, which were not found" in page("proof.html")[1].text


def test_what_is_a_reading_is_known_from_the_module(tmp_path):
    assert {"sla", "ccq"} <= set(READINGS)
    assert reading("softmax") == ""
    (tmp_path / "new.py").write_text('"""READING, from an abstract:\nno more was found.\n\nEquations."""\n')
    assert reading("new", tmp_path) == "from an abstract: no more was found."


@pytest.mark.parametrize("impl", READINGS)
def test_the_deviations_of_a_paper_say_what_was_read(impl: str):
    """Every paper that proposes such a mechanism, that is, names it first, says so among its deviations."""
    specs = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(PAPERS.rglob("*.yaml"))]
    proposing = [spec for spec in specs if next(iter(spec["runs"].values()))["impl"] == impl]
    assert proposing, f"no paper proposes {impl}"
    for spec in proposing:
        assert any("reading" in text.lower() for text in spec["deviations"]), spec["title"]
