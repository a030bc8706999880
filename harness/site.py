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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.errors import leave
from harness.plan import Plan
from harness.report import export, numbers, overview, palette, paper, reference, run, suite
from harness.report.charts import Chart
from harness.report.evidence import Evidence
from harness.report.page import VERDICTS, Page
from harness.report.reading import load
from harness.report.tables import Table

RESULTS = Path("results")
TEMPLATES = Path(__file__).parent.parent / "templates"
SOURCES = (overview, paper, suite, run, reference)


def build(evidence: Evidence, out: Path) -> int:
    """Write the site to `out` in place of what is there; the number of pages."""
    out.parent.mkdir(parents=True, exist_ok=True)
    recover(out)
    side = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", dir=out.parent))
    try:
        pages = write(evidence, side)
        side.chmod(0o755)
        replace(side, out)
    finally:
        shutil.rmtree(side, ignore_errors=True)
    return pages


def write(evidence: Evidence, out: Path) -> int:
    """Fill the empty folder `out`; the number of pages."""
    pages = [page for source in SOURCES for page in source.pages(evidence)]
    env = environment(evidence, {page.path for page in pages})
    for page in pages:
        put(out / page.path, env.get_template(page.template).render(page=page, root=page.root, **page.context))
    assets(env, evidence, pages, out)
    for id, values in reference.run_data(evidence):
        put(out / "data" / f"{id}.js", export.script("attest.run", id, values))
    still = env.get_template("chart.svg.j2")
    tables = [(Path(page.path).with_suffix("").as_posix(), table) for page in pages for table in found(page, Table)]
    drawn = [(Path(page.path).with_suffix("").as_posix(), chart) for page in pages for chart in found(page, Chart)]
    export.write(evidence, tables, [(name, chart.id, still.render(chart=chart)) for name, chart in drawn], out)
    export.crate(evidence, out)
    export.archive(out)
    return len(pages)


def environment(evidence: Evidence, paths: set[str]) -> Environment:
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
        "file_name": export.file_name,
    }
    env.globals |= {
        "suite_names": evidence.config.suites,
        "paths": paths,
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


def assets(env: Environment, evidence: Evidence, pages: list[Page], out: Path) -> None:
    """Styles, scripts, vendored files, and the index that the search reads."""
    shutil.copytree(TEMPLATES / "assets", out / "assets", copy_function=shutil.copyfile)
    shutil.copytree(TEMPLATES / "vendor", out / "assets" / "vendor", copy_function=shutil.copyfile)
    put(out / "assets" / "palette.css", env.get_template("palette.css.j2").render(rules=palette.dark_rules()))
    entries = [[page.kind, page.title, page.path, page.words] for page in pages]
    entries += [["claim", text, f"{page.path}#{anchor}", page.title] for page in pages for anchor, text in page.parts]
    put(out / "assets" / "index.js", export.script("attest.index", entries))


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
        if not pid.isdigit() or Path(f"/proc/{pid}").exists():
            continue
        if left.suffix == ".old" and not out.exists():
            left.rename(out)
        else:
            shutil.rmtree(left)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.site", description="Render the site from the results.")
    parser.add_argument("--profile", help="instead of the one in config/config.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", help="likewise")
    parser.add_argument("--suites", nargs="+", help="likewise")
    parser.add_argument("--out", type=Path, default=RESULTS / "site", help="folder to write (default: %(default)s)")
    given = {key: value for key, value in vars(parser.parse_args()).items() if value is not None}
    out = given.pop("out")
    start = time.perf_counter()
    pages = build(load(Plan.load(given), RESULTS), out)
    print(f"{pages} pages in {time.perf_counter() - start:.1f} s: {os.path.join(out, 'index.html')}", file=sys.stderr)


if __name__ == "__main__":
    leave(main)
