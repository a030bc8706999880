"""Papers: every one valid, every fault found with its line and the nearest valid name, and never a traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import impls
from harness import checks, claims, closed, config, metrics, references, spec, yamlio
from harness.errors import UserError, leave
from harness.studies import OWN, sheet

PAPER = """title: A mixer
arxiv: "2312.06635"
year: 2023
authors: [A. Author, B. Author]
summary: A sentence.
recipe:
  rate: {value: 1e-3, source: paper}
deviations: [none]
scale_gap: large
runs:
  gla: {impl: gla, args: {heads: 2}, recipe: {lm: {lr: 1e-3}}}
  softmax: {impl: softmax}
claims:
  - id: better
    quote: It is better.
    where: abstract
    kind: compare
    run: gla
    baseline: softmax
    metric: recall/mqar-32/accuracy
    expect: higher
    margin: 0.1
    margin_from: ours
  - id: flat
    quote: It stays.
    where: abstract
    kind: trend
    run: gla
    metric: loss/length/bits_per_byte
    over: length
    expect: flat
    margin: 0.1
    margin_from: ours
  - {id: exact, quote: It is exact., where: §2, kind: property, run: gla, check: causal}
  - {id: later, quote: It is fast., where: §3, kind: untested, reason: no GPU}
"""


RECALL = "recall/mqar-32/accuracy"


def load(text: str, folder: Path, name: str = "paper.yaml") -> spec.Paper:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return spec.load_files([path])[path.stem]


def faults(text: str, folder: Path, name: str = "paper.yaml") -> list[str]:
    with pytest.raises(UserError) as caught:
        load(text, folder, name)
    lines = str(caught.value).splitlines()
    assert all(re.match(rf"{re.escape(str(folder))}/\S+:\d+: ", line) for line in lines), lines
    return [line.removeprefix(f"{folder}/") for line in lines]


def test_every_paper_is_valid_and_builds_at_every_profile() -> None:
    papers = spec.load_files(spec.paper_files(), [config.load_profile(name) for name in config.profile_names()])
    assert len(papers) >= 29
    for paper in papers.values():
        kinds = {claim.kind for claim in paper.claims}
        assert kinds & {"compare", "value", "trend", "all_of", "any_of"}, "no claim is measured"


def test_every_mechanism_of_a_paper_cites_it() -> None:
    for slug, paper in spec.load_papers().items():
        texts = [
            (impls.__spec__.submodule_search_locations or [""])[0] + f"/{run.impl}.py" for run in paper.runs.values()
        ]
        assert any(f"arXiv:{paper.arxiv}" in Path(text).read_text(encoding="utf-8") for text in texts), slug


@pytest.mark.parametrize("path", spec.paper_files(), ids=lambda path: path.stem)
def test_every_paper_names_its_schema_and_stays_readable(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# yaml-language-server: $schema=../workflow/schemas/paper.schema.json"
    assert max(map(len, lines)) <= 120
    assert len(lines) <= 160


def test_the_paper_of_these_tests_is_valid(tmp_path: Path) -> None:
    paper = load(PAPER, tmp_path)
    assert [claim.kind for claim in paper.claims] == ["compare", "trend", "property", "untested"]
    assert paper.runs["gla"].recipe["lm"].lr == 0.001


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("heads: 2", "haeds: 2", 11, "unknown key 'haeds' in runs.gla.args; did you mean 'heads'?"),
        ("heads: 2", "heads: two", 11, "runs.gla.args.heads should be a whole number, got 'two'"),
        ("heads: 2", "heads: 2.0", 11, "runs.gla.args.heads should be a whole number, got 2.0"),
        ("impl: gla", "impl: glaa", 11, "unknown impl 'glaa'; did you mean 'gla'?"),
        ("impl: gla", "impl: base", 11, "unknown impl 'base'"),
        ("impl: gla", "impl: ../gla", 11, "runs.gla.impl: '../gla' is not a name"),
        ("args: {heads", "agrs: {heads", 11, "unknown key 'agrs' in runs.gla; did you mean 'args'?"),
        ("lm: {lr", "ml: {lr", 11, "unknown task 'ml'"),
        ("lr: 1e-3}}", "lrr: 1e-3}}", 11, "unknown key 'lrr' in runs.gla.recipe.lm; did you mean 'lr'?"),
        ("lr: 1e-3}}", "lr:}}", 11, "runs.gla.recipe.lm.lr should be a number, got nothing"),
        ("lr: 1e-3}}", "steps: 9}}", 11, "unknown key 'steps' in runs.gla.recipe.lm"),
        ("  softmax: {", "  Softmax: {", 12, "runs.Softmax: 'Softmax' is not a name"),
        ("  softmax: {", "  sоftmax: {", 12, "(plain Latin letters)"),
        ("  softmax: {", "  a b: {", 12, "'a b' is not a name"),
        ("  softmax: {", "  a;b: {", 12, "'a;b' is not a name"),
        ('arxiv: "2312.06635"', "arxiv: 2312.06635", 2, 'must be quoted, or it is read as a number'),
        ('arxiv: "2312.06635"', "arxiv: 2504.20960", 2, 'arxiv: "2504.20960"'),
        ('arxiv: "2312.06635"', 'arxiv: "23.6"', 2, "arxiv: '23.6' is not an arXiv id"),
        ("year: 2023", "year: 23", 3, "year should be greater than or equal to 1950, got 23"),
        ("year: 2023\n", "", 1, "the file lacks the key 'year'"),
        ("authors: [A. Author, B. Author]", "authors: [A, A]", 4, "authors: holds 'A' twice"),
        ("authors: [A. Author, B. Author]", "authors: A. Author", 4, "authors should be a list, got 'A. Author'"),
        ("authors: [A. Author, B. Author]", "authors: [{given: A}]", 4, "authors[0] should be text"),
        ("summary: A sentence.", "summary: 5", 5, "summary should be text, got 5"),
        ("source: paper", "source: papre", 7, "recipe.rate.source cannot be 'papre'; did you mean 'paper'?"),
        ("value: 1e-3, ", "", 7, "recipe.rate lacks the key 'value'"),
        ("value: 1e-3", "value: [1]", 7, "recipe.rate.value: should be one number, text, true or false"),
        ("deviations: [none]", "deviation: [none]", 8, "unknown key 'deviation' in the file; did you mean"),
        ("scale_gap: large", "scale_gap:", 9, "scale_gap should be text, got nothing"),
        ("id: better", "id: Better", 14, "claims[0].id: 'Better' is not a slug"),
        ("id: better", "id: later", 35, "the claim id 'later' was given before, to claims[0]"),
        ("kind: compare", "kind: compar", 17, "claims[0] has the unknown kind 'compar'; did you mean 'compare'?"),
        ("kind: compare\n", "\n", 14, "claims[0] lacks the key 'kind'"),
        ("run: gla\n    base", "run: gal\n    base", 18, "claim 'better' names an unknown run 'gal'; did you mean"),
        ("baseline: softmax", "baseline: softmaks", 19, "unknown run 'softmaks'; did you mean 'softmax'?"),
        ("baseline: softmax", "baseline: gla", 19, "claim 'better' compares the run with itself"),
        (RECALL, "recal/mqar-32/accuracy", 20, "unknown suite 'recal'; did you mean 'recall'?"),
        (RECALL, "recall/mqar-33/accuracy", 20, "unknown task 'mqar-33' of suite 'recall'; did you mean"),
        (RECALL, "recall/mqar-32/acuracy", 20, "unknown metric 'acuracy' of suite 'recall'; did you mean"),
        (RECALL, "accuracy", 20, "'accuracy' is not a metric; write <suite>/<task>/<metric>"),
        (RECALL, "loss/length/bits_per_byte@3x", 20, "no profile measures 'length' at @3x; choose one of"),
        (RECALL, "loss/test/bits_per_byte@0x", 20, "a length of 0"),
        ("expect: higher", "expect: hihger", 21, "claims[0].expect cannot be 'hihger'; did you mean 'higher'?"),
        ("margin: 0.1\n", "margin: -1\n", 22, "claims[0].margin should be greater than or equal to 0, got -1"),
        ("margin: 0.1\n", "margin: .nan\n", 22, "claims[0].margin: .nan is not a finite number"),
        ("    margin_from: ours\n  - id: flat", "  - id: flat", 14, "claims[0] lacks the key 'margin_from'"),
        ("over: length", "over: heads", 30, "claims[1].over cannot be 'heads'; choose one of length, pairs"),
        ("over: length", "over: pairs", 29, "at two or more values of pairs"),
        ("bits_per_byte\n", "bits_per_byte@8x\n", 29, "a trend takes its metric over all lengths; leave the @ away"),
        ("check: causal", "check: casual", 34, "unknown check 'casual'; did you mean 'causal'?"),
        ("kind: untested, reason: no GPU", "kind: untested", 35, "claims[3] lacks the key 'reason'"),
        ("kind: untested, reason", "kind: untested, run: gla, reason", 35, "unknown key 'run' in claims[3]"),
        ("claims:\n", "claim:\n", 13, "unknown key 'claim' in the file; did you mean 'claims'?"),
    ],
)  # fmt: skip
def test_a_fault_has_its_line_and_the_nearest_name(
    old: str, new: str, line: int, expected: str, tmp_path: Path
) -> None:
    assert old in PAPER
    found = faults(PAPER.replace(old, new, 1), tmp_path)
    wanted = [fault for fault in found if expected in fault]
    assert wanted, found
    assert wanted[0].startswith(f"paper.yaml:{line}: "), wanted


def test_all_faults_of_all_files_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(PAPER.replace("impl: gla", "impl: gal").replace("year: 2023", "year: x"))
    (tmp_path / "b.yaml").write_text(PAPER + "more: 1\n")
    (tmp_path / "c.yaml").write_text("- 1\n")
    with pytest.raises(UserError) as caught:
        spec.load_papers(tmp_path)
    assert [line.removeprefix(f"{tmp_path}/")[:8] for line in str(caught.value).splitlines()] == [
        "a.yaml:3",
        "b.yaml:3",
        "c.yaml:1",
    ]


@pytest.mark.parametrize("name", ["Paper.yaml", "a_b.yaml", "a.b.yaml", "a--b.yaml", "ехample.yaml", "a b.yaml"])
def test_a_file_that_is_no_slug_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PAPER)
    with pytest.raises(UserError, match="is not a slug"):
        spec.load_papers(tmp_path)


def test_one_paper_is_not_two_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(PAPER)
    (tmp_path / "b.yaml").write_text(PAPER)
    with pytest.raises(UserError, match=r"b\.yaml:2: arXiv 2312\.06635 is already the paper 'a'"):
        spec.load_papers(tmp_path)


def test_a_folder_without_papers_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no paper here"):
        spec.load_papers(tmp_path)
    with pytest.raises(UserError, match="no paper here"):
        spec.load_papers(tmp_path / "none")
    (tmp_path / "a.yml").write_text(PAPER)
    with pytest.raises(UserError, match=r"a\.yml: a paper's file ends in \.yaml; rename it"):
        spec.load_papers(tmp_path)


def test_heads_that_do_not_divide_a_profile_s_width_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "paper.yaml"
    path.write_text(PAPER.replace("softmax: {impl: softmax}", "softmax: {impl: softmax, args: {heads: 7}}"))
    with pytest.raises(UserError) as caught:
        spec.load_files([path], [config.load_profile("laptop")])
    assert str(caught.value).startswith(f"{path}:12: run 'softmax' at profile 'laptop', task 'lm': heads=7")


def test_a_recipe_that_does_not_fit_a_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "paper.yaml"
    path.write_text(PAPER.replace("lr: 1e-3}}", "warmup: 100000}}"))
    with pytest.raises(UserError, match=r"paper\.yaml:11: run 'gla' at profile 'smoke'.* longer than steps"):
        spec.load_files([path], [config.load_profile("smoke")])


def test_a_mechanism_that_cannot_be_imported_is_a_failed_run_not_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('on purpose')\n")
    monkeypatch.setattr(impls, "kind", lambda name: "mechanism")
    monkeypatch.setattr(impls, "__path__", [*impls.__path__, str(tmp_path)])
    assert load(PAPER.replace("impl: gla", "impl: broken"), tmp_path).runs["gla"].impl == "broken"


def test_the_length_of_training_may_stand_in_arguments(tmp_path: Path) -> None:
    text = PAPER.replace("softmax: {impl: softmax}", "softmax: {impl: sigmoid, args: {n: train_length}}")
    assert load(text, tmp_path).runs["softmax"].args == {"n": "train_length"}
    assert "should be a whole number" in faults(text.replace("train_length", "training"), tmp_path)[0]


def test_every_check_and_metric_that_a_claim_uses_exists() -> None:
    for paper in spec.load_papers().values():
        for claim in paper.claims:
            for _, test in claims.tests(claim):
                if isinstance(test, claims.Property):
                    assert test.check in checks.names()
                if isinstance(test, claims.Compare | claims.Trend | claims.Value):
                    key = metrics.parse_key(test.metric)
                    own = paper.runs[test.run] if key.suite in OWN else None
                    known = sheet(own.impl, own.args).metrics if own else metrics.load_suite(key.suite).METRICS
                    assert key.metric in known
                    assert str(key) == test.metric


def test_schemas_are_up_to_date() -> None:
    for name, text in spec.schemas().items():
        path = spec.SCHEMAS / name
        assert path.read_text(encoding="utf-8") == text, f"{path} is old; run python -m harness.spec schema"
    assert {path.name for path in spec.SCHEMAS.glob("*.json")} == set(spec.schemas())


def test_schemas_are_closed() -> None:
    def objects(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, list):
            return [found for item in node for found in objects(item)]
        if not isinstance(node, dict):
            return []
        own = [node] if node.get("type") == "object" and "properties" in node else []
        return own + [found for item in node.values() for found in objects(item)]

    for model in (spec.Paper, config.Config, config.profile_model()):
        found = objects(model.model_json_schema())
        assert found
        assert all(node["additionalProperties"] is False for node in found)


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """(exit code or the text that Python prints before exiting with 1, stdout, stderr)."""
    with pytest.raises(SystemExit) as left:
        leave(lambda: spec.main(list(arguments)))
    out, err = capsys.readouterr()
    return left.value.code, out, err


def test_the_command_reports_all_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(PAPER)
    bad.write_text(PAPER.replace("heads: 2", "haeds: 2").replace("causal", "casual").replace("2312", "2313"))
    assert command(capsys, "check", str(good)) == (0, "ok: 1 paper, 2 runs, 4 claims\n", "")
    text, out, _ = command(capsys, "check", str(good), str(bad))
    assert out == ""
    assert [line.rpartition("/")[2].split(" ")[0] for line in str(text).splitlines()] == [
        "bad.yaml:11:",
        "bad.yaml:34:",
    ]
    assert "cannot be read" in str(command(capsys, "check", str(tmp_path / "none.yaml"))[0])
    assert command(capsys, "frobnicate")[0] == 2


def test_the_command_exits_1_without_a_traceback(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "harness.spec", "check", str(tmp_path / "none.yaml")], capture_output=True, text=True
    )
    assert made.returncode == 1
    assert made.stdout == ""
    assert made.stderr == f"{tmp_path}/none.yaml: cannot be read: No such file or directory\n"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["gla", "compare"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "kind", "impl", "args", "x"]), inner)
    ),
    max_leaves=8,
)
PATHS = st.sampled_from(
    ["title", "arxiv", "year", "authors", "recipe", "deviations", "runs", "claims", "runs.gla", "runs.gla.args",
     "runs.gla.args.heads", "runs.gla.recipe", "runs.gla.recipe.lm", "claims.0", "claims.0.kind", "claims.0.metric",
     "claims.0.run", "claims.1.over", "claims.2.check", "recipe.rate", "recipe.rate.value", "other"]
)  # fmt: skip


@settings(max_examples=200, deadline=3000, suppress_health_check=[HealthCheck.too_slow])
@given(PATHS, PLAIN)
def test_any_value_anywhere_never_traces_back(where: str, value: Any) -> None:
    doc = yamlio.parse(PAPER.encode(), "x.yaml")
    parts = [int(part) if part.isdigit() else part for part in where.split(".")]
    inner: Any = doc.value
    for part in parts[:-1]:
        inner = inner[part]
    inner[parts[-1]] = value
    paper = closed.check(spec.Paper, doc.value, doc)
    if paper is not None:
        references.check(paper, doc)
    assert paper is not None or doc.faults()
    assert all("\n" not in fault and len(fault) < 700 for fault in doc.faults())
