"""Building the site: the same bytes every time, the old site until the new one is whole, and odd inputs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import site
from harness.config import Config
from harness.errors import UserError
from harness.plan import Plan
from harness.report.reading import load
from harness.runs import resolve
from tests import site_fixture
from tests.site_files import Html, digests
from tests.site_fixture import built, make, ordinary_paper, whole_plan

ROOT = Path(__file__).parents[1]


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


def test_a_folder_of_other_things_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "write", lambda evidence, folder: (folder / "page").write_text("new") and 1)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"others is there and is no site, so it is not replaced"):
        site.build(None, tmp_path / "others")  # type: ignore[arg-type]
    assert (tmp_path / "others" / "thesis.tex").read_text() == "mine"
    (tmp_path / "site" / "downloads").mkdir(parents=True)
    assert site.build(None, tmp_path / "site") == 1  # type: ignore[arg-type]
    assert (tmp_path / "site" / "page").read_text() == "new"


def test_a_build_that_dies_leaves_the_old_site(tmp_path, monkeypatch):
    out = tmp_path / "site"
    (out / site.SITE).parent.mkdir(parents=True)
    (out / site.SITE).touch()
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
