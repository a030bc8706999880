"""Tables as data: shown as HTML by a template, written as CSV, Markdown and LaTeX for download."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.report.numbers import Summary, digits, show

ARROWS = {"higher": "↑", "lower": "↓"}


@dataclass(frozen=True)
class Column:
    """A heading; `group` is a small line above the label, `shown` is whether the reader sees the column at first."""

    label: str
    unit: str = ""
    better: str = "none"
    numeric: bool = False
    group: str = ""
    shown: bool = True
    note: str = ""

    @property
    def arrow(self) -> str:
        return ARROWS.get(self.better, "")

    @property
    def full(self) -> str:
        """The heading where there is one line only: group, label, unit and arrow."""
        name = " ".join(part for part in (self.group, self.label) if part)
        unit = f" ({self.unit})" if self.unit else ""
        return f"{name}{unit}{f' {self.arrow}' if self.arrow else ''}"


@dataclass(frozen=True)
class Item:
    """One cell: what is shown, the number behind it, and where it leads. `why` is the reason for a missing value,
    `more` what is read on pointing at it, `mark` the verdict or answer whose sign it bears.

    Cells of a column that share one of their `letters` are not told apart.
    """

    text: str
    value: float | None = None
    pm: str = ""
    href: str = ""
    note: str = ""
    why: str = ""
    best: bool = False
    heat: float | None = None
    letters: str = ""
    more: str = ""
    mark: str = ""

    @property
    def number(self) -> str:
        """The value as pages keep it (`digits`); empty where the text says the same, but for 0, which styles want."""
        said = "" if self.value is None else str(digits(self.value)).removesuffix(".0")
        return "" if said == self.text and self.value else said


@dataclass(frozen=True)
class Row:
    """Cells from left to right; the first is the row's heading."""

    items: tuple[Item, ...]
    id: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption that says what its numbers are.

    `style` is dense, where intervals stand below their means; sentences, where rows begin with long text; or reasons,
    where those of missing cells are told in full.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    style: str = ""

    @property
    def hidden(self) -> list[int]:
        """Places of the columns that are not shown at first."""
        return [place for place, column in enumerate(self.columns) if not column.shown]


def measured(summary: Summary, places: int, *, seeds: int, href: str = "", best: bool = False) -> Item:
    """Mean ± half the interval, with a mark where seeds are missing."""
    pm = "" if summary.half is None else f"±{show(summary.half, places)}"
    note = "" if summary.seeds == seeds else f"{summary.seeds}/{seeds} seeds"
    return Item(show(summary.mean, places), summary.mean, pm=pm, href=href, note=note, best=best)


def absent(reasons: Mapping[int, str], href: str = "") -> Item:
    """A missing value: the first word of its reason is shown, all of it is kept."""
    whys = list(dict.fromkeys(reasons.values())) or ["not part of this suite here"]
    short = whys[0].partition(":")[0]
    return Item(short if len(short) <= 24 else "missing", why="; ".join(whys), href=href)


def tinted(item: Item, heat: float) -> Item:
    """The same cell with a tint between 0 (worst) and 1 (best)."""
    return replace(item, heat=round(heat, 2))


def to_csv(table: Table) -> str:
    """Comma-separated values with full precision; a missing value is empty, its reason stands in the note column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.full for column in table.columns] + ["missing"])
    for row in table.rows:
        cells = ["" if item.why else repr(item.value) if item.value is not None else item.text for item in row.items]
        writer.writerow([*cells, _reasons(table, row)])
    return out.getvalue()


def _reasons(table: Table, row: Row) -> str:
    """Why cells of the row are missing, each reason once with its columns, or with their number where they are many."""
    columns: dict[str, list[str]] = {}
    for column, item in zip(table.columns, row.items, strict=True):
        if item.why:
            columns.setdefault(item.why, []).append(column.full)
    few = {why: ", ".join(names) if len(names) < 5 else f"{len(names)} columns" for why, names in columns.items()}
    return "; ".join(f"{names}: {why}" for why, names in few.items())


def to_markdown(table: Table) -> str:
    """A pipe table; the best of a column in bold."""
    lines = [_pipe([_md(column.full) for column in table.columns])]
    lines.append(_pipe(["---:" if column.numeric else ":---" for column in table.columns]))
    for row in table.rows:
        texts = [_md(_plain(item)) for item in row.items]
        lines.append(_pipe([f"**{text}**" if item.best else text for text, item in zip(texts, row.items, strict=True)]))
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """A booktabs table; the best of a column in bold."""
    spec = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [f"% {latex_escape(table.caption)}", rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    lines.append(" & ".join(latex_escape(column.full) for column in table.columns) + r" \\")
    lines.append(r"\midrule")
    for row in table.rows:
        texts = [latex_escape(_plain(item)) for item in row.items]
        texts = [rf"\textbf{{{text}}}" if item.best else text for text, item in zip(texts, row.items, strict=True)]
        lines.append(" & ".join(texts) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _plain(item: Item) -> str:
    if item.why:
        return f"— ({item.text})"
    return " ".join(part for part in (item.text, item.pm, item.letters, f"({item.note})" if item.note else "") if part)


def _pipe(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _md(text: str) -> str:
    for mark in "\\|*_`<>[]":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "×": r"$\times$",
    "—": "---",
    "–": "--",
    "…": r"\dots{}",
}


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it stands, on one line."""
    return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
