"""Records of builds, and what changed between two of them."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from harness import diff, history, site
from harness.config import Config, Data, load_profile
from harness.errors import UserError
from harness.plan import Plan
from harness.report.reading import load
from harness.runs import RunSettings, resolve
from tests.judging import claim, paper
from tests.site_files import Html
from tests.site_fixture import built, make

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
COMMIT = "c" * 40


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> dict[str, Any]:
    """Of a build with two softmax runs."""
    profile, results = load_profile("laptop"), tmp_path_factory.mktemp("results")
    judged, left = claim(metric="loss/test/bits_per_byte", expect="lower"), claim("untested", "left", reason="r")
    papers = {"p": paper(judged, left)}
    plan = Plan(Config(suites=("loss",)), profile, papers, resolve(papers, profile))
    make(plan, results, gaps=False)
    return history.snapshot(plan, results, NOW)


def edited(record, *path, value):
    """A copy with one thing changed."""
    made = copy.deepcopy(record)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


def test_a_record_holds_what_was_measured_and_what_it_came_from(record):
    assert record["time"] == "2026-01-02 03:04:05"
    assert record["profile"] == "laptop"
    assert set(record["verdicts"]) == {"p/c", "p/left"}
    assert record["verdicts"]["p/left"]["verdict"] == "untested"
    assert set(record["mechanisms"]) == {"softmax"}
    assert set(record["values"]) == set(record["runs"])
    assert set(record["values"][next(iter(record["runs"]))]["loss/test/bits_per_byte@128"]) == {"0", "1", "2"}
    assert record["versions"] == {"python": ["3.11.9"], "torch": ["2.13.0"]}
    assert json.loads(json.dumps(record)) == record


def test_a_build_with_nothing_new_keeps_no_second_record(record, tmp_path):
    first = history.keep(record, tmp_path)
    assert first is not None
    dirty = "-dirty" * record["commit"].endswith("-dirty")
    assert first.name == f"20260102T030405Z-{record['commit'][:12]}{dirty}.json"
    later = {**record, "time": "2026-01-02 05:00:00", "commit": COMMIT}
    assert history.keep(later, tmp_path) is None
    assert history.names(tmp_path) == json.loads((tmp_path / "index.json").read_text()) == [first.name]
    assert history.keep(edited(later, "specs", "p", value="0"), tmp_path) is not None
    assert [each["time"] for each in history.latest(5, tmp_path)] == [record["time"], later["time"]]
    (tmp_path / "notes.json").write_text("{}")
    assert len(history.names(tmp_path)) == 2


def test_records_stay_in_order_when_the_clock_is_put_back(record, tmp_path):
    history.keep(record, tmp_path)
    for seeds in ([1], [1, 2], [1, 2]):
        history.keep(record | {"time": "2026-01-01 00:00:00", "seeds": seeds}, tmp_path)
    kept = history.latest(9, tmp_path)
    assert [each["seeds"] for each in kept] == [record["seeds"], [1], [1, 2]]
    assert [each["time"] for each in kept] == [f"2026-01-02 03:04:0{second}" for second in (5, 6, 7)]


def test_equal_builds_differ_in_nothing(record):
    changes = diff.compare(record, record)
    assert changes.nothing
    assert changes.compared == sum(map(len, record["values"].values())) > 50
    assert next(iter(diff.lines(changes))) == "no input changed"


def test_models_of_the_hub_are_told_apart():
    plan: Any = None
    one, other = (
        history._named(RunSettings(f"hub-{k}", "hub", {}, {}, {}, Data(), hf=f"org/m{k}"), plan) for k in range(2)
    )
    assert one != other
    assert one["hf"] == "org/m0"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("specs", "p"), "0", "spec p: changed"),
        (("specs", "q"), "0", "spec q: new"),
        (("mechanisms", "softmax"), "0", "mechanism softmax: changed"),
        (("code", "training"), "0", "code of training: changed"),
        (("settings", "task lm"), "0", "settings of task lm: changed"),
        (("versions", "torch"), ["2.14.0"], "package torch: 2.13.0 → 2.14.0"),
        (("hardware", "processor"), ["B"], "hardware processor: A <fast> processor → B"),
        (("hardware", "gpu"), ["H"], "hardware gpu: none → H"),
        (("seeds",), [0, 1], "seeds: 0, 1, 2 → 0, 1"),
        (("profile",), "gpu", "profile: laptop → gpu"),
        (("runs", "gla-0"), {"impl": "gla", "args": {}, "recipe": {}}, "runs new: gla-0"),
    ],
)
def test_a_changed_input_is_named(record, path, value, said):
    assert diff.compare(record, edited(record, *path, value=value)).inputs == [said]


def test_a_cell_moves_when_its_seeds_do_not_explain_it(record):
    run = next(iter(record["runs"]))
    cell = ("values", run, "loss/test/bits_per_byte@128")
    near = {"0": 2.1, "1": 2.11, "2": 2.12}
    base = edited(record, *cell, value=near)
    far = edited(record, *cell, value={seed: value + 0.5 for seed, value in near.items()})
    (moved,) = diff.compare(base, far).moved
    assert (moved.run, moved.place) == (run, cell[2])
    assert moved.after - moved.before == pytest.approx(0.5)
    little = diff.compare(base, edited(record, *cell, value={seed: value + 0.005 for seed, value in near.items()}))
    assert (little.moved, little.changed) == ([], 1)
    single = diff.compare(base, edited(record, *cell, value={"0": 9.0}))
    assert (single.moved, single.changed, single.unknown) == ([], 1, 1)


def test_many_cells_that_change_by_noise_alone_are_seldom_said_to_move():
    rng = np.random.default_rng(0)
    builds = 200
    wrong = 0
    for _ in range(builds):
        old, new = (
            {"a": {f"s/t{k}/m": {str(seed): float(rng.normal()) for seed in range(3)} for k in range(30)}}
            for _ in range(2)
        )
        empty = {key: {} for key in ("settings", "specs", "mechanisms", "code", "versions", "hardware", "verdicts")}
        shared = {**empty, "profile": "p", "seeds": [], "suites": [], "runs": {"a": {"impl": "a"}}}
        wrong += bool(diff.compare({**shared, "values": old}, {**shared, "values": new}).moved)
    assert wrong / builds <= 0.05 + 2 * (0.05 * 0.95 / builds) ** 0.5


def test_runs_are_matched_by_what_they_are_when_a_profile_renames_them(record):
    renamed = copy.deepcopy(record)
    for part in ("runs", "values"):
        renamed[part] = {f"{id[:-8]}{k:08d}": value for k, (id, value) in enumerate(record[part].items())}
    changes = diff.compare(record, renamed)
    assert (changes.inputs, changes.changed) == ([], 0)
    assert changes.compared > 50


def test_p_value_is_that_of_scipy():
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 5)):
        a, b = rng.normal(size=n), rng.normal(1, size=m)
        assert diff.p_value(list(a), list(b)) == pytest.approx(ttest_ind(a, b)[1])
    assert diff.p_value([1.0, 1.0], [2.0, 2.0]) == 0
    assert diff.p_value([1.0], [2.0, 2.0]) is None


def test_the_command_says_by_its_exit_code_whether_a_verdict_flipped(record, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert diff.main(["previous", "latest"]) == 2
    assert "keeps 0 builds" in capsys.readouterr().err
    moments = (NOW + timedelta(minutes=k) for k in range(3))
    times = [moment.strftime("%Y-%m-%d %H:%M:%S") for moment in moments]
    same = edited({**record, "time": times[1]}, "specs", "p", value="0")
    flipped = edited({**same, "time": times[2]}, "verdicts", "p/left", "verdict", value="blocked")
    for each in (record, same, flipped):
        history.keep(each)
    first, second, _ = (str(history.FOLDER / name) for name in history.names())
    assert diff.main([first, second]) == 0
    assert "spec p: changed" in capsys.readouterr().out
    assert diff.main(["previous", "latest"]) == 1
    assert "flipped: p/left: untested → blocked" in capsys.readouterr().out
    assert diff.main(["latest", "nowhere.json"]) == 2
    with pytest.raises(SystemExit) as usage:
        diff.main(["latest"])
    assert usage.value.code == 2
    with pytest.raises(UserError, match="is no record of a build"):
        diff.find(str(history.FOLDER / "index.json"))
    (history.FOLDER / history.names()[-1]).write_text(json.dumps({**record, "code": 0})[:-9])
    with pytest.raises(UserError, match="is no record of a build"):
        history.keep(record)


def test_the_page_shows_what_changed_and_says_where_there_is_nothing_to_compare(tmp_path):
    page = Html((built() / "history.html").read_text())
    assert "package torch: <2.12.0> → 2.13.0" in page.text
    assert "1 of" in page.text
    told = [text for _, text in page.cells]
    assert told[told.index("both") : told.index("both") + 4][::2] == ["both", "untested"]
    assert any(text.startswith("loss/test/bits_per_byte@128") for text in told)
    profile = load_profile("laptop")
    papers = {"p": paper(claim("untested", reason="r"))}
    plan = Plan(Config(suites=("loss",)), profile, papers, resolve(papers, profile))
    make(plan, tmp_path, gaps=False)
    site.build(load(plan, tmp_path), tmp_path / "site")
    assert "No build was kept yet" in (tmp_path / "site/history.html").read_text()
    history.keep(history.snapshot(plan, tmp_path, NOW), tmp_path / "history")
    site.build(load(plan, tmp_path), tmp_path / "site")
    assert "This is the first build that was kept" in (tmp_path / "site/history.html").read_text()
