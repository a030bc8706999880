"""Hostile files: specs, arguments of mechanisms, profiles, the config and its overrides, tables of results, prose."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

import impls
from harness import config, measured, metrics, records, spec, yamlio
from harness.equations import mathml
from harness.report import prose
from harness.runs import resolve
from tests.hostile import NUMBERS, bounded, plain, refused, value, word

CLASSES = {"mechanism": "Mixer", "study": "Study", "method": "Method"}


@cache
def shipped(pattern: str) -> list[dict[str, Any]]:
    """The files of the project, as data."""
    return [yamlio.read(path).value for path in sorted(Path().glob(pattern))]


def paths(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, inner in items:
        yield from paths(inner, (*at, key))


@st.composite
def changed(draw: st.DrawFn, pattern: str) -> Any:
    """A file of the project with one to three things set, dropped, added or renamed somewhere in it."""
    tree = copy.deepcopy(draw(st.sampled_from(shipped(pattern))))
    for _ in range(draw(st.integers(1, 3))):
        *at, last = draw(st.sampled_from([path for path in paths(tree) if path]))
        inner = tree
        for key in at:
            inner = inner[key]
        how = draw(st.sampled_from(["set", "set", "drop", "add", "rename"]))
        if how == "set" or isinstance(inner, list):
            inner[last] = draw(value)
        elif how == "add":
            inner[draw(word)] = draw(value)
        else:
            kept = inner.pop(last)
            inner.update({draw(word): kept} if how == "rename" else {})
        if not tree:
            break
    return tree


def yaml(text: str) -> None:
    said = refused(lambda: yamlio.parse(text.encode("utf-8", "surrogatepass"), "x.yaml"))
    assert "\n" not in said
    assert len(said) < 250


def paper(folder: Path, tree: Any) -> None:
    file = folder / "paper.yaml"
    file.write_text(json.dumps(tree), encoding="utf-8")
    smoke = config.load_profile("smoke")

    def load() -> None:
        for run in resolve(spec.load_files([file], [smoke]), smoke):
            records.folder(run, "lm", 0)  # raises for a name that leads elsewhere

    said = refused(load, (folder,))
    assert all(line.startswith(f"{file}:") and len(line) < 1000 for line in said.splitlines()), said


@cache
def fields() -> dict[str, list[str]]:
    """By module, the arguments of its Config; of those that have any."""
    names = [*impls.names(), *impls.studies(), *impls.methods()]
    made = {name: getattr(importlib.import_module(f"impls.{name}"), CLASSES[impls.kind(name) or ""]) for name in names}
    known = {name: [field.name for field in dataclasses.fields(each.Config)] for name, each in made.items()}
    return {name: found for name, found in known.items() if found}


@st.composite
def runs(draw: st.DrawFn) -> Any:
    """A run of any module with one or two hostile arguments."""
    name = draw(st.sampled_from(sorted(fields())))
    chosen = draw(st.lists(st.sampled_from(fields()[name]), min_size=1, max_size=2, unique=True))
    args = {field: draw(st.sampled_from(NUMBERS) | value) for field in chosen}
    return {"impl": name, "args": args} | ({"base": "softmax"} if impls.kind(name) == "method" else {})


def arguments(folder: Path, run: Any) -> None:
    tree = copy.deepcopy(shipped("papers/gla.yaml")[0])
    claim = {"id": "a", "quote": "q", "where": "w", "kind": "compare", "run": "tried", "baseline": "softmax"}
    claim |= {"metric": "study/x/y@1", "expect": "lower", "margin": 1, "margin_from": "ours"}  # asks a study's cells
    paper(folder, {**tree, "runs": {"tried": run, "softmax": {"impl": "softmax"}}, "claims": [claim]})


def profile(folder: Path, tree: Any) -> None:
    (folder / "tried.yaml").write_text(json.dumps(tree), encoding="utf-8")

    def load() -> None:
        found = config.load_profile("tried", folder)
        for name in metrics.suite_names():
            suite = metrics.load_suite(name)
            if name in found.suites and suite.TASK in found.tasks:
                suite.cells(found)

    refused(load, (folder,))


def configuration(folder: Path, tree: Any) -> None:
    file = folder / "config.yaml"
    file.write_text(json.dumps(tree), encoding="utf-8")
    refused(lambda: config.load_config(file), (folder,))


def overrides(given: Any) -> None:
    refused(lambda: config.load_config(overrides=given))


COLUMNS = [*sorted(measured.COLUMNS), "impl"]
GOOD = {"run": "a-1", "seed": 0, "suite": "loss", "task": "t", "length": 64, "metric": "m", "value": 0.5, "n": 3}
rows = st.lists(st.dictionaries(st.sampled_from(COLUMNS), plain, max_size=3).map(lambda row: GOOD | row), max_size=4)
tables = st.tuples(st.sampled_from(["csv", "parquet"]), rows | st.binary(max_size=60), value | rows, rows | st.binary())


def measurements(folder: Path, case: tuple[str, Any, Any, Any]) -> None:
    file, listed, scores = write_tables(folder, case)
    refused(lambda: measured.read(file, listed, scores), (folder,))


def write_tables(folder: Path, case: tuple[str, Any, Any, Any]) -> tuple[Path, Path, Path]:
    """Tables as aggregation writes them but for some cells, or bytes."""
    kind, table, trainings, items = case
    file, listed, scores = folder / f"m.{kind}", folder / "runs.json", folder / "items.parquet"
    if isinstance(table, bytes):
        file.write_bytes(table)
    elif kind == "csv":
        lines = [COLUMNS, *([row.get(name, "") for name in COLUMNS] for row in table)]
        text = "\n".join(",".join(map(str, line)) for line in lines)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    else:
        _parquet(file, table)
    listed.write_text(json.dumps(trainings), encoding="utf-8")
    scores.write_bytes(items) if isinstance(items, bytes) else _parquet(scores, items)
    return file, listed, scores


def _parquet(file: Path, table: list[dict[str, Any]]) -> None:
    try:
        parquet.write_table(pa.Table.from_pylist([{**row, "items": [0.5, 1.0]} for row in table]), file)
    except (pa.ArrowException, UnicodeError, OverflowError):  # such rows fit no table
        file.write_bytes(b"PAR1")


PARTS = [
    "\\frac",
    "{",
    "}",
    "^",
    "_",
    "\\left(",
    "\\right)",
    "\\begin{",
    "matrix",
    "\\end{",
    "x",
    "&",
    "\\\\",
    "\\sqrt",
    "[",
]
PARTS += ["]", "(", ")", "<script>", "*", "`", "\n", "- ", "> ", "1. ", "\\text", "$", "](javascript:x)", "![", "&lt;"]
LONG = [(part * 5000)[:5000] for part in (*PARTS, "[a](", "\\begin{matrix}", "a_", "x^", "{x}", "*a ", "![")]
texts = st.lists(st.sampled_from(PARTS) | st.text(st.characters(codec="utf-8"), max_size=3), max_size=60).map("".join)


def written(text: str) -> None:
    """Text of a spec on a page: set, or refused, and nothing in it that runs."""
    with bounded():
        for html in (prose.block(text), prose.line(text)):
            assert "<script" not in html
            assert 'href="javascript' not in html
        with suppress(ValueError):  # a sentence on what cannot be set
            assert "<script" not in mathml(text).partition("<annotation")[0]
