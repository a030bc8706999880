"""A paper as data: citation, runs, and claims that are fixed before their result is known.

    python -m harness.spec check [FILE…]    every fault with its line; all of papers/ by default
    python -m harness.spec schema           write the JSON schemas for editors to workflow/schemas/

A claim quotes the paper, says where the sentence stands, and names a test of one of five kinds.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from harness import references
from harness.closed import Closed, Distinct, List, Name, NotNegative, Positive, Slug, Some, Text, check, slug
from harness.config import Config, Overrides, profile_model
from harness.errors import UserError, leave
from harness.files import dump_json, write_atomic
from harness.yamlio import Document, read

PAPERS = Path("papers")
SCHEMAS = Path("workflow/schemas")


def _arxiv(text: str) -> str:
    if not re.fullmatch(r"[0-9]{4}\.[0-9]{4,5}", text):
        raise ValueError(f"{text!r} is not an arXiv id such as '2504.20966'")
    return text


class Tagged(Closed):
    """One value of the paper's recipe, with who says so."""

    value: bool | int | float | str
    source: Literal["paper", "code", "author", "assumed"]
    note: Text | None = None


class Run(Closed):
    """A mechanism with its arguments; trained once for each task and seed, whichever papers ask for it."""

    impl: Name
    args: dict[str, Any] = Field(
        default_factory=dict
    )  # of the mechanism's Config; "train_length" stands for that number
    recipe: dict[str, Overrides] = Field(default_factory=dict)  # by training task


class Claim(Closed):
    """What every claim has: a sentence of the paper and where it stands."""

    id: Slug
    quote: Text
    paraphrase: bool = False  # the quote gives the sense, not the words
    where: Text
    reported: Text | None = None  # the paper's own numbers, with their scale


class Compare(Claim):
    """`run` against `baseline` on one metric: higher or lower by more than `margin`, or within it."""

    kind: Literal["compare"]
    run: Name
    baseline: Name
    metric: Text
    expect: Literal["higher", "lower", "within"]
    margin: NotNegative  # in the metric's unit
    margin_from: Text


class Value(Claim):
    """A reported number, only where the scales match."""

    kind: Literal["value"]
    run: Name
    metric: Text
    value: float
    tolerance: Positive
    tolerance_from: Text


class Trend(Claim):
    """The slope of a metric per doubling of `over`: of the run, or of run minus baseline where one is given.

    Over length, `metric` is a key without `@`; over pairs its task is one without the number: `recall/mqar/accuracy`.
    """

    kind: Literal["trend"]
    run: Name
    baseline: Name | None = None
    metric: Text
    over: Literal["length", "pairs"]
    expect: Literal["rises", "falls", "flat"]
    margin: NotNegative  # in the metric's unit per doubling
    margin_from: Text


class Property(Claim):
    """A check of `harness/checks.py` that holds exactly."""

    kind: Literal["property"]
    run: Name
    check: Name


class Untested(Claim):
    """A claim that is not judged here, with the reason."""

    kind: Literal["untested"]
    reason: Text


AnyClaim = Annotated[Compare | Value | Trend | Property | Untested, Field(discriminator="kind")]


class Paper(Closed):
    """One file of `papers/`."""

    title: Text
    arxiv: Annotated[str, AfterValidator(_arxiv)]
    year: Annotated[int, Field(ge=1950, le=2100)]
    authors: Distinct[Text]
    venue: Text | None = None
    summary: Text
    recipe: dict[Name, Tagged] = Field(default_factory=dict)
    deviations: List[Text] = ()
    scale_gap: Text
    runs: Some[dict[Name, Run]]
    claims: Some[List[AnyClaim]]


def load_papers(folder: Path = PAPERS) -> dict[str, Paper]:
    """Every paper of a folder by its slug (the file's name). Raises UserError with every fault of every file."""
    return load_files(paper_files(folder))


def paper_files(folder: Path = PAPERS) -> list[Path]:
    """The papers of a folder, in the order of their names. Raises UserError when there is none."""
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    misnamed = sorted(folder.glob("*.yml")) if folder.is_dir() else []
    if misnamed:
        raise UserError(f"{misnamed[0]}: a paper's file ends in .yaml; rename it")
    if not files:
        raise UserError(f"{folder}: no paper here; add one as {folder}/<slug>.yaml")
    return files


def load_files(files: Iterable[Path]) -> dict[str, Paper]:
    """The papers of these files by slug. Raises UserError with every fault of every file, one a line."""
    papers: dict[str, Paper] = {}
    faults: list[str] = []
    arxiv: dict[str, Path] = {}
    for file in files:
        try:
            doc = read(file)
        except UserError as error:
            faults.append(str(error))
            continue
        paper = _paper(doc, file)
        if paper is not None:
            first = arxiv.setdefault(paper.arxiv, file)
            if first != file:
                doc.blame(("arxiv",), f"arXiv {paper.arxiv} is already the paper of {first}")
            papers[file.stem] = paper
        faults += doc.faults()
    if faults:
        raise UserError("\n".join(faults))
    return papers


def _paper(doc: Document, file: Path) -> Paper | None:
    try:
        slug(file.stem)
    except ValueError as error:
        doc.blame((), f"the file's name: {error}")
    if isinstance(doc.value.get("arxiv"), float):
        doc.blame(("arxiv",), f'an arXiv id must be quoted, or it is read as a number: arxiv: "{doc.texts["arxiv",]}"')
        doc.value["arxiv"] = doc.texts["arxiv",]
    paper = check(Paper, doc.value, doc)
    if paper is not None:
        references.check(paper, doc)
    return paper


def schemas() -> dict[str, str]:
    """The JSON schema of each kind of YAML file, by the schema's file name; the same text every time."""
    models = {"paper": Paper, "config": Config, "profile": profile_model()}
    return {f"{name}.schema.json": dump_json(model.model_json_schema()) for name, model in models.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.spec", description="Check papers; write their schema.")
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="report every fault of the papers, with file, line and nearest name")
    checking.add_argument("files", nargs="*", type=Path, metavar="FILE", help="papers; all of papers/ by default")
    commands.add_parser("schema", help=f"write the JSON schemas to {SCHEMAS}")
    given = parser.parse_args(arguments)
    if given.command == "schema":
        for name, text in schemas().items():
            write_atomic(SCHEMAS / name, text)
        return 0
    papers = load_files(given.files or paper_files())
    references.check_builds(papers)
    runs, claims = sum(len(paper.runs) for paper in papers.values()), sum(len(p.claims) for p in papers.values())
    print(f"ok: {_count(len(papers), 'paper')}, {_count(runs, 'run')}, {_count(claims, 'claim')}")
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


if __name__ == "__main__":
    leave(main)
