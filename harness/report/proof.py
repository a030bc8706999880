"""What was proved of each mechanism: a grid of mechanisms and properties, and every answer behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from harness.proofs.record import Proof, Result, worst
from harness.report.evidence import Evidence, reading
from harness.report.page import Page, words
from harness.report.tables import Column, Item, Row, Table

SHORT = {"not applicable": "n/a"}


def pages(evidence: Evidence) -> Iterator[Page]:
    if not evidence.proofs:
        return
    context = {
        "grid": grid(evidence.proofs, "proofs", ""),
        "asked": [(words(name), says) for name, says in asked(evidence.proofs).items()],
        "told": [(proof.impl, result) for proof in evidence.proofs for result in notable(proof)],
        "answers": answers(evidence.proofs),
        "readings": readings(evidence, [proof.impl for proof in evidence.proofs]),
    }
    yield Page("proof.html", "proof.html.j2", "Proofs", context, "properties checks equations causal gradient exact")


def asked(proofs: Iterable[Proof]) -> dict[str, str]:
    """Every property, in the order of the answers, with the sentence that it is."""
    return {result.property: proof.asked.get(result.property, "") for proof in proofs for result in proof.results}


def notable(proof: Proof) -> list[Result]:
    """The answers whose reason is to be read."""
    return [result for result in proof.results if result.status in ("failed", "exempt", "missing")]


def readings(evidence: Evidence, impls: Iterable[str]) -> dict[str, str]:
    """Of these mechanisms those without published equations, each with what its module says of them."""
    return {impl: text for impl in dict.fromkeys(impls) if (text := reading(impl))}


def grid(proofs: Iterable[Proof], id: str, root: str) -> Table:
    """A row a mechanism, a column a property: the gravest answer of its settings, with the largest number measured."""
    proofs = list(proofs)
    names = asked(proofs)
    rows = []
    for proof in proofs:
        found: dict[str, list[Result]] = {}
        for result in proof.results:
            found.setdefault(result.property, []).append(result)
        href = f"{root}proof.html#proof-{proof.impl}" if root else ""
        heading = Item(proof.impl, href=href, note="READING" if reading(proof.impl) else "")
        cells = [cell(found[name]) if name in found else Item("not asked", why="it was not asked") for name in names]
        if root:  # the page of proofs, where the row leads, says how each number was found
            cells = [replace(item, more="") for item in cells]
        rows.append(Row((heading, *cells), id="" if root else f"proof-{proof.impl}"))
    columns = (Column("Mechanism"), *(Column(words(name)) for name in names))
    caption = "What was proved of each mechanism: the gravest answer of its settings, with the number measured"
    return Table(id, caption, columns, tuple(rows), style="dense")


def cell(results: list[Result]) -> Item:
    """One property of one mechanism, over its settings."""
    result = worst(results)
    text = SHORT.get(result.status, result.status)
    if result.status == "not applicable":
        return Item(text, why=result.text)
    note = "" if result.number is None else f"{result.number:.2g}"
    return Item(text, note=note, more=spelled(result, len(results)), mark=result.status)


def spelled(result: Result, settings: int) -> str:
    """`largest change of an output: 3e-16, at most 1e-09; worst of 3 settings`."""
    number = "" if result.number is None else f": {result.number:.3g}"
    limit = "" if result.tolerance is None else f", at most {result.tolerance:.3g}"
    of = f"; the worst of {settings} settings ({result.setting})" if settings > 1 else ""
    return f"{result.text}{number}{limit}{of}"


def answers(proofs: Iterable[Proof]) -> Table:
    """Every answer, with its number, its tolerance and its reason."""
    rows = [
        Row(
            (
                Item(proof.impl),
                Item(words(result.property)),
                Item(result.setting),
                Item(result.status, mark=result.status),
                _number(result.number, "no number", "this answer is no number"),
                _number(result.tolerance, "no limit", "the number is told, not judged by a limit"),
                Item(result.text),
                Item(f"{result.seconds:.2f}", result.seconds),
            )
        )
        for proof in proofs
        for result in proof.results
    ]
    labels = ("Mechanism", "Property", "Setting", "Answer", "Measured", "At most", "What it is, or why", "Seconds")
    columns = tuple(Column(label, numeric=label in ("Measured", "At most", "Seconds")) for label in labels)
    return Table("answers", "Every answer in every setting", columns, tuple(rows))


def _number(value: float | None, short: str, why: str) -> Item:
    return Item(short, why=why) if value is None else Item(f"{value:.3g}", value)
