"""How a study is made: what a failed attempt leaves for the next one, and what counts as a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

import impls
from harness import job, study
from harness.runs import RunSettings
from impls import study as base
from impls.study import Metric, Row


class Two(base.Study):
    """Two parts, the second of which may raise."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    METRICS: ClassVar = {"error": Metric(unit="1", better="lower", summary="of it")}
    measured: ClassVar[list[str]] = []
    raises: ClassVar = False
    names: ClassVar = ("error", "error")

    def cells(self):
        return [("first", None, self.names[0]), ("second", None, self.names[1])]

    def parts(self):
        return ["first", "second"]

    def measure(self, part, seed, device):
        if self.raises and part == "second":
            raise ArithmeticError("it fell")
        self.measured.append(part)
        yield Row(part, None, self.names[part == "second"], 0.5, n=1)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes the study once, and says how it went."""
    monkeypatch.setattr(job, "RESULTS", tmp_path)
    monkeypatch.setattr(impls, "build_study", lambda impl, args, effort: Two(Two.Config(), effort))
    monkeypatch.setattr(Two, "measured", [])
    run = RunSettings("two_pass_softmax-00000000", "two_pass_softmax", {}, {}, {}, None)  # pyright: ignore

    return lambda: study.make(job.Job(run, "study", 0, "laptop"), 1.0, "cpu", lambda line: None)


def test_a_failed_study_goes_on_from_its_finished_parts(made, monkeypatch, tmp_path):
    monkeypatch.setattr(Two, "raises", True)
    assert made()["reason"] == "ArithmeticError: it fell"
    monkeypatch.setattr(Two, "raises", False)
    assert made()["status"] == "ok"
    assert Two.measured == ["first", "second"]
    assert not list((tmp_path / "state").rglob("*.json"))  # a finished one leaves no parts


def test_a_metric_that_is_not_described_fails_the_study(made, monkeypatch):
    monkeypatch.setattr(Two, "names", ("error", "lost"))
    record = made()
    assert (record["status"], record["reason"]) == ("failed", "announced by cells() but not in METRICS: lost")
