"""The site: everything measured and judged, as a folder of plain pages that opens from disk.

    python -m harness.site     results/{measurements.*, runs.json, verdicts.json, data/manifest.json} -> results/site

A build is made beside the old site and takes its place at the end, so a killed build leaves the old site whole. Equal
inputs give equal bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.errors import UserError, leave
from harness.parent import alive
from harness.plan import Plan, add_options
from harness.report import (
    charts,
    crate,
    efficiency,
    export,
    history,
    literature,
    numbers,
    overview,
    palette,
    paper,
    proof,
    prose,
    raw,
    reference,
    run,
    suite,
)
from harness.report.drawing import CONFIG, Chart, Gallery
from harness.report.evidence import Evidence
from harness.report.page import VERDICTS, Page
from harness.report.reading import load
from harness.report.tables import Table

RESULTS = Path("results")
TEMPLATES = Path(__file__).parent.parent / "templates"
SITE = Path("assets/index.js")  # what is there in every site
BATCH = 50  # pages
SOURCES = (overview, paper, suite, efficiency, run, raw, literature, history, proof, reference)


def build(evidence: Evidence, out: Path) -> int:
    """Write the site to `out` in place of what is there; the number of pages."""
    if _is_of_others(out):
        raise UserError(f"{out} is there and is no site, so it is not replaced; give --out another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    recover(out)
    side = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", dir=out.parent))
    try:
        pages = write(evidence, side)
        side.chmod(0o755)
        replace(side, out)
    except OSError as error:
        if error.filename is None:  # a write that fails does not say of which file
            raise OSError(error.errno, error.strerror, str(out)) from error
        raise
    finally:
        shutil.rmtree(side, ignore_errors=True)
    return pages


def _is_of_others(out: Path) -> bool:
    """Whether something lies there that is no site; folders alone are made by Snakemake before it begins."""
    if (out / SITE).is_file() or not os.path.lexists(out):
        return False
    return not out.is_dir() or any(not path.is_dir() for path in out.rglob("*"))


def write(evidence: Evidence, out: Path) -> int:
    """Fill the empty folder `out`; the number of pages."""
    with Gallery() as gallery:
        env = environment(evidence, gallery)
        entries: list[list[str]] = []
        pages = 0
        for batch in batched(page for source in SOURCES for page in source.pages(evidence)):
            gallery.hang(chart for page in batch for chart in found(page, Chart))
            for page in batch:
                put(out / page.path, env.get_template(page.template).render(page=page, root=page.root, **page.context))
                export.tables(page, found(page, Table), out)
                entries += page.entries
            pages += len(batch)
        assets(env, entries, evidence, out)
    for id, values, items in reference.run_data(evidence):
        put(out / "data" / f"{id}.js", export.script("attest.run", id, values, items))
    export.copies(evidence, out)
    export.logs(evidence, out)
    crate.write(evidence, out)
    export.archive(out)
    return pages


def batched(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """Pages a few at a time, so that neither memory nor cores wait."""
    pages = iter(pages)
    while batch := list(islice(pages, BATCH)):
        yield batch


def environment(evidence: Evidence, gallery: Gallery) -> Environment:
    """Jinja2 with every value escaped; a name that does not exist is an error."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "count": numbers.count,
        "compact": numbers.compact,
        "duration": numbers.duration,
        "embed": export.embed,
        "prose": prose.block,
        "line": prose.line,
        "mathml": prose.equation,
    }
    env.globals |= {
        "suite_names": evidence.config.suites,
        "has_proofs": bool(evidence.proofs),
        "has_costs": efficiency.has_costs(evidence),
        "picture": gallery.picture,
        "copied": export.copied(evidence),
        "verdict_names": VERDICTS,
        "styles": evidence.styles,
    }
    return env


def found(page: Page, kind: type) -> Iterator[Any]:
    """The tables or charts that a page shows."""
    for value in page.context.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, kind):
                yield item


def assets(env: Environment, entries: list[list[str]], evidence: Evidence, out: Path) -> None:
    """Styles, scripts, vendored files, and the index that the search reads."""
    copy(TEMPLATES / "assets", out / "assets")
    copy(TEMPLATES / "vendor", out / "assets" / "vendor")
    vega = out / "assets" / "vendor" / "vega.js"
    put(vega, export.packed(vega.read_bytes()))
    put(out / "assets" / "palette.css", env.get_template("palette.css.j2").render(rules=palette.dark_rules()))
    marks = {name: (style.colour, style.shape, style.dash) for name, style in evidence.styles.items()}
    put(out / "assets" / "config.js", export.script("attest.config", CONFIG, charts.kinds(), marks))
    put(out / "assets" / "index.js", export.script("attest.index", entries))


def copy(source: Path, out: Path) -> None:
    """The files of a folder, with the errors of the system as they are (`shutil.copytree` makes text of them)."""
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        target = out / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def replace(side: Path, out: Path) -> None:
    """Move `side` to `out`; what stood there goes only when its successor is complete."""
    if not out.exists():
        side.rename(out)
        return
    old = side.with_name(f"{side.name}.old")
    out.rename(old)
    try:
        side.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old)


def recover(out: Path) -> None:
    """Tidy up after builds that were killed: put back a site that was moved aside, remove what was half made."""
    for left in sorted(out.parent.glob(f".{out.name}.*")):
        pid = left.name.removeprefix(f".{out.name}.").partition(".")[0]
        if not pid.isdigit() or alive(int(pid)):
            continue
        if left.suffix == ".old" and not out.exists():
            left.rename(out)
        else:
            shutil.rmtree(left)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.site", description="Render the site from the results.")
    add_options(parser)
    parser.add_argument("--out", type=Path, default=RESULTS / "site", help="folder to write (default: %(default)s)")
    given = parser.parse_args()
    start = time.perf_counter()
    pages = build(load(Plan.asked(given), RESULTS), given.out)
    print(
        f"{pages} pages in {time.perf_counter() - start:.1f} s: {os.path.join(given.out, 'index.html')}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    leave(main)
