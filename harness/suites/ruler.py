"""RULER's 13 tasks as text (`harness.ruler`), with answers decoded greedily through `harness.adapter`.

    score          RULER's string match, from 0 to 1: the share of the references in the answer; for qa one is enough
    echo           the score of an answerer who repeats the end of the prompt, as many tokens as the answer may have
    empty          the score of one who says nothing
    prompt_tokens  mean length of what the model read, answer prefix and opening token included
    budget         mean number of tokens that an answer may have; prompt and budget together fit the length
    at_limit       share of answers that the budget ended
    effective_length   the greatest of the lengths at which `all` reaches the threshold, 0 where none does;
                       effective_length_low and _high are the ends of its 95 % bootstrap interval over samples

`all` is the mean of the 13 tasks, each counting once, where a length holds all of them; else it is a gap, as is each
task that a length cannot hold. `niah_single_2-depth-20` and the like are the needles that lie in that fifth of the
text, here from 20 % to 40 %; n counts them, and elsewhere prompts. The threshold is the score of Llama2-7B at 4K that
RULER takes (arXiv:2404.06654 §4).

The prompts are the same for every run with one tokenizer: they depend on the task, the length and the suite's own
`seed`. They lie in results/data/ruler, and their SHA-256 is in the record. Text for haystacks and questions is the test
split of the corpus unless files are named: `haystack` any text, `squad` and `hotpotqa` those sets as published, each
looked for as it is named, then in the folder that stands for the Hub.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import field_validator

from harness import hub
from harness.closed import Ascending, Count, Distinct, Fraction, Seed, Text
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.ruler import TASKS, known
from harness.ruler.needles import KINDS
from harness.ruler.score import (
    BINS,
    EFFECTIVE,
    EFFECTIVE_CELLS,
    depth_bin,
    effective_rows,
    hits,
    plain_mean,
    score,
)
from harness.suites import Cell, Gap, Questions, Row, Sample, ratio

TASK = "lm"
SHARED_ITEMS = True
PRETRAINED = True
CORPUS = True
METRICS = {
    "score": Metric(unit="share", better="higher", summary="references in the answer; RULER's string match"),
    "echo": Metric(unit="share", better="none", summary="the score of repeating the end of the prompt"),
    "empty": Metric(unit="share", better="none", summary="the score of saying nothing"),
    "prompt_tokens": Metric(unit="tokens", better="none", summary="mean length of the prompts"),
    "budget": Metric(unit="tokens", better="none", summary="mean number of tokens that an answer may have"),
    "at_limit": Metric(unit="share", better="none", summary="answers that the budget ended"),
} | EFFECTIVE
EACH = ("score", "echo", "empty", "prompt_tokens", "budget", "at_limit")


class Settings(SuiteSettings):
    tasks: Distinct[str] = TASKS
    lengths: Ascending[Count] = (512, 1024, 2048, 4096)
    samples: Count = 100  # a task and length
    seed: Seed = 0
    haystack: Text | None = None
    squad: Text | None = None
    hotpotqa: Text | None = None
    threshold: Fraction = 0.856

    _known = field_validator("tasks")(known)


class Answers(NamedTuple):
    """What the model wrote, and which of it the budget ended."""

    texts: list[str]
    ended: list[bool]


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    wanted = profile.suite("ruler")
    found: list[Cell] = [
        (task, length, metric) for length in wanted.lengths for task in wanted.tasks for metric in EACH
    ]
    found += [
        (depth_task(task, part), length, "score")
        for length in wanted.lengths
        for task in wanted.tasks
        if task in KINDS
        for part in range(BINS)
    ]
    found += [("all", length, "score") for length in wanted.lengths]
    return found + EFFECTIVE_CELLS


def depth_task(task: str, part: int) -> str:
    """The name of the needles in that part of the text."""
    return f"{task}-depth-{100 * part // BINS}"


def may_lack(cell: Cell) -> bool:
    """Few needles may leave a part of the text without one."""
    return "-depth-" in cell[0]


def files(profile: Profile) -> list[Path]:
    """The files that are read in place of the corpus."""
    return list(named(profile).values())


def named(profile: Profile) -> dict[str, Path]:
    """The same by the key of the settings that names them; they must be there."""
    wanted = profile.suite("ruler")
    given = {key: getattr(wanted, key) for key in ("haystack", "squad", "hotpotqa")}
    return {key: hub.file(name, profile.hub) for key, name in given.items() if name}


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row | Gap | Sample]:
    """Rows of every cell. Raises UserError when a file or the word lists are missing."""
    from harness.ruler.material import gather, of_corpus
    from harness.text import asked

    wanted = profile.suite("ruler")
    answerer, text = asked(model, settings, profile, max(wanted.lengths))
    yield from measure(answerer, text, gather(*of_corpus(profile.data.folder), **named(profile)), wanted)


def measure(answerer: Any, text: Any, material: Any, wanted: Settings, folder: Path | None = None) -> Iterator[Any]:
    """The suite asked of an answerer (`harness.adapter`); data are kept in `folder`."""
    from harness.ruler import store

    tokenizer = fingerprint(text, material)
    found: dict[int, dict[str, list[float]]] = defaultdict(dict)
    for length in wanted.lengths:
        for task in wanted.tasks:
            if length > answerer.window:
                reason = f"the model reads at most {answerer.window} tokens"
            else:
                data = store.get(
                    task, length, wanted.samples, wanted.seed, text.encode, tokenizer, material, folder or store.FOLDER
                )
                reason = data.refused
                if reason is None:
                    yield Questions(task, length, data.digest)
                    answers = ask(answerer, text, data.samples)
                    scores = [score(task, a, s.outputs) for a, s in zip(answers.texts, data.samples, strict=True)]
                    found[length][task] = scores
                    yield from rows(task, length, data.samples, answers, scores, text)
            if reason is not None:
                yield from (Gap(task, length, metric, reason) for metric in EACH)
        yield whole(length, found[length])
    yield from effective({length: by for length, by in found.items() if set(by) == set(TASKS)}, wanted.threshold)


def fingerprint(text: Any, material: Any) -> str:
    """A digest of what the tokenizer makes of all kinds of words that the tasks use."""
    import random

    from harness.ruler import words

    rng = random.Random("fingerprint")
    made = [make(rng) for make in words.MAKERS.values() for _ in range(300)]
    probe = " ".join([*words.every(), *made, *material.words[:10_000]])
    return hashlib.sha256(str(list(text.encode(probe))).encode()).hexdigest()


def ask(answerer: Any, text: Any, samples: Sequence[Any]) -> Answers:
    """Greedy answers to the prompts, those of one budget together."""
    by_budget: dict[int, list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        by_budget[sample.budget].append(place)
    texts, ended = [""] * len(samples), [False] * len(samples)
    for budget, places in by_budget.items():
        prompts = [text.encode(samples[place].prompt) for place in places]
        written = answerer.generate(prompts, budget, lambda tokens: tokens[-1] == text.end)
        for place, tokens in zip(places, written, strict=True):
            texts[place] = text.decode([token for token in tokens if token != text.end])
            ended[place] = tokens[-1] != text.end
    return Answers(texts, ended)


def rows(
    task: str, length: int, samples: Sequence[Any], answers: Answers, scores: Sequence[float], text: Any
) -> Iterator[Row | Sample]:
    """Everything about one task and length."""
    echoed = [text.decode(text.encode(sample.prompt)[-sample.budget :]) for sample in samples]
    yield share(task, length, "score", scores)
    yield share(task, length, "echo", [score(task, e, s.outputs) for e, s in zip(echoed, samples, strict=True)])
    yield share(task, length, "empty", [score(task, "", sample.outputs) for sample in samples])
    yield share(task, length, "prompt_tokens", [sample.tokens for sample in samples])
    yield share(task, length, "budget", [sample.budget for sample in samples])
    yield share(task, length, "at_limit", [float(ended) for ended in answers.ended])
    by_part: dict[int, list[float]] = defaultdict(list)
    for sample, answer, value in zip(samples, answers.texts, scores, strict=True):
        yield Sample(task, length, sample.prompt, answer, sample.outputs, value)
        if task in KINDS:
            for depth, hit in zip(sample.depths, hits(answer, sample.outputs), strict=True):
                by_part[depth_bin(depth)].append(float(hit))
    for part in sorted(by_part):
        yield share(depth_task(task, part), length, "score", by_part[part])


def share(task: str, length: int, metric: str, values: Sequence[float]) -> Row:
    """The row of a mean over prompts or needles."""
    value, stderr = ratio(np.array(values, dtype=float), np.ones(len(values)))
    return Row(task, length, metric, value, len(values), stderr, list(values) if metric == "score" else ())


def whole(length: int, scores: dict[str, list[float]]) -> Row | Gap:
    """The mean over all tasks, or how many there are."""
    mean, n = plain_mean({task: float(np.mean(values)) for task, values in scores.items()}, TASKS)
    if mean is None:
        return Gap("all", length, "score", f"{n}/{len(TASKS)} tasks")
    errors = [share("", length, "", values).stderr or 0.0 for values in scores.values()]
    return Row("all", length, "score", mean, n, float(np.sqrt(np.square(errors).sum()) / n))


def effective(scores: dict[int, dict[str, list[float]]], threshold: float) -> list[Row] | list[Gap]:
    """The effective length over the lengths that hold every task."""
    if not scores:
        return [Gap(*cell, "no length holds every task") for cell in EFFECTIVE_CELLS]
    return effective_rows({length: list(by.values()) for length, by in scores.items()}, threshold)
