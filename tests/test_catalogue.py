"""Every claim of the literature's catalogue about a token mixer of a language model is in the paper's spec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.optimize import linear_sum_assignment

from harness.spec import Paper, load_files

CATALOGUE = Path(__file__).parents[1].parent / "shared" / "papers" / "catalogue.yaml"
COMMON = {"with", "over", "than", "from", "that", "this", "into", "their", "model", "models", "same", "other", "more"}
SHARED = 0.2  # of a catalogue claim's words that its claim in the spec must have; the least today is 0.25


def entries() -> list[dict[str, Any]]:
    if not CATALOGUE.is_file():
        return []
    return [entry for entry in yaml.safe_load(CATALOGUE.read_text(encoding="utf-8")) if entry["harness_tier"] == 1]


def words(text: str) -> set[str]:
    """Beginnings of its longer words, so that `stable` is near `stability`."""
    return {word[:6] for word in re.findall(r"[a-z]{4,}", text.lower()) if word not in COMMON}


def said(paper: Paper) -> list[str]:
    """All that a spec says of each claim."""
    return [yaml.safe_dump(claim.model_dump(mode="json", exclude={"id"})) for claim in paper.claims]


@pytest.fixture(scope="module")
def papers() -> dict[str, Paper]:
    files = sorted(Path("papers").glob("*.yaml"))
    return {paper.arxiv: paper for paper in load_files(files).values()}


def test_the_catalogue_is_beside_this_checkout():
    if not CATALOGUE.is_file():
        pytest.skip(f"{CATALOGUE.name} is not beside this checkout, so specs are not compared with it")
    assert len(entries()) == 19


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["slug"])
def test_every_claim_has_one_of_its_own_in_the_spec_with_its_numbers(entry: dict[str, Any], papers: dict[str, Paper]):
    assert entry["arxiv"] in papers, "there is no spec of this paper"
    paper = papers[entry["arxiv"]]
    listed, ours = entry["claims"], said(paper)
    assert len(ours) >= len(listed)
    near = np.zeros((len(listed), len(ours)))
    for row, claim in enumerate(listed):
        wanted = words(" ".join(str(claim[key]) for key in ("metric", "subject", "value", "conditions")))
        near[row] = [len(wanted & words(text)) / max(1, len(wanted)) for text in ours]
    rows, columns = linear_sum_assignment(-near)
    far = [listed[row]["metric"] for row, column in zip(rows, columns, strict=True) if near[row, column] < SHARED]
    assert not far, "no claim of the spec is about this"
    whole = re.sub(r"[\s,]", "", paper.model_dump_json())
    numbers = {number for claim in listed for number in re.findall(r"\d+(?:\.\d+)?", str(claim["value"] or ""))}
    assert not {number for number in numbers if number not in whole}


def test_a_claim_left_out_is_noticed(papers: dict[str, Paper]):
    if not entries():
        pytest.skip(f"{CATALOGUE.name} is not beside this checkout")
    entry = next(entry for entry in entries() if entry["slug"] == "hola")
    paper = papers[entry["arxiv"]]
    for lost in range(len(paper.claims)):
        fewer = paper.model_copy(update={"claims": paper.claims[:lost] + paper.claims[lost + 1 :]})
        if len(fewer.claims) > len(entry["claims"]):
            continue
        short = {**papers, entry["arxiv"]: fewer.model_copy(update={"claims": fewer.claims[1:]})}
        with pytest.raises(AssertionError):
            test_every_claim_has_one_of_its_own_in_the_spec_with_its_numbers(entry, short)
