"""Begin a paper: a spec with what is to be filled in, a module, and tests that fail until the module is written.

    python -m harness.new 2401.01234 --impl biased                     a mechanism that is trained: class Mixer
    python -m harness.new 2401.01234 --impl necessary --shape study    a controlled experiment: class Study
    python -m harness.new 2401.01234 --impl pruned --shape method      changes a trained model: class Method
    python -m harness.new 2401.01234                                   a paper on mechanisms that are there already

Nothing that exists is written over, and nothing is looked up: the texts are the reader's to write. What is not filled
in is refused by its line, and what is not written fails by its name.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from string import Template
from typing import NamedTuple

import impls
from harness.closed import NAME, slug
from harness.errors import UserError, leave
from harness.files import write_atomic

SCAFFOLD = Path(__file__).with_name("scaffold")


class Shape(NamedTuple):
    """What a module of one kind is begun with."""

    test: str  # where its test goes
    proof: str  # the command that holds once the module is written
    runs: str
    run: str
    baseline: str
    metric: str
    expect: str


SHAPES = {
    "mixer": Shape(
        test="tests/equations/{impl}.py",
        proof="python -m harness.prove {impl}",
        runs="  {impl}: {{impl: {impl}}}\n  softmax: {{impl: softmax}}",
        run="{impl}",
        baseline="softmax",
        metric="loss/test/bits_per_byte",
        expect="lower   # or higher, not_lower, not_higher, within",
    ),
    "study": Shape(
        test="tests/test_{impl}.py",
        proof="python -m pytest tests/test_{impl}.py",
        runs=(
            "  softmax: {{impl: {impl}, args: {{attention: softmax}}}}\n"
            "  linear: {{impl: {impl}, args: {{attention: linear}}}}"
        ),
        run="softmax",
        baseline="linear",
        metric="study/curve/error@64",
        expect="lower   # or higher, not_lower, not_higher, within",
    ),
    "method": Shape(
        test="tests/test_{impl}.py",
        proof="python -m pytest tests/test_{impl}.py",
        runs="  changed: {{impl: {impl}, base: softmax}}\n  softmax: {{impl: softmax}}",
        run="changed",
        baseline="softmax",
        metric="loss/test/bits_per_byte",
        expect="not_higher   # or lower, higher, not_lower, within",
    ),
}
MODULES = {"mixer": "mechanism", "study": "study", "method": "method"}  # what `impls.kind` calls each shape


def begin(arxiv: str, impl: str | None, shape: str, name: str | None) -> dict[Path, str]:
    """The files to write with their texts. Raises UserError where one of them, or the paper, is there already."""
    number = re.fullmatch(r"(?:arxiv:)?(\d{2})(\d{2}\.\d{4,5})(?:v\d+)?", arxiv.lower())
    if number is None:
        raise UserError(f"{arxiv!r} is not an arXiv id; give one such as 2504.20966")
    id = number[1] + number[2]
    if impl is not None and not re.fullmatch(f"[a-z]{NAME.partition('{')[0]}*", impl):
        raise UserError(f"--impl {impl!r} is not a name; use a-z, 0-9 and _, beginning with a letter")
    spec = Path("papers") / f"{_slug(name or (impl or f'arxiv-{id}').replace('_', '-').replace('.', '-'))}.yaml"
    there = [path for path in sorted(Path("papers").glob("*.yaml")) if f'arxiv: "{id}"' in path.read_text("utf-8")]
    if there:
        raise UserError(f"arXiv {id} is the paper {there[0]} already; edit that one")
    words = {key: part.format(impl=impl) for key, part in SHAPES[shape]._asdict().items()}
    if impl is None:
        words |= {"runs": "  changed: {impl: }   # a module of impls/\n  softmax: {impl: softmax}", "run": "changed"}
    words |= {"arxiv": id, "year": f"20{number[1]}", "slug": spec.stem, "impl": impl or ""}
    texts = {spec: _filled("paper.yaml", words)}
    if impl is not None and _is_new(impl, shape):
        texts |= {Path("impls") / f"{impl}.py": _filled(f"{shape}.py", words)}
        texts |= {Path(words["test"]): _filled(f"{shape}_test.py", words)}
    for path in texts:
        if path.exists():
            raise UserError(f"{path} is there already and is not written over; choose another name")
    return texts


def _slug(name: str) -> str:
    try:
        return slug(name)
    except ValueError as error:
        raise UserError(f"--slug: {error}") from None


def _is_new(impl: str, shape: str) -> bool:
    """Whether the module is yet to be begun. Raises UserError for one of another shape."""
    if not (Path("impls") / f"{impl}.py").exists():
        return True
    if impls.kind(impl) != MODULES[shape]:
        raise UserError(
            f"impls/{impl}.py is there already and is no {MODULES[shape]}; choose another --impl or --shape"
        )
    return False


def _filled(name: str, words: dict[str, str]) -> str:
    return Template((SCAFFOLD / f"{name}.txt").read_text(encoding="utf-8")).substitute(words)


def steps(texts: dict[Path, str], impl: str | None, shape: str) -> list[str]:
    """What is to be done next, three sentences."""
    spec, *modules = texts
    check = f"python -m harness.spec check {spec}"
    first = f"1. Fill in {spec}, the claims before any result is known. What is left says: {check}"
    if modules:
        written = " and ".join(map(str, modules))
        second = f"2. Write {written}, until this holds: {SHAPES[shape].proof.format(impl=impl)}"
    else:
        second = "2. Name the runs' modules in it; without --impl none is begun."
    return [first, second, f"3. Run it: snakemake --cores all --config papers=[{spec.stem}]"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.new", description="Begin a paper and its module.")
    parser.add_argument("arxiv", metavar="ARXIV-ID", help="such as 2504.20966")
    parser.add_argument("--impl", metavar="NAME", help="the module impls/NAME.py; one that is there is used as it is")
    parser.add_argument("--shape", choices=SHAPES, default="mixer", help="what the module is (default: %(default)s)")
    parser.add_argument("--slug", help="the spec's name; that of the module by default")
    given = parser.parse_args(arguments)
    texts = begin(given.arxiv, given.impl, given.shape, given.slug)
    for path, text in texts.items():
        write_atomic(path, text)
        print(path)
    print("", *steps(texts, given.impl, given.shape), sep="\n")
    return 0


if __name__ == "__main__":
    leave(main)
