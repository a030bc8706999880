"""A strict reader for small YAML files: plain data with the line of every node, or one sentence saying why not.

Where YAML 1.1 guesses, this reader takes the plain reading or refuses: `1e-3` is a number, `no` and dates are text;
octal, `1_000`, `12:30`, `.nan`, tags, anchors, merge keys, repeated keys and second documents are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from harness.errors import UserError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24
MAX_NODES = 20_000

Where = tuple[str | int, ...]

NULL = {"", "~", "null", "Null", "NULL"}
BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE)
ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|0[xob][0-9a-f_]+|[0-9]+_[0-9_]*(\.[0-9_]*)?|[0-9]+(:[0-5]?[0-9])+)", re.I)
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass
class Document:
    """The data of one file, for each path in it the line and the text it was read from, and the faults found so far."""

    name: str
    value: dict[str, Any] = field(default_factory=dict)
    lines: dict[Where, int] = field(default_factory=dict)
    texts: dict[Where, str] = field(default_factory=dict)
    found: set[tuple[int, str]] = field(default_factory=set)

    def blame(self, path: Where, text: str) -> None:
        """Note a fault at a path: it is reported with the line of that path, or of its nearest ancestor."""
        while path and path not in self.lines:
            path = path[:-1]
        self.found.add((self.lines.get(path, 0), text))

    def faults(self) -> list[str]:
        """Every fault as `papers/x.yaml:31: text`, from the top of the file to its end."""
        return [f"{self.name}:{line}: {text}" if line else f"{self.name}: {text}" for line, text in sorted(self.found)]

    def refuse(self) -> None:
        """Raise UserError with every fault, one a line, if there is any."""
        if self.found:
            raise UserError("\n".join(self.faults()))


def read(path: str | Path) -> Document:
    """Read a UTF-8 file whose top level is a mapping. Raises UserError `file:line: …` for anything else."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    return parse(content, str(path))


def parse(content: bytes, name: str) -> Document:
    """Like `read`, for bytes already in memory; `name` stands before the line in messages."""
    if len(content) > MAX_BYTES:
        raise UserError(f"{name}:1: the file is larger than {MAX_BYTES // 1024} KiB; a spec is a page of text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}:{line}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    fast = getattr(yaml, "CSafeLoader", None)  # five times as fast; missing where PyYAML was built without libyaml
    if fast is not None and text.replace("\n", "").isprintable():  # the two read other characters apart
        try:
            return _Reader(name, text, fast).document()
        except (UserError, RecursionError):
            pass  # what is wrong is said in the other's words
    return _Reader(name, text).document()


def scalar(text: str) -> Any:
    """The value of plain (unquoted) text. Raises ValueError with a sentence for forms that YAML versions read apart."""
    shown = shorten(text)
    if text in NULL:
        return None
    if text in BOOL:
        return BOOL[text]
    if INT.fullmatch(text):
        if len(text) > 18:
            raise ValueError(f"the number {shown} has too many digits")
        return int(text)
    if FLOAT.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    if FLOAT.fullmatch(text) or NOT_FINITE.fullmatch(text):
        raise ValueError(f"{shown} is not a finite number")
    if ODD_NUMBER.fullmatch(text):
        raise ValueError(
            f"{shown} is not a plain decimal number; write it in decimal digits, or quote it if it is text"
        )
    return text


def shorten(text: str, most: int = 60) -> str:
    """The text, or its start and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _Reader:
    """Builds a Document from PyYAML's events, one look ahead, never recursing deeper than MAX_DEPTH."""

    def __init__(self, name: str, text: str, loader: Any = yaml.SafeLoader):
        self.doc = Document(name)
        self.source = text.splitlines()
        try:
            self.loader = loader(text)
        except yaml.YAMLError as error:
            raise self._syntax(error) from None

    def document(self) -> Document:
        self._next()  # the start of the stream
        if not isinstance(self._next(), DocumentStartEvent):
            raise self._refuse(0, "the file is empty")
        event = self._next()
        if isinstance(event, ScalarEvent) and event.value == "":
            raise self._refuse(event.start_mark.line, "the file is empty")
        if not isinstance(event, MappingStartEvent):
            raise self._refuse(event.start_mark.line, "the top level must be a mapping of keys to values")
        self.doc.value = self._build(event, ())
        self._next()  # the end of the document
        event = self._next()
        if not isinstance(event, StreamEndEvent):
            raise self._refuse(event.start_mark.line, "a second document starts here; keep one in a file")
        return self.doc

    def _next(self) -> Any:
        try:
            return self.loader.get_event()
        except yaml.YAMLError as error:
            raise self._syntax(error) from None
        except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF", which names no character
            raise self._refuse(self.loader.line, "an escape in this text names no character") from None

    def _build(self, event: Any, path: Where) -> Any:
        line = event.start_mark.line
        where = f"{show(path)}: " if path else ""
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise self._refuse(line, f"{where}anchors and aliases (& and *) are not read; write the value out")
        if event.tag is not None:
            raise self._refuse(line, f"{where}the tag {shorten(event.tag)!r} is not read; remove it")
        if len(path) > MAX_DEPTH:
            raise self._refuse(line, f"values are nested more than {MAX_DEPTH} deep")
        if len(self.doc.lines) > MAX_NODES:
            raise self._refuse(line, f"the file holds more than {MAX_NODES:,} values")
        self.doc.lines.setdefault(path, line + 1)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path, line, where)
        return self._mapping(path) if isinstance(event, MappingStartEvent) else self._sequence(path)

    def _scalar(self, event: ScalarEvent, path: Where, line: int, where: str) -> Any:
        if UNPRINTABLE.search(event.value):
            raise self._refuse(line, f"{where}the text holds a control character")
        self.doc.texts[path] = event.value
        if not event.implicit[0]:  # quoted or block text
            return event.value
        try:
            return scalar(event.value)
        except ValueError as error:
            raise self._refuse(line, f"{where}{error}") from None

    def _sequence(self, path: Where) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._build(event, (*path, len(items))))
        return items

    def _mapping(self, path: Where) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._key(event, path)
            if key in items:
                first = self.doc.lines[(*path, key)]
                raise self._refuse(event.start_mark.line, f"the key {shorten(key)!r} was given before, on line {first}")
            self.doc.lines[(*path, key)] = event.start_mark.line + 1
            items[key] = self._build(self._next(), (*path, key))
        return items

    def _key(self, event: Any, path: Where) -> str:
        line = event.start_mark.line
        if not isinstance(event, ScalarEvent) or event.anchor is not None or event.tag is not None:
            raise self._refuse(line, "a key must be plain text, with no tag, anchor, alias or nested value")
        if event.value == "<<" and event.implicit[0]:
            raise self._refuse(line, "merge keys (<<) are not read; write the keys out")
        if not event.value or "\n" in event.value or UNPRINTABLE.search(event.value):
            what = "is empty or holds a line break or a control character"
            raise self._refuse(line, f"the key {shorten(event.value)!r} {what}")
        return event.value

    def _refuse(self, line: int, text: str) -> UserError:
        return UserError(f"{self.doc.name}:{line + 1}: {text}")

    def _syntax(self, error: yaml.YAMLError) -> UserError:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        if mark is None:  # the reader met a character that YAML forbids
            return self._refuse(max(self._forbidden_line(error), 0), f"{problem}; remove it")
        shown = shorten(self.source[mark.line].strip()) if mark.line < len(self.source) else "the end of the file"
        mend = ""
        if "'\\t'" in problem:
            problem, mend = "a tab stands where YAML wants spaces", "; indent with spaces"
        elif "mapping values are not allowed" in problem:
            problem, mend = "a second colon makes this line unreadable", "; quote a text that holds ': '"
        return self._refuse(mark.line, f"column {mark.column + 1}: {problem}, in {shown!r}{mend}")

    def _forbidden_line(self, error: yaml.YAMLError) -> int:
        position = getattr(error, "position", 0) or 0
        return "\n".join(self.source)[:position].count("\n")


def show(path: Where) -> str:
    """A path as a reader would write it: `claims[2].margin`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shorten(part)}" for part in path).lstrip(".")
