"""What models wrote: a page a run with some questions of each suite that asks for text, the answers, and the scores.

The records keep twenty of each task and length. The site shows those of one seed, in turn the first of every task and
length, the second, and so on, as far as `LETTERS` for all runs together go; long texts lose their middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import records
from harness.files import read_json
from harness.report.evidence import Evidence, Run
from harness.report.numbers import count, show
from harness.report.page import Page, words

LETTERS = 800_000  # of all pages together
LEAST = 4_000  # of one page, however many there are
CONTROLS = {n: 0x2400 + n for n in range(32) if chr(n) not in "\n\t"} | {127: 0x2421}  # as Unicode's pictures of them
BEGIN, END = 300, 900  # letters of a long text that are left: the question stands at its end


@dataclass(frozen=True)
class Text:
    """A text, in two parts where it was too long."""

    begin: str
    left_out: str  # how many letters
    end: str


@dataclass(frozen=True)
class Shown:
    """One question as the page shows it; the first of its task and length bears the anchor of their cells."""

    place: int  # of its task and length in the record
    anchor: str
    task: str
    at: str
    prompt: Text
    output: Text
    answers: list[str]
    score: str


def pages(evidence: Evidence) -> Iterator[Page]:
    for id, paths in evidence.written.items():
        run, texts = evidence.runs[id], shown(evidence, evidence.runs[id])
        context = {
            "run": run,
            "suites": texts,
            "seed": next(iter(paths.values())).parent.name.removeprefix("seed"),
            "shown": sum(map(len, texts.values())),
            "total": sum(len(samples(path)) for path in paths.values()),
        }
        yield Page(f"raw/{run.id}.html", "raw.html.j2", f"What {run.label} wrote", context, "raw answers", "answers")


def shown(evidence: Evidence, run: Run) -> dict[str, list[Shown]]:
    """By suite, the answers that the run's page shows."""
    found = {suite: chosen(samples(path)) for suite, path in evidence.written.get(run.id, {}).items()}
    most = max(LEAST, LETTERS // max(1, len(evidence.written)))
    texts: dict[str, list[Shown]] = {suite: [] for suite in found}
    spent = 0
    for suite, sample, place, first in in_turn(found):
        spent += size(sample)
        if spent > most and any(texts.values()):
            break
        texts[suite].append(written(suite, sample, place, first))
    return {suite: sorted(own, key=lambda text: (text.place, not text.anchor)) for suite, own in texts.items() if own}


def anchors(evidence: Evidence, run: Run) -> set[str]:
    """The cells, as `anchor` names them, of which an answer is shown."""
    return {text.anchor for texts in shown(evidence, run).values() for text in texts if text.anchor}


def anchor(suite: str, task: str, length: int | None) -> str:
    return f"{suite}.{task}.{length or 0}"


def samples(path: Path) -> list[records.Raw]:
    """The kept answers of one suite; none where the file is damaged."""
    try:
        return [records.Raw.model_validate(sample) for sample in read_json(path)]
    except (OSError, ValueError):
        return []


def chosen(found: Iterable[records.Raw]) -> list[list[records.Raw]]:
    """The answers of each task and length, in the order of the record."""
    groups: dict[tuple[str, int | None], list[records.Raw]] = {}
    for sample in found:
        groups.setdefault((sample.task, sample.length), []).append(sample)
    return list(groups.values())


def in_turn(found: Mapping[str, list[list[records.Raw]]]) -> Iterator[tuple[str, records.Raw, int, bool]]:
    """(suite, answer, its group, whether it is the first there): the first of every group, then the second, ..."""
    depth = max((len(group) for groups in found.values() for group in groups), default=0)
    for k in range(depth):
        for suite, groups in found.items():
            yield from ((suite, group[k], place, k == 0) for place, group in enumerate(groups) if k < len(group))


def size(sample: records.Raw) -> int:
    return sum(min(len(text), BEGIN + END) for text in (sample.prompt, sample.output, *sample.answers))


def written(suite: str, sample: records.Raw, place: int, first: bool) -> Shown:
    return Shown(
        place=place,
        anchor=anchor(suite, sample.task, sample.length) if first else "",
        task=words(sample.task),
        at="" if sample.length is None else f"{count(sample.length)} tokens",
        prompt=cut(sample.prompt),
        output=cut(sample.output),
        answers=[
            answer if len(answer) <= END else f"{answer[:END]} …"
            for answer in (each.translate(CONTROLS) for each in sample.answers)
        ],
        score="" if sample.score is None else show(sample.score),
    )


def cut(text: str) -> Text:
    """The text with its control characters to be seen, without its middle where it is long."""
    text = text.translate(CONTROLS)
    if len(text) <= BEGIN + END:
        return Text(text, "", "")
    return Text(text[:BEGIN], count(len(text) - BEGIN - END), text[-END:])
