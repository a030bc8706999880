"""Make templates/vendor again: the scripts of other people that the site carries, with version, licence and SHA-256.

    python -m harness.vendor

vega.js comes out of the installed vl-convert, which also draws the still pictures, so both are of one version. The
texts of LICENSES.txt are kept by hand from the packages' own files.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from harness.errors import leave
from harness.files import sha256_file, write_atomic, write_json

FOLDER = Path(__file__).parent.parent / "templates" / "vendor"


def records() -> list[dict[str, Any]]:
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
            "sha256": sha256_file(FOLDER / "vega.js"),
        }
    ]


def main() -> None:
    import vl_convert

    write_atomic(FOLDER / "vega.js", vl_convert.javascript_bundle())  # pyright: ignore[reportCallIssue]
    write_json(FOLDER / "vendor.json", records())


if __name__ == "__main__":
    leave(main)
