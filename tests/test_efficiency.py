"""The suite that times: known latencies give known numbers, known allocations known peaks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import cost, diff, history, metrics
from harness.config import load_profile
from harness.efficiency import Pair
from harness.evaluate import undisturbed
from harness.model import Shape, build
from harness.peak import peak_bytes
from harness.suites import Gap, Row, efficiency
from harness.timing import Rounds, crossover, growth, in_turns, megahertz

LENGTHS = (250, 500, 2000, 4000)


class Time:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, *seconds: float) -> Any:
        """Work that takes these seconds in turn, the last ones again and again."""
        left = list(seconds)

        def run() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def phase(ours: Any, theirs: Any, name: str = "train", held: Any = None, **wanted: Any) -> dict[Any, Row | Gap]:
    """What the suite makes of works whose seconds, or those of each round, are functions of the length."""
    clock = Time()

    def prepare(length: int) -> Pair:
        first, second = (clock.work(*np.atleast_1d(side(length))) for side in (ours, theirs))
        return Pair(first, second, length, held(length) if held else None)

    settings = efficiency.Settings(**{"lengths": LENGTHS, "seconds": 1e6, **wanted})
    return {row.cell: row for row in efficiency.phase(name, prepare, settings, clock)}


def value(found: Row | Gap) -> float:
    assert isinstance(found, Row), found
    return found.value


def test_known_times_give_known_medians_ratios_and_crossover():
    found = phase(lambda n: n / 1e3, lambda n: n**2 / 1e6)
    for length in LENGTHS:
        assert value(found["train", length, "ratio"]) == pytest.approx(1000 / length)
        assert value(found["train", length, "milliseconds"]) == pytest.approx(length)
        assert value(found["train", length, "tokens_per_second"]) == pytest.approx(1000)
    for metric in efficiency.CROSSOVER:
        assert value(found["train", None, metric]) == pytest.approx(1000)


def test_the_interval_is_that_of_the_least_and_the_greatest_round():
    found = phase(lambda n: (n / 1e3, n / 2e3, n / 1e3, n / 5e2, n / 1e3), lambda n: n**2 / 1e6)
    ends = [value(found["train", 500, metric]) for metric in ("ratio_low", "ratio", "ratio_high")]
    assert ends == pytest.approx([1, 2, 4])
    assert [value(found["train", None, m]) for m in efficiency.CROSSOVER] == pytest.approx([1000, 500, 2000])


def test_a_slow_moment_of_the_machine_changes_no_ratio():
    found = phase(lambda n: (2.0, 20.0, 2.0, 2.0), lambda n: (1.0, 10.0, 1.0, 1.0))
    assert [value(found["train", 250, m]) for m in ("ratio_low", "ratio_high")] == pytest.approx([2, 2])


def test_sides_take_turns_and_neither_is_always_first():
    said: list[str] = []
    rounds = in_turns(lambda: said.append("a"), lambda: said.append("b"), Time())
    for _ in range(4):
        next(rounds)
    assert "".join(said) == "abbaabba"


def test_what_is_never_quicker_has_no_crossover_and_says_up_to_where():
    found = phase(lambda n: 2.0, lambda n: 1.0)
    told = found["train", None, "crossover"]
    assert isinstance(told, Gap)
    assert told.reason == "none up to 4,000 tokens"


def test_a_crossing_that_is_not_kept_does_not_count():
    assert crossover([1, 2, 4], [0.5, 2.0, 0.5]) == pytest.approx(2 * 2**0.5)
    assert crossover([1, 2, 4], [0.5, 0.5, 1.0]) is None
    assert crossover([128, 256], [0.9, 0.5]) == 128


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("flat", lambda n: 1.0),
        ("flat", lambda n: 1.0 + 0.25 * (n == 1024)),  # a moment's noise
        ("linear", lambda n: n),
        ("linear", lambda n: 1.0 + n / 2000),
        ("faster", lambda n: 1.0 + n**2 / 1e6),
        ("slower", lambda n: n**0.5),
    ],
)
def test_how_decoding_grows_is_told_apart(kind: str, seconds: Any):
    lengths = [256, 512, 1024, 2048, 4096]
    assert growth(lengths, [seconds(n) for n in lengths]) == kind


def test_growth_is_of_one_token_from_the_least_length_to_the_greatest():
    found = phase(lambda n: n / 1e3, lambda n: 1.0, name="decode")
    assert value(found["decode", None, "growth"]) == pytest.approx(16)
    with pytest.raises(ValueError, match="fewer than three"):
        growth([1, 2], [1, 1])


def test_lengths_beyond_the_time_are_gaps_and_what_fits_is_measured():
    found = phase(lambda n: 1.0 if n < 2000 else 100.0, lambda n: 1.0, seconds=40)
    assert value(found["train", 500, "ratio"]) == 1
    for length in (2000, 4000):
        told = found["train", length, "ratio"]
        assert isinstance(told, Gap)
        assert "share of time" in told.reason


def test_a_length_that_might_not_fit_in_memory_is_not_begun():
    found = phase(lambda n: 1.0, lambda n: 1.0, held=lambda n: (1000 * n, 500 * n), gigabytes=2e-3)
    assert value(found["peak", 500, "bytes"]) == 500_000
    assert value(found["peak", 500, "bytes_ratio"]) == 2
    told = found["peak", 2000, "bytes"]
    assert isinstance(told, Gap)
    assert told.reason == "might hold more than 0.002 GB"


def test_a_share_of_the_peak_is_flops_over_what_the_device_could_do():
    work = efficiency.phase
    clock = Time()
    wanted = efficiency.Settings(lengths=(100,), peak_tflops=2.0)
    rows = work("train", lambda n: Pair(clock.work(0.5), clock.work(1.0), 50), wanted, clock, flops=lambda n: 1e10)
    assert {r.metric: r.value for r in rows if isinstance(r, Row)}["mfu"] == pytest.approx(1e10 * 50 / 0.5 / 2e12)


def test_the_peak_is_what_is_alive_at_one_time():
    def work() -> None:
        a = torch.zeros(1000)
        b = a.exp() + 1  # the exponential is gone at once
        b[:10].add_(a[:10])
        del a
        torch.zeros(500)

    assert peak_bytes(work, "cpu") == 3 * 4000


def test_a_first_go_in_which_tiles_are_chosen_does_not_count_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    held, done = {"most": 100}, []

    def work() -> None:
        done.append(1)
        held["most"] = max(held["most"], 100 + (7 if len(done) > 1 else 1000))

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: held.update(most=100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: held["most"])
    assert peak_bytes(work, "cuda") == 7


def test_what_autograd_keeps_is_alive():
    x = torch.ones(1000, requires_grad=True)

    def work() -> None:
        y = x.exp().exp().exp()  # each is kept for its gradient
        y.sum().backward()

    assert 3 * 4000 < peak_bytes(work, "cpu") <= 5 * 4000 + 8
    before = peak_bytes(lambda: torch.zeros(10), "cpu")
    assert before == 40


SHAPE = Shape(impl="gla", args={"heads": 2}, vocab=32, width=16, layers=1, mlp=16, conv=2)


def measured(**wanted: Any) -> tuple[Any, dict[Any, Row | Gap]]:
    settings = load_profile("smoke").task("lm")
    model, softmax = (build(shape, 0).eval() for shape in (SHAPE, Shape(**{**vars(SHAPE), "impl": "softmax"})))
    chosen = efficiency.Settings(**{"lengths": (8, 32), "tokens": 32, "rounds": 3, "decoded": 2, **wanted})
    with undisturbed(model):
        found = list(efficiency.measure(model, softmax, settings, chosen, "cpu"))
    assert sorted(map(str, (row.cell for row in found))) == sorted(map(str, efficiency.announced(chosen)))
    return model, {row.cell: row for row in found}


def test_real_models_have_every_cell_and_stay_what_they_were():
    model, found = measured()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), build(SHAPE, 0).parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    for length in (8, 32):
        assert value(found["state", length, "bytes"]) == cost.state_bytes(SHAPE, length)
        for name in efficiency.PHASES:
            low, middle, high = (value(found[name, length, m]) for m in ("ratio_low", "ratio", "ratio_high"))
            assert 0 < low <= middle <= high
    assert value(found["peak", 32, "bytes"]) > 4 * sum(p.numel() for p in model.parameters())  # the gradients at least


def test_another_seed_is_a_gap_that_says_so():
    profile = load_profile("smoke")
    found = list(efficiency.evaluate(None, None, profile, 1, "cpu"))
    assert [row.cell for row in found] == efficiency.cells(profile)
    assert {row.reason for row in found if isinstance(row, Gap)} == {"timed with seed 0 only"}


def test_the_clock_of_a_processor_is_the_mean_of_its_cores(tmp_path: Path):
    told = tmp_path / "cpuinfo"
    told.write_text("processor : 0\ncpu MHz\t\t: 2000.0\nprocessor : 1\ncpu MHz\t\t: 3000.0\n")
    assert megahertz("cpu", told) == 2500
    assert megahertz("cpu", tmp_path / "none") is None


def test_rounds_are_summed_up_by_their_medians():
    rounds = Rounds((1.0, 2.0, 9.0), (1.0, 1.0, 3.0))
    assert (rounds.ratio, rounds.seconds) == (2, 2)


def record(milliseconds: float, loss: float) -> dict[str, Any]:
    """A build with a timed and a counted number."""
    place = {"efficiency/train/milliseconds@128": {"0": milliseconds}, "loss/test/nats@128": {"0": loss, "1": loss}}
    shared: dict[str, Any] = {key: {} for key in history.PARTS} | {"profile": "p", "seeds": [0, 1], "suites": []}
    told = {"time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), "commit": "abc"}
    return shared | told | {"runs": {"a": {"impl": "a"}}, "values": {"a": place}}


def test_what_a_clock_measures_makes_no_new_build_and_is_no_change(tmp_path: Path):
    assert metrics.timed("efficiency/train/milliseconds@128")
    assert not metrics.timed("efficiency/peak/bytes@128")
    assert not metrics.timed("a_suite_that_is_gone/test/nats")
    assert history.keep(record(1.0, 2.0), tmp_path)
    assert history.keep(record(5.0, 2.0), tmp_path) is None
    changes = diff.compare(record(1.0, 2.0), record(5.0, 2.5))
    assert (changes.compared, changes.changed) == (1, 1)


def test_so_does_what_a_study_times_and_the_difference_that_follows(tmp_path: Path):
    def build(relative: float, error: float) -> dict[str, Any]:
        values = {"study/time/relative@16": {"0": relative}, "study/up/error@1": {"0": error}}
        verdict = {"verdict": "inconclusive", "difference": relative}
        runs = {"a": {"impl": "two_pass_softmax", "args": {}}}
        return record(1.0, 2.0) | {"runs": runs, "values": {"a": values}, "verdicts": {"p/c": verdict}}

    assert history.keep(build(0.8, 0.1), tmp_path)
    assert history.keep(build(0.9, 0.1), tmp_path) is None
    changes = diff.compare(build(0.8, 0.1), build(0.9, 0.2))
    assert (changes.compared, changes.changed) == (1, 1)
