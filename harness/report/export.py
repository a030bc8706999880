"""What can be taken away: measurements, verdicts, tables, references, pictures, and the whole site as one file."""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import re
import shutil
import unicodedata
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.report.evidence import Evidence, Run
from harness.report.page import Page
from harness.report.tables import Table, latex_escape, to_csv, to_latex, to_markdown
from harness.studies import STUDY

LOG_LINES = 400  # of each log; its end says how it went
COPIED = ("measurements.csv", "measurements.parquet", "measurements.json", "runs.json", "verdicts.json")
LONG = 300_000  # bytes beyond which a copy is packed
LARGE = 2**24  # bytes beyond which packing is quick
FILES = {  # tables that are files of their own, and as what
    "index-papers": ("csv",),
    "index-leaderboard": ("csv", "md", "tex"),
    "claims-claims": ("csv",),
}
WRITERS = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def bibtex(slug: str, paper: Any) -> str:
    """A BibTeX entry; its key is the first author's family name, the year, and the slug's first word."""
    family = unicodedata.normalize("NFKD", paper.authors[0].split()[-1])
    key = re.sub(r"[^a-z]", "", family.lower()) or "anon"
    fields = {
        "title": "{" + latex_escape(paper.title) + "}",
        "author": " and ".join(latex_escape(author) for author in paper.authors),
        "year": str(paper.year),
        "journal": latex_escape(paper.venue or f"arXiv preprint arXiv:{paper.arxiv}"),
        "eprint": paper.arxiv,
        "archivePrefix": "arXiv",
    }
    body = ",\n".join(f"  {name:<13} = {{{value}}}" for name, value in fields.items())
    return f"@article{{{key}{paper.year}{slug.partition('-')[0]},\n{body}\n}}\n"


def copied(evidence: Evidence) -> dict[str, str]:
    """Where each copy lies in the site's folder; one that is long is packed, and its name says so.

    Parquet never is: its columns are compressed already, and no reader looks into a packed one.
    """
    return {
        name: f"downloads/{name}" + (".xz" if path.suffix != ".parquet" and is_long(path) else "")
        for name in COPIED
        for path in [evidence.results / name]
    }


def is_long(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > LONG


def copies(evidence: Evidence, out: Path) -> None:
    """Put what was measured and judged, and the references, into `out/downloads`."""
    folder = out / "downloads"
    folder.mkdir(exist_ok=True)
    for name in COPIED:
        if (evidence.results / name).exists():
            pack(evidence.results / name, out / copied(evidence)[name])
    entries = [bibtex(slug, paper) for slug, paper in evidence.papers.items()]
    (folder / "bibliography.bib").write_text("\n".join(entries), encoding="utf-8", newline="\n")


def pack(source: Path, target: Path) -> None:
    """A copy, packed where its name says so: what is large quickly rather than well."""
    if target.suffix != ".xz":
        shutil.copyfile(source, target)
        return
    strength = 6 if source.stat().st_size < LARGE else 1
    with source.open("rb") as content, lzma.open(target, "wb", preset=strength) as file:
        shutil.copyfileobj(content, file, 2**20)


def log_file(evidence: Evidence, run: Run, task: str, seed: int) -> Path:
    """Where the workflow keeps the log of one training, study or method."""
    step = "pretrained" if run.hf else {"mechanism": "train", "method": "apply"}.get(run.kind, run.kind)
    return evidence.results / "log" / step / f"{run.id}.{task}.seed{seed}.log"


def log_path(run: Run, task: str, seed: int) -> str:
    """Where its end lies in the site's folder."""
    return f"logs/{run.id}.{task}.seed{seed}.txt"


def logs(evidence: Evidence, out: Path) -> None:
    """Put the end of every training's log beside the pages."""
    for run in evidence.runs.values():
        for task in [STUDY] if run.kind == STUDY else dict.fromkeys(evidence.tasks.values()):
            for seed in evidence.seeds:
                source = log_file(evidence, run, task, seed)
                if source.is_file():
                    lines = source.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
                    target = out / log_path(run, task, seed)
                    target.parent.mkdir(exist_ok=True)
                    target.write_text("\n".join(lines[-LOG_LINES:]) + "\n", encoding="utf-8", newline="\n")


def tables(page: Page, found: Iterable[Table], out: Path) -> None:
    """Write the tables of `FILES`; the others are copied as CSV, Markdown and LaTeX from their pages."""
    folder = out / "downloads" / "tables"
    for table in found:
        for ending in FILES.get(f"{page.stem}-{table.id}", ()):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{page.stem}-{table.id}.{ending}"
            path.write_text(WRITERS[ending](table), encoding="utf-8", newline="\n")


def script(call: str, *values: Any) -> str:
    """A script that hands data to the page: `attestRun("id", {…});`, readable from disk where fetch is not."""
    return f"{call}({', '.join(embed(value) for value in values)});\n"


def packed(content: bytes) -> str:
    """A script that hands a longer one to the page, which unpacks and runs it: half the size from disk as over HTTP."""
    return script("attest.packed", base64.b64encode(gzip.compress(content, mtime=0)).decode())


def embed(value: Any) -> str:
    """Strict JSON that no HTML parser can end early."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def archive(out: Path) -> None:
    """Write `downloads/site.zip`, the whole folder without itself, with the same bytes for the same files."""
    paths = sorted(path for path in out.rglob("*") if path.is_file())
    with zipfile.ZipFile(out / "downloads" / "site.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in paths:
            entry = zipfile.ZipInfo(f"attest/{path.relative_to(out).as_posix()}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            file.writestr(entry, path.read_bytes())
