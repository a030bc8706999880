"""Make templates/vendor again: the scripts of other people that the site carries, with version, licence and SHA-256.

    python -m harness.vendor            make the files, write vendor.json, say what changed
    python -m harness.vendor --check    change nothing; an error where a file is not what vendor.json says

vega.js comes out of the installed vl-convert, which also draws the still pictures, so both are of one version. The
texts of LICENSES.txt are kept by hand from the packages' own files.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

from harness.errors import UserError, leave
from harness.files import read_json, sha256_file, write_atomic, write_json

FOLDER = Path(__file__).parent.parent / "templates" / "vendor"
BY_HAND = {"vendor.json", "LICENSES.txt"}


def records(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """What vendor.json says of each vendored file."""
    import vl_convert

    parts = {
        "vega": vl_convert.get_vega_version(),
        "vega-lite": vl_convert.get_vegalite_versions()[-1],
        "vega-embed": vl_convert.get_vega_embed_version(),
    }
    return [
        {
            "file": "vega.js",
            "name": ", ".join(parts),
            "version": ", ".join(parts.values()),
            "licence": "BSD-3-Clause; what they depend on: see LICENSES.txt",
            "source": f"vl-convert-python {importlib.metadata.version('vl-convert-python')}, javascript_bundle()",
            "sha256": sha256_file(folder / "vega.js"),
        }
    ]


def check(folder: Path = FOLDER) -> None:
    """Raises UserError for a file that is missing, is not what vendor.json says, or is not named there."""
    said = {record["file"]: record["sha256"] for record in read_json(folder / "vendor.json")}
    here = {path.name: sha256_file(path) for path in folder.iterdir() if path.name not in BY_HAND}
    faults = [f"{folder / name} is missing" for name in said.keys() - here.keys()]
    faults += [f"{folder / name} is not named in vendor.json" for name in here.keys() - said.keys()]
    faults += [
        f"{folder / name} is not the file of vendor.json" for name in said if here.get(name, said[name]) != said[name]
    ]
    if faults:
        raise UserError("\n".join(f"{fault}; make vendor makes it anew" for fault in sorted(faults)))


def make(folder: Path = FOLDER) -> list[str]:
    """Write the files and vendor.json; a sentence on each file."""
    import vl_convert

    before = {record["file"]: record for record in read_json(folder / "vendor.json")}
    write_atomic(folder / "vega.js", vl_convert.javascript_bundle())  # pyright: ignore[reportCallIssue]
    found = records(folder)
    write_json(folder / "vendor.json", found)
    return [told(before.get(record["file"]), record) for record in found]


def told(before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """`vega.js: vega, … 6.2.0, …, as it was`."""
    head = f"{now['file']}: {now['name']} {now['version']}"
    if before is None:
        return f"{head}, new"
    if before["sha256"] == now["sha256"]:
        return f"{head}, as it was"
    return f"{head}, was {before['version']}; see whether LICENSES.txt still fits"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.vendor", description="Make templates/vendor again.")
    parser.add_argument("--check", action="store_true", help="change nothing; compare the files with vendor.json")
    if parser.parse_args().check:
        check()
    else:
        print(*make(), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    leave(main)
