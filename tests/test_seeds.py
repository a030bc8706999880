"""Seeds and minutes that would settle open claims."""

from __future__ import annotations

import json
import re

import pytest

from harness import outcomes, seeds
from harness.errors import UserError
from tests.judging import NEAR, SUITE, UP, claim, judged, part, records, table

VAGUE = [0.55, 0.61, 0.52]  # higher than NEAR on the whole, not surely


@pytest.fixture(autouse=True)
def _suite(monkeypatch):
    monkeypatch.setattr(outcomes, "load_suite", lambda name: SUITE)


def trained(run, seed, train=50.0, evaluate=10.0):
    return {
        "run": run,
        "task": "lm",
        "seed": seed,
        "status": "ok",
        "seconds": train,
        "suites": {"s": {"seconds": evaluate}},
    }


TRAININGS = [trained(run, seed) for run in ("run-1", "base-1") for seed in range(3)]


def test_an_open_claim_needs_more_seeds_and_their_minutes():
    (need,) = seeds.needs([judged(VAGUE, NEAR)], TRAININGS)
    assert need.have == 3
    assert need.seeds is not None
    assert 4 <= need.seeds <= 8
    assert need.minutes == pytest.approx((need.seeds - 3) * 2 * 60 / 60)


def test_lower_is_planned_like_higher():
    (up,), (down,) = (
        list(seeds.needs([record], TRAININGS)) for record in (judged(VAGUE, NEAR), judged(NEAR, VAGUE, "lower"))
    )
    assert up.seeds == down.seeds
    (wrong,) = seeds.needs([judged(VAGUE, NEAR, "lower", margin=0.02)], TRAININGS)
    (right,) = seeds.needs([judged(NEAR, VAGUE, "lower", margin=0.02)], TRAININGS)
    assert wrong.seeds is not None
    assert right.seeds is not None
    assert wrong.seeds < right.seeds, "farther from the margin on the wrong side than on the right one"


def test_the_planned_seeds_settle_it():
    """Repeating the observed seeds up to the planned number, a little more than enough, gives a verdict."""
    (need,) = seeds.needs([judged(VAGUE, NEAR)], TRAININGS)
    assert need.seeds is not None
    repeats = -(-need.seeds // 3)
    assert judged(VAGUE * repeats, NEAR * repeats)["verdict"] == "reproduced"


def test_settled_blocked_and_untested_claims_need_nothing():
    made = records(
        table(run__toy__score=UP, base__toy__score=NEAR),
        claim(id="done"),
        claim(id="absent", metric="s/nowhere/score"),
        claim("untested", "left", reason="r"),
    )
    assert list(seeds.needs(made.values(), TRAININGS)) == []
    assert list(seeds.lines([])) == ["no claim is left open for want of seeds"]


def test_one_seed_needs_a_second():
    (need,) = seeds.needs([judged([0.9], [0.1])], TRAININGS)
    assert (need.have, need.seeds) == (1, 2)


def test_levels_after_correction_are_planned_with():
    found = table(run__toy__score=VAGUE, base__toy__score=NEAR, run__toy__error=[1, 5, 9], base__toy__error=[4, 5, 5.5])
    alone = records(found, claim())
    many = records(found, claim(), *(claim(id=f"other-{k}", metric="s/toy/error") for k in range(6)))
    few, more = (next(need.seeds for need in seeds.needs(made.values(), TRAININGS)) for made in (alone, many))
    assert few is not None
    assert more is not None
    assert few < more


def test_a_difference_on_its_border_is_not_settled_by_seeds():
    (need,) = seeds.needs([judged([0.603, 0.611, 0.605], NEAR, margin=0.1)], TRAININGS)
    assert (need.seeds, need.minutes) == (None, None)
    assert "over 200" in "\n".join(seeds.lines([need]))


def test_parts_of_a_composite_are_planned_one_by_one():
    found = table(run__toy__score=UP, base__toy__score=NEAR, run__toy__error=[1, 5, 9], base__toy__error=[4, 5, 5.5])
    made = records(found, claim("all_of", parts=[part(), part(metric="s/toy/error")]))
    assert [need.claim for need in seeds.needs(made.values(), TRAININGS)] == ["c (part 2)"]


def test_seeds_of_a_shared_run_are_paid_once():
    found = table(run__toy__score=VAGUE, base__toy__score=NEAR)
    wanted = list(seeds.needs(records(found, claim(id="a"), claim(id="b")).values(), TRAININGS))
    assert len(wanted) == 2
    last = list(seeds.lines(wanted))[-1]
    assert wanted[0].minutes is not None
    assert float(re.findall(r"[\d.]+", last)[0]) == pytest.approx(wanted[0].minutes, abs=0.06)


def test_runs_that_were_never_timed_cost_nothing_known():
    assert seeds.seconds([{"run": "x", "seconds": None, "suites": {}}], "x", "s") == 0.0


def test_the_command_prints_a_table(tmp_path, capsys):
    (tmp_path / "v.json").write_text(json.dumps([judged(VAGUE, NEAR)]))
    (tmp_path / "r.json").write_text(json.dumps(TRAININGS))
    seeds.main(["--verdicts", str(tmp_path / "v.json"), "--runs", str(tmp_path / "r.json")])
    header, line, total = capsys.readouterr().out.splitlines()
    assert header.split() == ["paper", "claim", "seeds", "now", "seeds", "needed", "minutes"]
    assert line.split()[:3] == ["p", "c", "3"]
    assert total.endswith("minutes of one thread")
    with pytest.raises(UserError, match=r"harness\.judge"):
        seeds.main(["--verdicts", str(tmp_path / "none.json"), "--runs", str(tmp_path / "r.json")])
