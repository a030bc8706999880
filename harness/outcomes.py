"""From a test of a claim and the measurements to one mean improvement, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import claims, stats
from harness.config import Profile
from harness.measured import Measurements, Place, Value
from harness.metrics import Key, Metric, load_suite, parse_key
from harness.outcome import Outcome, checked
from harness.studies import OWN, STUDY, Sheet
from harness.verdict import SHAPES, Rule


class Missing(Exception):
    """A measurement that a test needs is not there; the text says why."""


@dataclass(frozen=True)
class Bench:
    """Measurements with what is needed to find a claim's numbers in them."""

    profile: Profile
    seeds: Sequence[int]
    suites: Sequence[str]
    found: Measurements
    noise: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # by place: what other data orders change
    sheets: Mapping[str, Sheet] = field(default_factory=dict)  # by run: what studies and methods measure themselves

    def outcome(self, test: claims.Test, ids: Mapping[str, str], args: Callable[[str], tuple[str, dict]]) -> Outcome:
        """The outcome of a test; `ids` gives run ids by the paper's names, `args` a run's mechanism and arguments."""
        if isinstance(test, claims.Untested):
            return Outcome(test, {}, settled="untested", reason=test.reason)
        if isinstance(test, claims.Property):
            return checked(test, {"run_id": ids[test.run]}, *args(test.run))
        return _Measured(self, test, ids).outcome()


@dataclass(frozen=True)
class _Measured:
    """One test of numbers: a weighted sum over places, of the run and of its baseline if it has one."""

    bench: Bench
    test: claims.Compare | claims.Value | claims.Trend | claims.Need
    ids: Mapping[str, str]

    def outcome(self) -> Outcome:
        test = self.test
        assert not isinstance(test, claims.Need)
        expect = "within" if isinstance(test, claims.Value) else test.expect
        margin = test.tolerance if isinstance(test, claims.Value) else test.margin
        (shape, sign), facts = SHAPES[expect], self._facts() | {"expect": expect, "margin": margin}
        common: dict[str, Any] = {"rule": Rule(shape, margin), "sign": sign}
        try:
            places, weights = self._places()
        except Missing as missing:
            return Outcome(test, facts, settled="blocked", reason=str(missing), **common)
        common["noise"] = self._floor(places, weights)
        facts["length"] = places[0].length if len(places) == 1 else None
        values = {name: self._values(name, places) for name in self.names}
        seeds = sorted(set.intersection(*(set(found) for found in values.values())))
        gaps = self._gaps(values, places)
        if not seeds:
            return Outcome(test, facts, settled="blocked", reason=gaps, **common)
        sums = {name: [_sum(values[name][seed], weights) for seed in seeds] for name in self.names}
        facts |= {"seeds": seeds, "run_values": sums[test.run], "baseline_values": sums.get(self.baseline or "", [])}
        try:
            unmet = self._unmet(test.needs, seeds)
        except Missing as missing:
            return Outcome(test, facts, settled="blocked", reason=str(missing), **common)
        if unmet:
            return Outcome(test, facts, settled="inconclusive", reason=unmet, gaps=gaps, **common)
        if len(seeds) < 2:
            reason = f"One seed ({seeds[0]}) gives no interval; at least two are needed."
            return Outcome(test, facts, settled="inconclusive", reason=reason, gaps=gaps, **common)
        against = sums[self.baseline] if self.baseline else getattr(test, "value", 0.0)
        d_S = sign * np.subtract(sums[test.run], against)
        improvement = stats.difference(d_S, self._resolution(values, seeds, weights), self._items(places, seeds, sign))
        return Outcome(test, facts, improvement=improvement, gaps=gaps, **common)

    def _unmet(self, needs: Sequence[claims.Need], seeds: list[int]) -> str:
        """Why the test says nothing: the first need that these seeds do not meet; empty when they meet all.

        Raises Missing where what is needed was not measured.
        """
        for need in needs:
            asked = _Measured(self.bench, need, self.ids)
            places, _ = asked._places()
            values = asked._values(need.run, places)
            if set(seeds) - set(values):
                raise Missing(asked._gaps({need.run: values}, places))
            found = [values[seed][0].value for seed in seeds]
            if not all(map(need.met, found)):
                had = ", ".join(f"{value:.3g}".replace("-", "−") for value in found)
                lacking = need.lacking[0].upper() + need.lacking[1:]
                return f"{lacking}: {need.metric} of {need.run} is {had}; the claim needs {need.bound} in every seed."
        return ""

    @cached_property
    def key(self) -> Key:
        return parse_key(self.test.metric)

    @cached_property
    def sheet(self) -> Sheet | None:
        """What a study or method measures itself, where the test is of that."""
        return self.bench.sheets.get(self.ids[self.test.run], Sheet()) if self.key.suite in OWN else None

    @cached_property
    def metric(self) -> Metric:
        if self.sheet is not None:
            return self.sheet.metrics.get(self.key.metric) or Metric(unit="", better="none")
        return load_suite(self.key.suite).METRICS[self.key.metric]

    @property
    def baseline(self) -> str | None:
        return getattr(self.test, "baseline", None)

    @property
    def names(self) -> list[str]:
        """The paper's names of the runs that are needed."""
        return [self.test.run, *([self.baseline] if self.baseline else [])]

    def _facts(self) -> dict[str, Any]:
        unit, test = self.metric.unit, self.test
        return {
            "metric": test.metric,
            "unit": f"{unit} per doubling" if isinstance(test, claims.Trend) else unit,
            "better": self.metric.better,
            "run_id": self.ids[test.run],
            "baseline_id": self.ids[self.baseline] if self.baseline else None,
        }

    def _places(self) -> tuple[list[Place], NDArray[np.float64]]:
        """What is needed, with weights. Raises Missing when the profile or the measurements leave it open."""
        place = Place(self.key.suite, self.key.task, self.key.metric, None)
        if not isinstance(self.test, claims.Trend):
            return [place._replace(length=self._length(self.key, place))], np.ones(1)
        if self.test.over == "length":
            steps = {length: place._replace(length=length) for length in self._planned(place) if length is not None}
        else:
            tasks = {task for task, _, _ in self._cells if task.rpartition("-")[0] == place.task}
            each = {int(task.rpartition("-")[2]): place._replace(task=task) for task in tasks}
            steps = {pairs: at._replace(length=self._length(self.key, at)) for pairs, at in each.items()}
        if len(steps) < 2:
            raise Missing(
                f"The profile {self.bench.profile.name!r} measures {place} at fewer than 2 values of {self.test.over}."
            )
        doublings = np.log2(sorted(steps))
        centred = doublings - doublings.mean()
        return [steps[step] for step in sorted(steps)], centred / (centred**2).sum()

    @cached_property
    def _cells(self) -> list[tuple[str, int | None, str]]:
        if self.sheet is not None:
            return [cell for cell in self.sheet.cells if cell[2] == self.key.metric]
        suite, profile = load_suite(self.key.suite), self.bench.profile
        if self.key.suite not in self.bench.suites:
            raise Missing(f"The suite {self.key.suite!r} is not among the suites that were asked for.")
        if self.key.suite not in profile.suites or suite.TASK not in profile.tasks:
            raise Missing(f"The profile {profile.name!r} does not say how to run the suite {self.key.suite!r}.")
        return [cell for cell in suite.cells(profile) if cell[2] == self.key.metric]

    def _planned(self, place: Place) -> list[int | None]:
        lengths = {length for task, length, _ in self._cells if task == place.task}
        if not lengths and self.sheet is not None:
            raise Missing(f"The module of {self.test.run} does not say that it measures {place}.")
        if not lengths:
            raise Missing(f"The profile {self.bench.profile.name!r} does not measure {place}.")
        return sorted(lengths, key=lambda length: length or 0)

    def _length(self, key: Key, place: Place) -> int | None:
        """The length asked for; where the key names none, the only one or that of training."""
        planned = self._planned(place)
        train = None if self.sheet is not None else self.bench.profile.tasks[load_suite(key.suite).TASK].length
        wanted = key.tokens(train or 0)
        if wanted is not None and wanted not in planned:
            raise Missing(f"The profile {self.bench.profile.name!r} does not measure {place} at {wanted} tokens.")
        if wanted is not None or len(planned) == 1:
            return planned[0] if wanted is None else wanted
        if train in planned:
            return train
        raise Missing(f"{place} is measured at {len(planned)} lengths, and the claim names none of them.")

    def _values(self, name: str, places: list[Place]) -> dict[int, list[Value]]:
        """By seed, the values at all places; seeds that lack one are left out."""
        found = [self.bench.found.at(self.ids[name], place) for place in places]
        return {seed: [at[seed] for at in found] for seed in found[0] if all(seed in at for at in found)}

    def _gaps(self, values: Mapping[str, Mapping[int, Any]], places: list[Place]) -> str:
        """`gla lacks seeds 1, 2: training diverged at step 310.` for every run that lacks one; empty when none does."""
        seeds = sorted(set(self.bench.seeds).union(*values.values()))
        lacking: dict[tuple[str, str], list[int]] = {}
        for name in self.names:
            for seed in seeds:
                if seed not in values[name]:
                    lacking.setdefault((name, self._why(name, places, seed)), []).append(seed)
        said = (
            f"{name} lacks seed{'s' * (len(at) > 1)} {', '.join(map(str, at))}: {why.rstrip('.')}."
            for (name, why), at in lacking.items()
        )
        return " ".join(said)

    def _why(self, name: str, places: list[Place], seed: int) -> str:
        own = {STUDY: STUDY, "method": self.key.task}.get(self.key.suite)
        training = self.bench.found.trainings.get((self.ids[name], own or load_suite(self.key.suite).TASK, seed))
        if training is None:
            return "not made yet" if own else "not trained yet"
        if training["status"] != "ok":
            return _trouble("study" if own == STUDY else "training", training)
        suite = training.get("suites", {}).get(self.key.suite)
        if suite is None:
            return "not evaluated yet"
        if suite["status"] != "ok":
            return _trouble("evaluation", suite)
        absent = [str(at) for at in places if seed not in self.bench.found.at(self.ids[name], at)]
        return f"no finite number was measured for {', '.join(absent)}"

    def _floor(self, places: list[Place], weights: NDArray[np.float64]) -> float:
        """The most that a repetition with other data order changed the weighted sum; 0 where none measured it."""
        repeats = zip(*(self.bench.noise.get(str(place), ()) for place in places), strict=False)
        whole = [changes for changes in repeats if None not in changes]  # a sum needs each of its places
        return max((abs(float(np.dot(changes, weights))) for changes in whole), default=0.0)

    def _resolution(self, values: Mapping[str, Any], seeds: list[int], weights: NDArray[np.float64]) -> float:
        """The step between two values of the weighted sum that can be told apart."""
        scale = 100.0 if self.metric.unit in ("%", "points of 100") else 1.0
        steps = []
        for place in range(len(weights)):
            cells = [values[name][seed][place] for name in self.names for seed in seeds]
            steps.append(stats.resolution([cell.value for cell in cells], [cell.n for cell in cells], scale))
        return float(np.sqrt(np.square(np.multiply(steps, weights)).sum()))

    def _items(self, places: list[Place], seeds: list[int], sign: int) -> NDArray[np.float64] | None:
        if len(places) > 1 or self.baseline is None:
            return None
        items = self.bench.found.paired_items(self.ids[self.test.run], self.ids[self.baseline], places[0], seeds)
        return None if items is None else sign * items


def _sum(values: list[Value], weights: NDArray[np.float64]) -> float:
    return float(np.dot([cell.value for cell in values], weights))


def _trouble(step: str, record: Mapping[str, Any]) -> str:
    """`training diverged: the loss is not finite at step 310`."""
    status, reason = record["status"], str(record.get("reason") or "no reason was recorded")
    return f"{step} {reason}" if reason.startswith(status) else f"{step} {status}: {reason}"
