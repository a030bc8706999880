"""What every study and every method keeps to, and what a paper may say of them."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import impls
from harness import model, spec
from harness.errors import UserError
from harness.runs import run_settings
from harness.studies import sheet
from harness.tasks import IGNORE

FOLDER = Path(impls.__file__).parent
SHAPE = model.Shape(impl="softmax", args={"heads": 4}, vocab=64, width=32, layers=3, mlp=32, conv=4)


@pytest.mark.parametrize("name", [*impls.studies(), *impls.methods()])
def test_a_module_says_what_it_is_and_reads_its_settings(name: str):
    text = (FOLDER / f"{name}.py").read_text()
    said = ast.get_docstring(ast.parse(text)) or ""
    assert re.search(r"arXiv:\d{4}\.\d{4,5}", said)
    assert "Differs from" in said
    assert "harness" not in imported(text) or name in impls.studies()
    made = impls.build_study(name, {}) if name in impls.studies() else impls.build_method(name, {})
    source = inspect.getsource(inspect.getmodule(type(made)))  # pyright: ignore[reportArgumentType]
    for field in fields(type(made).Config):  # pyright: ignore[reportArgumentType]
        assert re.search(rf"\b(config|cfg|self|c)\.{field.name}\b", source), f"{field.name} is never read"
    with pytest.raises(ValueError, match="effort"):
        type(made)(made.config, 0.0)


def imported(text: str) -> set[str]:
    """The packages that a module imports."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    found = [getattr(node, "module", None) or node.names[0].name for node in nodes]
    return {name.split(".")[0] for name in found}


@pytest.mark.parametrize("name", impls.studies())
def test_a_study_says_what_it_will_measure_whatever_its_effort(name: str):
    study, brief = impls.build_study(name, {}), impls.build_study(name, {}, 0.01)
    assert study.cells() == brief.cells()
    assert study.parts() == brief.parts()
    cells = study.cells()
    assert len(set(cells)) == len(cells) > 0
    for task, at, metric in cells:
        assert re.fullmatch("[a-z0-9_-]+", task)
        assert at is None or (isinstance(at, int) and at >= 1)
        assert metric in study.METRICS
    assert all(re.fullmatch("[a-z0-9_]+", metric) and study.METRICS[metric].summary for metric in study.METRICS)


@pytest.fixture(scope="module")
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(64, (4, 33), generator=draw) for _ in range(2)]
    targets = [row[:, 1:].clone() for row in rows]
    for target_BT in targets:
        target_BT[:, :8] = IGNORE
    return [(row[:, :-1], target_BT) for row, target_BT in zip(rows, targets, strict=True)]


@pytest.mark.parametrize("name", impls.methods())
def test_a_method_gives_a_model_that_decodes_as_it_reads_and_is_built_again(name: str, batches):
    method, base = impls.build_method(name, {}, 0.05), model.build(SHAPE, 0).eval()
    before = {key: value.clone() for key, value in base.state_dict().items()}
    state = torch.get_rng_state()
    made = method.apply(base, batches, seed=0)
    assert torch.equal(state, torch.get_rng_state())
    assert isinstance(made, model.LM)
    assert not made.training
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    assert made.shape.method
    assert set(method.report(made.shape.method["choices"])) == set(method.METRICS)
    ids_BT = batches[0][0][:2, :24]
    with torch.no_grad():
        whole_BTV = made(ids_BT)
        first_BTV, states = made.prefill(ids_BT[:, :16])
        decoded = []
        for t in range(16, 24):
            logits_BV, states = made.step(ids_BT[:, t], states)
            decoded.append(logits_BV)
        again = model.build(made.shape, seed=5).eval()
        again.load_state_dict(made.state_dict())
        assert torch.equal(again(ids_BT), whole_BTV)
    assert torch.allclose(first_BTV, whole_BTV[:, :16], atol=1e-4)
    assert torch.allclose(torch.stack(decoded, 1), whole_BTV[:, 16:], atol=1e-4)
    twice = method.apply(base, batches, seed=0).state_dict()
    assert all(torch.equal(value, twice[key]) for key, value in made.state_dict().items())


PAPER = """title: A study
arxiv: "2312.06635"
year: 2023
authors: [A. Author]
summary: A sentence.
scale_gap: large
runs:
  one: {impl: STUDY}
  changed: {impl: METHOD, base: softmax}
  softmax: {impl: softmax}
claims:
  - {id: c, quote: It is., where: abstract, kind: compare, run: one, baseline: two, metric: KEY, expect: higher,
     margin: 0.1, margin_from: ours}
"""
STUDY, METHOD = next(iter(impls.studies())), next(iter(impls.methods()))
TASK, AT, METRIC = next(iter(sheet(STUDY, {}).cells))
KEY = f"study/{TASK}/{METRIC}" + (f"@{AT}" if AT else "")


def written(key: str = KEY) -> str:
    text = PAPER.replace("STUDY", STUDY).replace("METHOD", METHOD).replace("KEY", key)
    return text.replace("baseline: two", "baseline: uno").replace("  softmax:", f"  uno: {{impl: {STUDY}}}\n  softmax:")


def load(text: str, folder: Path) -> spec.Paper:
    (folder / "paper.yaml").write_text(text, encoding="utf-8")
    return spec.load_files([folder / "paper.yaml"])["paper"]


def test_the_paper_of_these_tests_is_valid_and_effort_is_in_the_names(tmp_path: Path):
    from harness.config import load_profile

    paper, profile = load(written(), tmp_path), load_profile("laptop")
    brief = profile.model_copy(update={"effort": 0.5})
    for name in ("one", "changed"):
        ids = {run_settings(paper.runs[name], each, paper.runs).id for each in (profile, brief)}
        assert len(ids) == 2, name
    assert run_settings(paper.runs["softmax"], profile).id == run_settings(paper.runs["softmax"], brief).id
    assert run_settings(paper.runs["changed"], profile, paper.runs).step == "apply"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f"/{METRIC}", f"/{METRIC}x", f"unknown metric '{METRIC}x' of the study '{STUDY}'; did you mean '{METRIC}'?"),
        (f"study/{TASK}/", f"study/{TASK}x/", f"unknown task '{TASK}x' of the study '{STUDY}'; did you mean '{TASK}'?"),
        ("metric: study/", "metric: studi/", "unknown suite 'studi'"),
        (KEY, "loss/test/bits_per_byte", "'one' is a study, which no suite measures"),
        (KEY, f"study/{TASK}/{METRIC}@987654", "never measures"),
        ("run: one", "run: softmax", "'softmax' is no study"),
        (f"impl: {STUDY}}}\n  changed", f"impl: {STUDY}, base: softmax}}\n  changed", "leave base away"),
        (f"impl: {STUDY}}}\n  changed", f"impl: {STUDY}, args: {{not: 1}}}}\n  changed", "unknown key 'not'"),
        (f"impl: {STUDY}}}\n  changed", f"impl: {STUDY}, recipe: {{lm: {{lr: 1.0}}}}}}\n  changed", "not trained"),
        ("base: softmax", "base: sotfmax", "unknown run 'sotfmax'; did you mean 'softmax'?"),
        ("base: softmax", "base: one", "the base of a method is a run of a mechanism"),
        (", base: softmax", "", "is a method; give the run whose trained models it changes as base"),
        ("kind: compare, run: one, baseline: uno, metric: KEY, expect: higher,\n     margin: 0.1, margin_from: ours",
         "kind: property, run: one, check: causal", "checks are of mechanisms"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_mend(old: str, new: str, expected: str, tmp_path: Path):
    text, old = written(), old.replace("KEY", KEY)
    assert old in text
    with pytest.raises(UserError) as caught:
        load(text.replace(old, new), tmp_path)
    assert expected in str(caught.value)
