"""qa_1, qa_2: a question, and documents of which one (qa_1) or several (qa_2) hold the answer.

From SQuAD (dev-v1.1 or dev-v2.0 as published) and HotpotQA (distractor setting) by path; without paths from articles
that have a title, a text and a short description that no other has:

    qa_1   which article is described as X?                    the title, with or without its "(…)"
    qa_2   of the articles described as X and as Y, which title comes first in the alphabet?

As in RULER (its `qa.py`) the documents are the question's own, then others of the same page, then any, shuffled.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import UserError
from harness.files import read_json
from harness.ruler.fill import Draft

BUDGET = 32
QUESTION = (
    "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\n"
    "The following are given documents.\n\n{context}\n\n"
    "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\n"
    "Question: {query} Answer:"
)
TITLE = "{title}\n{text}"


class Described(NamedTuple):
    """An article with a description that is not part of its text."""

    title: str
    text: str
    description: str


class Question(NamedTuple):
    """`own` and `near` are places in the documents: those that answer it, and those of the same page."""

    text: str
    answers: tuple[str, ...]
    own: tuple[int, ...]
    near: tuple[int, ...] = ()


@dataclass(frozen=True)
class Library:
    """Documents and questions about them."""

    documents: tuple[str, ...]
    questions: tuple[Question, ...]


def squad(path: Path) -> Library:
    """The answerable questions of a SQuAD file. Raises UserError when it is none."""
    try:
        pages = [page["paragraphs"] for page in read_json(path)["data"]]
        documents = sorted({paragraph["context"] for page in pages for paragraph in page})
        place = {text: n for n, text in enumerate(documents)}
        questions = [
            Question(
                asked["question"].strip(),
                tuple(dict.fromkeys(answer["text"] for answer in asked["answers"])),
                (place[paragraph["context"]],),
                tuple(sorted({place[other["context"]] for other in page} - {place[paragraph["context"]]})),
            )
            for page in pages
            for paragraph in page
            for asked in paragraph["qas"]
            if not asked.get("is_impossible", False) and asked["answers"]
        ]
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise _unreadable(path, "SQuAD's dev-v1.1 or dev-v2.0", error) from None
    return Library(tuple(documents), tuple(questions))


def hotpotqa(path: Path) -> Library:
    """The questions of a HotpotQA file, each with its own ten paragraphs. Raises UserError when it is none."""
    try:
        rows = read_json(path)
        texts = [[TITLE.format(title=title, text="".join(parts)) for title, parts in row["context"]] for row in rows]
        documents = sorted({text for row in texts for text in row})
        place = {text: n for n, text in enumerate(documents)}
        questions = [
            Question(row["question"].strip(), (row["answer"],), *_gold(row, own, place))
            for row, own in zip(rows, texts, strict=True)
        ]
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise _unreadable(path, "HotpotQA's hotpot_dev_distractor_v1", error) from None
    return Library(tuple(documents), tuple(questions))


def _gold(row: dict[str, Any], texts: Sequence[str], place: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(places of the supporting paragraphs, of the others); RULER keeps all ten, which short lengths do not hold."""
    supporting = {title for title, _ in row["supporting_facts"]}
    titles = [title for title, _ in row["context"]]
    own = [place[text] for title, text in zip(titles, texts, strict=True) if title in supporting]
    return tuple(own), tuple(place[text] for text in texts if place[text] not in own)


def _unreadable(path: Path, what: str, error: Exception) -> UserError:
    return UserError(f"{path} is not a file in the form of {what} ({type(error).__name__}: {error}); give its path")


def first_kind(articles: Sequence[Described]) -> Library:
    """qa_1 from articles."""
    documents, unique = _described(articles)
    questions = [
        Question(f"Which article is described as '{articles[n].description}'?", _names(articles[n].title), (n,))
        for n in unique
    ]
    return Library(documents, tuple(questions))


def second_kind(articles: Sequence[Described]) -> Library:
    """qa_2 from articles, each of the describable ones paired with the next but one in alphabetical order of titles."""
    documents, unique = _described(articles)
    order = sorted(unique, key=lambda n: articles[n].description)
    questions = []
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        first = min((articles[a].title, articles[b].title), key=str.casefold)
        text = (
            f"Of the articles described as '{articles[a].description}' and as '{articles[b].description}', "
            "which one's title comes first in the alphabet?"
        )
        questions.append(Question(text, _names(first), (a, b)))
    return Library(documents, tuple(questions))


def _described(articles: Sequence[Described]) -> tuple[tuple[str, ...], list[int]]:
    """(every document, the places of those whose description is theirs alone)."""
    seen = Counter(article.description for article in articles)
    documents = tuple(TITLE.format(title=article.title, text=article.text) for article in articles)
    return documents, [
        n for n, article in enumerate(articles) if article.description and seen[article.description] == 1
    ]


def _names(title: str) -> tuple[str, ...]:
    """A title, and without its disambiguation: "Mercury (planet)" and "Mercury"."""
    return tuple(dict.fromkeys((title, re.sub(r"\s*\([^)]*\)$", "", title) or title)))


def draft(library: Library, question: Question, rng: random.Random) -> Draft:
    """The question with n other documents; which ones and in which order does not depend on n but for being more."""
    near = rng.sample(question.near, len(question.near))
    taken = {*question.own, *question.near}
    far = [n for n in rng.sample(range(len(library.documents)), len(library.documents)) if n not in taken]
    others = [*near, *far]
    keys = {n: rng.random() for n in (*question.own, *others)}

    def render(n: int) -> tuple[str, tuple[float, ...]]:
        order = sorted((*question.own, *others[:n]), key=lambda place: keys[place])
        context = "\n\n".join(
            f"Document {number}:\n{library.documents[place]}" for number, place in enumerate(order, start=1)
        )
        return QUESTION.format(context=context, query=question.text), ()

    longest = max(question.answers, key=len)
    return Draft(render, question.answers, least=0, most=len(others), answer=f" {longest}")
