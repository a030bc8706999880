"""Reading a built site back."""

from __future__ import annotations

import lzma
from html.parser import HTMLParser
from pathlib import Path

from harness.files import sha256_file

VOID = {"meta", "link", "input", "br", "img", "path", "circle", "rect", "line"}


class Html(HTMLParser):
    """Elements with their attributes, ids, links, the texts of cells, and scripts by type."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.cells: list[tuple[dict[str, str], str]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.ids = [given["id"] for _, given in self.elements if "id" in given]
        self.links = [v for _, given in self.elements for k, v in given.items() if k in ("href", "src")]

    def handle_starttag(self, tag, attrs):
        given = {key: value or "" for key, value in attrs}
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "th"):
            self.cells.append((given, ""))
        if tag == "script":
            self.scripts.append((given.get("type", ""), ""))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self._open:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
            return
        self.text += data
        if {"td", "th"} & set(self._open):
            self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data)


def copied(folder: Path, name: str) -> str:
    """The text of a site's copy of a result, unpacked where it is long."""
    packed = folder / "downloads" / f"{name}.xz"
    if packed.is_file():
        return lzma.decompress(packed.read_bytes()).decode()
    return (folder / "downloads" / name).read_text(encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}
