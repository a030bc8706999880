"""Zero-shot tasks that papers report, as lm-evaluation-harness 0.4.13 defines them (arXiv:2405.14782).

    lambada_openai   the last word of a passage: acc (greedy decoding gives it), perplexity of that word
    hellaswag, piqa, arc_easy, arc_challenge, winogrande   choices: acc, the option of the highest log p; acc_norm, of
                     the highest log p / characters of the option (characters, not bytes, as in lm-eval)
    wikitext         WikiText-2, whole documents: word_perplexity, byte_perplexity, bits_per_byte of the original text

Contexts that are too long lose their beginning; whole documents are scored in windows, each token once, as
`harness.adapter` says, and numbers of different windows are not comparable. n counts questions, for wikitext documents;
the standard error is over them. A task whose data are not at hand is a gap with its reason, never 0; one whose data
the network did not bring makes the record `failed`, after the other tasks, so that it is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import field_validator

from harness import hub
from harness.closed import Count, Distinct
from harness.config import Profile, SuiteSettings
from harness.errors import UserError, suggest
from harness.metrics import Metric
from harness.suites import Cell, Gap, Questions, Row, ratio

TASK = "lm"
PRETRAINED = True
SHARED_ITEMS = True
METRICS = {
    "acc": Metric(unit="share", better="higher", summary="questions answered rightly"),
    "acc_norm": Metric(unit="share", better="higher", summary="the same, with log p divided by an option's characters"),
    "perplexity": Metric(unit="1", better="lower", summary="exp of the mean cost of the last word"),
    "word_perplexity": Metric(unit="1", better="lower", summary="exp of the cost of a word of the text"),
    "byte_perplexity": Metric(unit="1", better="lower", summary="exp of the cost of a byte of the text"),
    "bits_per_byte": Metric(unit="bits/byte", better="lower", summary="cost of a byte of the text"),
}
CHOICE, TEXT = ("acc", "acc_norm"), ("word_perplexity", "byte_perplexity", "bits_per_byte")
TASKS = {  # name: (its YAML in lm-eval, data set, metrics)
    "lambada_openai": ("lambada/lambada_openai.yaml", "EleutherAI/lambada_openai", ("acc", "perplexity")),
    "hellaswag": ("hellaswag/hellaswag.yaml", "Rowan/hellaswag", CHOICE),
    "piqa": ("piqa/piqa.yaml", "baber/piqa", CHOICE),
    "arc_easy": ("arc/arc_easy.yaml", "allenai/ai2_arc", CHOICE),
    "arc_challenge": ("arc/arc_challenge.yaml", "allenai/ai2_arc", CHOICE),
    "winogrande": ("winogrande/default.yaml", "allenai/winogrande", ("acc",)),
    "wikitext": ("wikitext/wikitext.yaml", "EleutherAI/wikitext_document_level", TEXT),
}


class Settings(SuiteSettings):
    tasks: Distinct[str] = tuple(TASKS)
    limit: Count | None = None  # questions of each task, from its start; None takes all
    documents: Count | None = None  # of wikitext, likewise
    window: Count | None = None  # tokens that are read at most; None: as many as in training

    @field_validator("tasks")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TASKS:
                raise ValueError(f"unknown task {name!r}{suggest(name, TASKS)}")
        return names


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    return [(name, None, metric) for name in profile.suite("zeroshot").tasks for metric in TASKS[name][2]]


def files(profile: Profile) -> list[Path]:
    """The local files that stand for the Hub's."""
    wanted = {TASKS[name][1] for name in profile.suite("zeroshot").tasks}
    return [file for dataset in sorted(wanted) for file in hub.files(dataset, profile.hub)]


def obstacles(profile: Profile, window: int | None = None) -> dict[str, str]:
    """Why tasks cannot be measured on this machine, by task; asked before anything is computed."""
    found = {name: hub.obstacle(TASKS[name][1], profile.hub) for name in profile.suite("zeroshot").tasks}
    return {name: why for name, why in found.items() if why}


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row | Gap | Questions]:
    """Rows of every cell."""
    wanted, lacking = profile.suite("zeroshot"), obstacles(profile)
    ready, unreached = {}, {}
    for name in wanted.tasks:
        if name not in lacking:
            from harness import lmeval

            try:
                ready[name] = lmeval.load(TASKS[name][0], hub.place(TASKS[name][1], profile.hub))
            except lmeval.Unreached as error:
                unreached[name] = str(error)
            except UserError as error:
                lacking[name] = str(error)
    yield from (Gap(name, None, metric, why) for name, why in lacking.items() for metric in TASKS[name][2])
    if ready:
        from harness import adapter, lmeval, text

        asked = lmeval.Harness(*text.asked(model, settings, profile, wanted.window))
        for name, task in ready.items():
            limit = wanted.documents if name == "wikitext" else wanted.limit
            try:
                samples = lmeval.run(asked, task, limit)
                yield Questions(name, None, lmeval.digest(samples))
                yield from rows(name, samples)
            except adapter.Misfit as error:
                yield from (Gap(name, None, metric, f"not applicable: {error}") for metric in TASKS[name][2])
    if unreached:
        raise UserError(hub.unreached(unreached))


def rows(name: str, samples: list[dict[str, Any]]) -> Iterator[Row]:
    """The rows of one task, from what lm-eval logs of its questions."""
    count = np.ones(len(samples))
    for metric in TASKS[name][2]:
        if metric in CHOICE:
            items = np.array([float(sample[metric]) for sample in samples])
            yield Row(name, None, metric, *_with_n(ratio(items, count), len(items)), items=items.tolist())
        else:
            pairs = [sample[metric] if metric in TEXT else (sample[metric], 1) for sample in samples]
            logp, size = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
            mean, stderr = ratio(-logp, size)
            value, slope = (mean / math.log(2), 1 / math.log(2)) if metric == "bits_per_byte" else _exp(mean)
            yield Row(name, None, metric, value, len(samples), None if stderr is None else slope * stderr)


def _exp(nats: float) -> tuple[float, float]:
    """(exp(nats), its slope); infinite beyond the largest float."""
    with np.errstate(over="ignore"):
        value = float(np.exp(np.float64(nats)))
    return value, value


def _with_n(found: tuple[float, float | None], n: int) -> tuple[float, int, float | None]:
    return found[0], n, found[1]
