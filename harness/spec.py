"""A paper as data: citation, runs, and claims that are fixed before their result is known.

    python -m harness.spec check [FILE…]    every fault with its line; all of papers/ by default
    python -m harness.spec schema           write the JSON schemas for editors to workflow/schemas/

Claims are described in `harness.claims`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from harness import references
from harness.claims import AnyClaim
from harness.closed import Closed, Distinct, List, Name, Plain, Some, Text, check, slug
from harness.config import Config, Overrides, Profile, load_profile, profile_model, profile_names
from harness.equations import mathml
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

    value: Plain
    source: Literal["paper", "code", "author", "assumed"]
    note: Text | None = None


class Run(Closed):
    """A mechanism with its arguments; trained once for each task and seed, whichever papers ask for it.

    Or a causal language model of the Hub, `{hf: EleutherAI/pythia-70m}`: it is measured as it is, once.
    Or a study, which is made once for each seed. Or a method, with the run whose trained models it changes as `base`.
    """

    impl: Name
    hf: Text | None = None  # an id of the Hub or a folder; `impl` is then a name made of it
    args: dict[str, Any] = Field(default_factory=dict)  # of the module's Config; "train_length" stands for that number
    base: Name | None = None  # of a method: another run of the paper
    recipe: dict[str, Overrides] = Field(default_factory=dict)  # by training task

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_model(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("hf"), str):
            return given
        name = "hf_" + re.sub(r"[^a-z0-9]+", "_", given["hf"].rstrip("/").rpartition("/")[2].lower()).strip("_")
        if given.keys() - {"hf", "impl"} or given.get("impl", name) != name:
            raise ValueError("a run that is a model of the Hub (hf) is not trained; leave impl, args and recipe away")
        return {"hf": given["hf"], "impl": name}


def _settable(tex: str) -> str:
    mathml(tex)
    return tex


class Equation(Closed):
    """One of the paper's equations, which its page shows as browsers set mathematics."""

    tex: Annotated[Text, AfterValidator(_settable)]  # LaTeX without $
    where: Text
    says: Text | None = None


class Paper(Closed):
    """One file of `papers/`. The summary, the scale gap and the deviations are Markdown, see `harness.report.prose`."""

    title: Text
    arxiv: Annotated[str, AfterValidator(_arxiv)]
    year: Annotated[int, Field(ge=1950, le=2100)]
    authors: Distinct[Text]
    venue: Text | None = None
    summary: Text
    equations: List[Equation] = ()
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
    misnamed = sorted(folder.glob("*.yml"))
    if misnamed:
        raise UserError(f"{misnamed[0]}: a paper's file ends in .yaml; rename it")
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise UserError(f"{folder}: no paper here; add one as {folder}/<slug>.yaml")
    return files


def load_files(files: Iterable[Path], profiles: Iterable[Profile] = ()) -> dict[str, Paper]:
    """The papers of these files by slug, each run built at the widths of these profiles.

    Raises UserError with every fault of every file, one a line.
    """
    papers: dict[str, Paper] = {}
    faults: list[str] = []
    for file in files:
        try:
            doc = read(file)
        except UserError as error:
            faults.append(str(error))
            continue
        paper = _paper(doc, file)
        if paper is not None:
            _check_unique(paper, file.stem, papers, doc)
            for profile in profiles if not doc.found else ():
                references.check_builds(paper, profile, doc)
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
        text = doc.texts["arxiv",]
        doc.blame(("arxiv",), f'an arXiv id must be quoted, or it is read as a number: arxiv: "{text}"')
        doc.value["arxiv"] = text
    paper = check(Paper, doc.value, doc)
    if paper is not None:
        references.check(paper, doc)
    return paper


def _check_unique(paper: Paper, stem: str, papers: dict[str, Paper], doc: Document) -> None:
    if stem in papers:
        doc.blame((), f"a paper {stem!r} was given before; a paper is known by its file's name")
    for other, known in papers.items():
        if known.arxiv == paper.arxiv:
            doc.blame(("arxiv",), f"arXiv {paper.arxiv} is already the paper {other!r}")


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
    papers = load_files(given.files or paper_files(), [load_profile(name) for name in profile_names()])
    runs, claims = sum(len(paper.runs) for paper in papers.values()), sum(len(p.claims) for p in papers.values())
    print(f"ok: {_count(len(papers), 'paper')}, {_count(runs, 'run')}, {_count(claims, 'claim')}")
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


if __name__ == "__main__":
    leave(main)
