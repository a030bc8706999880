"""The page of one paper: each claim from its quotation to its verdict, then all that stands behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.claims import tests
from harness.report import charts, export, own, proof, suite, tuning
from harness.report.evidence import DONE, Evidence, Run, docstring, trouble
from harness.report.numbers import decimals, show
from harness.report.overview import test_words
from harness.report.page import Page, cell_of, largest, legend, run_item, seconds, time_item, unit, verdict_counts
from harness.report.tables import Column, Item, Row, Table
from harness.report.ties import within_budget
from harness.studies import STUDY

STRIP = 260  # width of the picture of one claim, in CSS pixels
EDGE = 8
LABEL = 56  # room for the number at an end


@dataclass(frozen=True)
class Strip:
    """One claim on a line: zero, the margin, the interval, the mean, and a dot for each seed. Places in pixels."""

    width: int
    zero: float
    zone: tuple[float, float]  # where the claim would hold
    bar: tuple[float, float]
    mean: float
    dots: list[float]
    low: str
    high: str


@dataclass(frozen=True)
class Asked:
    """One test of a claim with what was found, in the words and numbers the page shows."""

    test: Any
    words: str
    record: dict[str, Any]
    unit: str
    run: Run | None
    baseline: Run | None
    anchor: str  # of the measurement on the runs' pages
    seeds: list[tuple[int, str, str, str]]  # seed, run, baseline, difference
    difference: str
    interval: str
    strip: Strip | None


@dataclass(frozen=True)
class Answer:
    """One claim with its verdict and its tests, one or several."""

    claim: Any
    record: dict[str, Any]
    asked: list[Asked]
    scale_gap: str


def pages(evidence: Evidence) -> Iterator[Page]:
    for slug, paper in evidence.papers.items():
        answers = [answer(evidence, slug, claim, given) for claim, given in claims(evidence, slug)]
        runs = [evidence.runs[id] for id in dict.fromkeys(evidence.names[slug].values())]
        impls = list(dict.fromkeys(run.impl for run in runs))
        context = {
            "evidence": evidence,
            "slug": slug,
            "paper": paper,
            "venue": venue(paper),
            "counts": verdict_counts(evidence.verdicts[slug]),
            "answers": answers,
            "runs": run_table(evidence, slug),
            "names": [(name, evidence.runs[id]) for name, id in evidence.names[slug].items()],
            "own": own.tables(evidence, slug),
            "charts": [*own.pictures(evidence, slug), *pictures(evidence, paper, runs)],
            "legend": legend(evidence, runs),
            "rates": tuning.table(evidence, runs),
            "rate_charts": tuning.pictures(evidence, runs),
            "equations": {run.impl: docstring(run.impl) for run in runs},
            "proofs": proof.grid([p for p in evidence.proofs if p.impl in impls], "paper-proofs", "../"),
            "readings": proof.readings(evidence, impls),
            "recipe": recipe(paper),
            "bibtex": export.bibtex(slug, paper),
            "profile": evidence.profile.name,
            "troubles": troubles(evidence, runs),
        }
        parts = [(f"claim-{claim.id}", claim.quote) for claim in paper.claims]
        text = " ".join([paper.arxiv, *paper.authors, paper.summary, *(run.label for run in runs)])
        yield Page(f"papers/{slug}.html", "paper.html.j2", paper.title, context, text, "paper", parts)


def venue(paper: Any) -> str:
    """Where and when it appeared, with one year."""
    if not paper.venue:
        return str(paper.year)
    return paper.venue if re.search(r"\b\d{4}\b", paper.venue) else f"{paper.venue}, {paper.year}"


def claims(evidence: Evidence, slug: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    yield from zip(evidence.papers[slug].claims, evidence.verdicts[slug], strict=True)


def answer(evidence: Evidence, slug: str, claim: Any, record: dict[str, Any]) -> Answer:
    parts = record.get("parts") or [record]
    found = [asked(evidence, slug, test, part) for (_, test), part in zip(tests(claim), parts, strict=False)]
    return Answer(claim, record, found, record.get("scale_gap") or evidence.papers[slug].scale_gap)


def asked(evidence: Evidence, slug: str, test: Any, record: dict[str, Any]) -> Asked:
    names = evidence.names[slug]
    run, baseline = (evidence.runs.get(names.get(getattr(test, role, None) or "", "")) for role in ("run", "baseline"))
    cell = cell_of(evidence, test.metric, record.get("length")) if getattr(test, "metric", None) else None
    ours, theirs = (list(record.get(key) or []) for key in ("run_values", "baseline_values"))
    differences = [a - b for a, b in zip(ours, theirs or [getattr(test, "value", 0.0)] * len(ours), strict=True)]
    low, high, mean = record.get("low"), record.get("high"), record.get("difference")
    places = decimals([*ours, *theirs])
    rows = [
        (
            seed,
            show(ours[k], places),
            show(theirs[k], places) if theirs else "",
            show(differences[k], places, sign=True),
        )
        for k, seed in enumerate(record.get("seeds") or [])
    ]
    return Asked(
        test=test,
        words=test_words(evidence, slug, test),
        record=record,
        unit=unit(record.get("unit") or ""),
        run=run,
        baseline=baseline,
        anchor=cell.id if cell else "",
        seeds=rows,
        difference="" if mean is None else show(mean, places, sign=True),
        interval=""
        if low is None or high is None
        else f"{show(low, places, sign=True)} to {show(high, places, sign=True)}",
        strip=strip(record, differences, mean, low, high),
    )


def strip(
    record: dict[str, Any], dots: list[float], mean: float | None, low: float | None, high: float | None
) -> Strip | None:
    """The picture of a test that rests on differences with an interval; None for others."""
    if mean is None or low is None or high is None:
        return None
    margin = record.get("margin") or 0.0
    span = [0.0, *dots, mean, -margin, margin]
    reach = max(map(abs, span)) or 1.0
    left, right = max(min(*span, low), -2.5 * reach), min(max(*span, high), 2.5 * reach)
    left, right = left - 0.04 * (right - left), right + 0.04 * (right - left)

    def x(value: float) -> float:
        return round(EDGE + (STRIP - 2 * EDGE) * (min(max(value, left), right) - left) / (right - left), 1)

    ends = {
        "higher": (margin, right),
        "lower": (left, -margin),
        "not_lower": (-margin, right),
        "not_higher": (left, margin),
    }
    same = {"rises": "higher", "falls": "lower"}
    start, end = ends.get(same.get(record.get("expect") or "", record.get("expect") or ""), (-margin, margin))
    places = decimals(span)
    return Strip(
        width=STRIP,
        zero=x(0),
        zone=(x(start), x(end)),
        bar=(x(low), x(high)),
        mean=x(mean),
        dots=[x(dot) for dot in dots],
        low=show(left, places, sign=True) if x(0) > LABEL else "",
        high=show(right, places, sign=True) if x(0) < STRIP - LABEL else "",
    )


def pictures(evidence: Evidence, paper: Any, runs: list[Run]) -> list[charts.Chart]:
    """Learning curves of each training task, then what the charts of the suites that claims measure show of these runs.

    What else was measured of them stands on the pages of runs and suites.
    """
    metrics = (getattr(test, "metric", None) for claim in paper.claims for _, test in tests(claim))
    asked = {text.partition("/")[0] for text in metrics if text}
    found = [chart for task in evidence.profile.tasks if (chart := curves(evidence, runs, task))]
    for name in (name for name in evidence.config.suites if name in asked):
        found += suite.pictures(evidence, name, runs, brief=True)
    return found


def curves(evidence: Evidence, runs: list[Run], task: str) -> charts.Chart | None:
    """Training loss against step of every run and seed that has a curve."""
    found: list[charts.Point] = []
    for run in runs:
        for (trained, seed), record in sorted(run.records.items()):
            if trained == task:
                curve = record["curve"]  # step, loss, step, loss, …: lists would take ten times the memory
                found += [(run.label, seed, *point) for point in zip(curve[::2], curve[1::2], strict=True)]
    if not found:
        return None
    return charts.curves(f"curve-{task}", f"Learning curve, {task}", found, evidence.styles, y="training loss, nats")


def run_table(evidence: Evidence, slug: str) -> Table:
    """What the paper's runs are and what they cost."""
    rows = []
    for name, id in evidence.names[slug].items():
        run, base = evidence.runs[id], evidence.papers[slug].runs[name].base
        if run.kind == STUDY:
            continue
        records = [record for record in run.records.values() if record["status"] == DONE]
        args = ", ".join(f"{key}={value}" for key, value in run.args.items()) or "the defaults"
        args += f"; changes {base}" if base else ""
        items = [Item(name, href=f"../{run.page}"), run_item(run, "../"), Item(args)]
        items.append(largest(run, "parameters"))
        items.append(
            Item("yes" if within_budget(run) else "no") if records else Item("not run", why="nothing was trained")
        )
        items += [largest(run, key) for key in ("tokens", "flops_per_token", "state_bytes")]
        rows.append(Row((*items, time_item(seconds(run)))))
    columns = [Column(label) for label in ("Name here", "Mechanism", "Arguments")]
    columns += [Column("Parameters", numeric=True), Column("Within budget")]
    columns += [
        Column(label, numeric=True) for label in ("Tokens", "FLOPs a token", "State, bytes", "Training time, s")
    ]
    caption = f"Runs of this paper under the profile {evidence.profile.name}; the largest of the training tasks"
    return Table("runs", caption, tuple(columns), tuple(rows))


def recipe(paper: Any) -> Table:
    """The paper's recipe, each value with who says so."""
    columns = tuple(Column(name) for name in ("Setting", "Value", "Source", "Note"))
    rows = [
        Row((Item(name), Item(str(tagged.value)), Item(tagged.source), Item(tagged.note or "")))
        for name, tagged in paper.recipe.items()
    ]
    return Table("recipe", "The paper's recipe, each value with who says so", columns, tuple(rows))


def troubles(evidence: Evidence, runs: list[Run]) -> list[tuple[Run, str, int, str]]:
    """(run, training task, seed, reason) of every training that did not end well."""
    return [
        (run, task, seed, trouble(record))
        for run in runs
        for (task, seed), record in sorted(run.records.items())
        if record["status"] != DONE
    ]
