"""What models wrote: a page a suite that asks for text, with some of its questions and what each run answered.

The records keep twenty questions of each task and length. The site shows those of each run's first seed that kept any,
in turn the first of every task and length, the second, and so on, as far as `LETTERS` go; long texts lose their middle.
Runs that were asked the same stand together, and those that answered alike under one answer; a seed that is not the
first stands beside its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import records
from harness.files import read_json
from harness.report.evidence import Evidence, Run
from harness.report.numbers import count, show
from harness.report.page import Page, words

LETTERS = 50_000  # of all pages together
CONTROLS = {n: 0x2400 + n for n in range(32) if chr(n) not in "\n\t"} | {127: 0x2421}  # as Unicode's pictures of them
BEGIN, END = 300, 900  # letters of a long text that are left: the question stands at its end

Cell = tuple[str, int | None]  # a task of the suite and its length


@dataclass(frozen=True)
class Text:
    """A text, in two parts where it was too long."""

    begin: str
    left_out: str  # how many letters
    end: str


@dataclass
class Asked:
    """One question, and who wrote what: by what was written and its score, the runs."""

    cell: Cell
    prompt: str
    wanted: list[str]
    by: dict[tuple[str, float | None], list[Run]] = field(default_factory=dict)

    @property
    def letters(self) -> int:
        texts = (self.prompt, *self.wanted, *(output for output, _ in self.by))
        return sum(min(len(text), BEGIN + END) for text in texts) + sum(
            len(r.label) for rs in self.by.values() for r in rs
        )


@dataclass(frozen=True)
class Answer:
    """What some runs wrote."""

    text: Text
    score: str
    runs: list[Run]


@dataclass(frozen=True)
class Shown:
    """One question as the page shows it; the first of its task and length bears the anchor of their cells."""

    anchor: str
    task: str
    at: str
    prompt: Text
    wanted: list[str]
    answers: list[Answer]


def pages(evidence: Evidence) -> Iterator[Page]:
    for suite in dict.fromkeys(suite for kept in evidence.written.values() for suite in kept):
        groups = gathered(evidence, suite)
        texts = [written(suite, asked, is_first) for asked, is_first in chosen(groups, share(evidence))]
        first = evidence.seeds[0]
        kept = {id: kept[suite].seed for id, kept in evidence.written.items() if suite in kept}
        context = {
            "suite": suite,
            "texts": texts,
            "total": sum(map(len, groups.values())),
            "first_seed": first,
            "later": {id: seed for id, seed in kept.items() if seed != first},  # the seeds of runs without the first's
        }
        name = words(suite).capitalize()
        yield Page(f"raw/{suite}.html", "raw.html.j2", f"What models wrote: {name}", context, "raw answers", "answers")


def anchors(evidence: Evidence) -> dict[str, set[str]]:
    """By run, the cells, as `anchor` names them, of which an answer of its is shown."""
    found: dict[str, set[str]] = {}
    for suite in dict.fromkeys(suite for kept in evidence.written.values() for suite in kept):
        for asked, _ in chosen(gathered(evidence, suite), share(evidence)):
            for run in (run for runs in asked.by.values() for run in runs):
                found.setdefault(run.id, set()).add(anchor(suite, *asked.cell))
    return found


def anchor(suite: str, task: str, length: int | None) -> str:
    return f"{suite}.{task}.{length or 0}"


def share(evidence: Evidence) -> int:
    """Letters of one suite's page."""
    return LETTERS // len({suite for kept in evidence.written.values() for suite in kept})


def gathered(evidence: Evidence, suite: str) -> dict[Cell, list[Asked]]:
    """The questions of each task and length in the order of the records, with everyone's answers."""
    found: dict[Cell, dict[str, Asked]] = {}
    for id, kept in evidence.written.items():
        for sample in samples(kept[suite].path) if suite in kept else ():
            cell = (sample.task, sample.length)
            asked = found.setdefault(cell, {}).setdefault(sample.prompt, Asked(cell, sample.prompt, sample.answers))
            runs = asked.by.setdefault((sample.output, sample.score), [])
            if evidence.runs[id] not in runs:
                runs.append(evidence.runs[id])
    return {cell: list(questions.values()) for cell, questions in found.items()}


def samples(path: Path) -> list[records.Raw]:
    """The kept answers of one suite; none where the file is damaged."""
    try:
        return [records.Raw.model_validate(sample) for sample in read_json(path)]
    except (OSError, ValueError):
        return []


def chosen(groups: Mapping[Cell, list[Asked]], letters: int) -> list[tuple[Asked, bool]]:
    """(question, whether it is the first of its task and length) as far as the letters go, in the groups' order."""
    places: dict[Cell, int] = dict.fromkeys(groups, 0)
    for cell, asked in in_turn(groups):
        letters -= asked.letters
        if letters < 0 and any(places.values()):
            break
        places[cell] += 1
    return [(asked, k == 0) for cell, questions in groups.items() for k, asked in enumerate(questions[: places[cell]])]


def in_turn(groups: Mapping[Cell, list[Asked]]) -> Iterator[tuple[Cell, Asked]]:
    """The first question of every group, then the second, and so on."""
    for k in range(max(map(len, groups.values()), default=0)):
        yield from ((cell, questions[k]) for cell, questions in groups.items() if k < len(questions))


def written(suite: str, asked: Asked, first: bool) -> Shown:
    task, length = asked.cell
    ranked = sorted(asked.by.items(), key=lambda pair: (pair[0][1] is None, -(pair[0][1] or 0), -len(pair[1])))
    return Shown(
        anchor=anchor(suite, task, length) if first else "",
        task=words(task),
        at="" if length is None else f"{count(length)} tokens",
        prompt=cut(asked.prompt),
        wanted=[
            text if len(text) <= END else f"{text[:END]} …" for text in (w.translate(CONTROLS) for w in asked.wanted)
        ],
        answers=[Answer(cut(output), "" if score is None else show(score), runs) for (output, score), runs in ranked],
    )


def cut(text: str) -> Text:
    """The text with its control characters to be seen, without its middle where it is long."""
    text = text.translate(CONTROLS)
    if len(text) <= BEGIN + END:
        return Text(text, "", "")
    return Text(text[:BEGIN], count(len(text) - BEGIN - END), text[-END:])
