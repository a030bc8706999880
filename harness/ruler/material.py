"""What RULER's tasks are made from: running text for haystacks, and questions with documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.errors import UserError
from harness.files import sha256_file
from harness.ruler import questions
from harness.ruler.questions import Described, Library


@dataclass(frozen=True)
class Material:
    """Where texts and questions come from; `digest` changes when any of it does."""

    text: Callable[[], str]  # for haystacks
    qa_1: Callable[[], Library]
    qa_2: Callable[[], Library]
    digest: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The running text, a word at a time. Raises UserError when it has none."""
        words = tuple(self.text().split())
        if not words:
            raise UserError("the text for RULER's haystacks has no words; name a text file by suites.ruler.haystack")
        return words

    @cached_property
    def libraries(self) -> dict[str, Library]:
        return {}

    def library(self, task: str) -> Library:
        """The documents of qa_1 or qa_2. Raises UserError when there are no questions."""
        if task not in self.libraries:
            found = getattr(self, task)()
            if not found.questions:
                raise UserError(
                    f"{task} has no questions: the corpus has no described articles; "
                    f"name a file of {'SQuAD' if task == 'qa_1' else 'HotpotQA'} in suites.ruler"
                )
            self.libraries[task] = found
        return self.libraries[task]


def gather(
    articles: Callable[[], Sequence[Described]],
    origin: str,
    haystack: Path | None = None,
    squad: Path | None = None,
    hotpotqa: Path | None = None,
) -> Material:
    """Material from articles, whose digest is `origin`; from files where those are given.

    Raises UserError when a file is missing.
    """
    files = [path for path in (haystack, squad, hotpotqa) if path is not None]
    for path in files:
        if not path.is_file():
            raise UserError(f"{path} is missing; suites.ruler names it")
    seen: list[Sequence[Described]] = []

    def read() -> Sequence[Described]:
        if not seen:
            seen.append(articles())
        return seen[0]

    digests = [origin, *(str(path and sha256_file(path)) for path in (haystack, squad, hotpotqa))]
    return Material(
        text=lambda: haystack.read_text(encoding="utf-8") if haystack else " ".join(a.text for a in read()),
        qa_1=lambda: questions.squad(squad) if squad else questions.first_kind(read()),
        qa_2=lambda: questions.hotpotqa(hotpotqa) if hotpotqa else questions.second_kind(read()),
        digest=hashlib.sha256(json.dumps(digests).encode()).hexdigest(),
    )


def of_corpus(folder: Path, split: str = "test") -> tuple[Callable[[], list[Described]], str]:
    """(a reader of the articles of one split with their descriptions, a digest of the corpus).

    Descriptions are those of the embedded Wikipedia summaries; articles of another source have none.
    """
    from harness.data import END_ID, Corpus

    corpus = Corpus(folder)

    def read() -> list[Described]:
        from harness import sources

        described = sources.descriptions()
        tokenizer, found, article = corpus.tokenizer(), [], []
        for token in corpus.tokens(split).tolist():
            if token != END_ID:
                article.append(token)
            elif article:
                title, _, text = tokenizer.decode(article).partition("\n\n")
                found.append(Described(title, text or title, described.get(title, "")))
                article = []
        return found

    return read, corpus.digest
