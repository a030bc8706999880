"""Claims as data: composites, margins, and faults that name their line."""

from __future__ import annotations

import pytest

from harness import claims, spec
from harness.errors import UserError

HEAD = """title: T
arxiv: "2000.00001"
year: 2020
authors: [A]
summary: S
scale_gap: none
runs: {run: {impl: softmax}, base: {impl: softmax, args: {rope: false}}}
claims:
"""
COMPARE = (
    "{{{name}kind: compare, run: {run}, baseline: base, metric: recall/mqar-32/accuracy, expect: {expect}, "
    "margin: {margin}, margin_from: us}}"
)


def written(tmp_path, *lines):
    path = tmp_path / "paper.yaml"
    path.write_text(HEAD + "".join(f"  {line}\n" for line in lines))
    return path


def simple(expect="higher", margin=0.1, run="run", name="id: c, quote: q, where: abstract, "):
    return COMPARE.format(name=name, run=run, expect=expect, margin=margin)


def composite(*parts, kind="all_of"):
    head = ["- id: c", "  quote: q", "  where: abstract", f"  kind: {kind}", "  parts:"]
    return head + [f"    - {part}" for part in parts]


PART = simple(name="")
CHECK = "{kind: property, run: run, check: rows_sum_to_one}"


@pytest.mark.parametrize("kind", ["all_of", "any_of"])
def test_a_sentence_may_promise_several_things(tmp_path, kind):
    (paper,) = spec.load_files([written(tmp_path, *composite(PART, CHECK, kind=kind))]).values()
    tests = list(claims.tests(paper.claims[0]))
    assert [test.kind for _, test in tests] == ["compare", "property"]
    assert [path for path, _ in tests] == [("parts", 0), ("parts", 1)]


def test_a_simple_claim_is_its_own_test(tmp_path):
    (paper,) = spec.load_files([written(tmp_path, f"- {simple()}")]).values()
    assert list(claims.tests(paper.claims[0])) == [((), paper.claims[0])]


@pytest.mark.parametrize("expect", ["within", "not_lower", "not_higher"])
def test_a_margin_of_zero_must_leave_room(tmp_path, expect):
    with pytest.raises(UserError, match=rf"paper.yaml:9: .*expect: {expect} needs a margin above 0"):
        spec.load_files([written(tmp_path, f"- {simple(expect, 0)}")])


@pytest.mark.parametrize("expect", ["higher", "lower"])
def test_higher_and_lower_may_have_a_margin_of_zero(tmp_path, expect):
    assert spec.load_files([written(tmp_path, f"- {simple(expect, 0)}")])


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ([PART], r"needs at least 2 parts"),
        (
            [PART, simple(run="rum", name="")],
            r"paper.yaml:15: claim 'c' names an unknown run 'rum'; did you mean",
        ),
        ([PART, CHECK.replace("one", "ona")], r"paper.yaml:15: unknown check 'rows_sum_to_ona'; did you mean"),
        ([PART, simple(name="id: x, ")], r"paper.yaml:15: unknown key 'id' in claims\[0\].parts\[1\]"),
        ([PART, "{kind: all_of, parts: []}"], r"paper.yaml:15: .* unknown kind 'all_of'"),
    ],
)
def test_faults_in_parts_name_their_line(tmp_path, parts, fault):
    with pytest.raises(UserError, match=fault):
        spec.load_files([written(tmp_path, *composite(*parts))])
