"""LongBench and LongBench-E (arXiv:2308.14508): English and code tasks with real, long texts, answered greedily.

Data, prompts, budgets and metrics are those of lm-evaluation-harness 0.4.13. As in LongBench itself (THUDM/LongBench,
pred.py and eval.py), a prompt that does not fit keeps its first and last half of what fits; trec, triviaqa and samsum
are scored by the first line that is not empty; a question's score is the best over its answers; and the score of a task
is the mean over questions × 100. Otherwise: samsum may begin with a line break, which LongBench forbids.

    <task>           its metric (`qa_f1`, `rouge_l`, …), beside it at_limit, the share of answers that the budget ended,
                     and prompt_tokens, the mean length of what was read, in the model's own tokens
    <task>_e-0-4k    LongBench-E: questions whose text has up to 4,000 words; 4-8k and 8k-up likewise
    all              score: the plain mean of the tasks listed (not of -E), where every one of them was measured

A task that writes as much as the window holds, or whose data or scoring are not at hand, is a gap with its reason. One
whose data the network did not bring makes the record `failed`, after the other tasks, so that it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import field_validator

from harness import hub
from harness.closed import Count, Distinct
from harness.config import Profile, SuiteSettings
from harness.errors import UserError, suggest
from harness.metrics import Metric
from harness.room import Misfit, crowded, refuse_budget
from harness.suites import Cell, Gap, Questions, Row, Sample, ratio

TASK = "lm"
PRETRAINED = True
SHARED_ITEMS = True
DATA = "Xnhyacinth/LongBench"
NEEDS = ("rouge", "jieba", "fuzzywuzzy")  # what lm-eval's metrics of LongBench import
POINTS = "points of 100"
METRICS = {
    "qa_f1": Metric(unit=POINTS, better="higher", summary="F1 of the words of the best matching answer"),
    "rouge_l": Metric(unit=POINTS, better="higher", summary="ROUGE-L F of a summary"),
    "classification": Metric(unit=POINTS, better="higher", summary="the right class named, shared with others named"),
    "count": Metric(unit=POINTS, better="higher", summary="share of the numbers written that are the right one"),
    "retrieval": Metric(unit=POINTS, better="higher", summary="share of the numbers written that name the paragraph"),
    "code_sim": Metric(unit=POINTS, better="higher", summary="edit similarity of the first line of code"),
    "score": Metric(unit=POINTS, better="higher", summary="plain mean over tasks"),
    "at_limit": Metric(unit="share", better="none", summary="answers that the budget of tokens ended"),
    "prompt_tokens": Metric(unit="tokens", better="none", summary="mean length of the prompts, after truncation"),
}
TASKS = {  # name: metric
    "narrativeqa": "qa_f1",
    "qasper": "qa_f1",
    "multifieldqa_en": "qa_f1",
    "hotpotqa": "qa_f1",
    "2wikimqa": "qa_f1",
    "musique": "qa_f1",
    "gov_report": "rouge_l",
    "qmsum": "rouge_l",
    "multi_news": "rouge_l",
    "trec": "classification",
    "triviaqa": "qa_f1",
    "samsum": "rouge_l",
    "passage_count": "count",
    "passage_retrieval_en": "retrieval",
    "lcc": "code_sim",
    "repobench-p": "code_sim",
}
BUDGETS = {"narrativeqa": 128, "qasper": 128, "samsum": 128, "multifieldqa_en": 64, "trec": 64}  # tokens of an answer
BUDGETS |= dict.fromkeys(("gov_report", "qmsum", "multi_news"), 512) | dict.fromkeys(("lcc", "repobench-p"), 64)
BUDGETS |= {name: 32 for name in TASKS if name not in BUDGETS}  # all as in LongBench's config/dataset2maxlen.json
BY_LENGTH = {f"{name}_e": metric for name, metric in TASKS.items() if name not in ("narrativeqa", "musique", "qmsum")}
BUCKETS = {"0-4k": (0, 4000), "4-8k": (4000, 8000), "8k-up": (8000, 10**9)}  # words of the text: from, below
FIRST_LINE = ("trec", "triviaqa", "samsum")
FUNCTIONS = {  # metric: its function in lm-eval
    "qa_f1": "qa_f1_score",
    "rouge_l": "rouge_score",
    "classification": "classification_score",
    "count": "count_score",
    "retrieval": "retrieval_score",
    "code_sim": "code_sim_score",
}


class Settings(SuiteSettings):
    tasks: Distinct[str] = tuple(TASKS)
    limit: Count | None = None  # questions of each task, from its start; None takes all
    window: Count | None = None  # tokens that are read and written at most; None: as many as in training

    @field_validator("tasks")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TASKS | BY_LENGTH:
                raise ValueError(f"unknown task {name!r}{suggest(name, TASKS | BY_LENGTH)}")
        return names


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    names = profile.suite("longbench").tasks
    found = [cell for name in names for cell in task_cells(name)]
    return found + ([("all", None, "score")] if any(name in TASKS for name in names) else [])


def task_cells(name: str) -> list[Cell]:
    """The cells of one task."""
    if name in BY_LENGTH:
        return [(f"{name}-{bucket}", None, BY_LENGTH[name]) for bucket in BUCKETS]
    return [(name, None, metric) for metric in (TASKS[name], "at_limit", "prompt_tokens")]


def files(profile: Profile) -> list[Path]:
    """The local files that stand for the Hub's."""
    return hub.files(DATA, profile.hub)


def obstacles(profile: Profile, window: int | None = None) -> dict[str, str]:
    """Why tasks cannot be measured, by task, by this machine or in this window; asked before anything is computed."""
    tasks = profile.suite("longbench").tasks
    if why := hub.obstacle(DATA, profile.hub, NEEDS):
        return dict.fromkeys(tasks, why)
    found = {name: window and crowded(BUDGETS[name.removesuffix("_e")], window) for name in tasks}
    return {name: f"not applicable: {why}" for name, why in found.items() if why}


def evaluate(
    model: Any, settings: Any, profile: Profile, seed: int, device: Any
) -> Iterator[Row | Gap | Sample | Questions]:
    """Rows of every cell, samples of every task."""
    wanted, lacking = profile.suite("longbench"), obstacles(profile)
    means: dict[str, tuple[float, int, float | None]] = {}
    unreached: dict[str, str] = {}
    for name in wanted.tasks:
        if name not in lacking:
            from harness import lmeval, text

            asked = lmeval.Harness(*text.asked(model, settings, profile, wanted.window), middle=True)
            try:
                task = lmeval.load(f"longbench/{name}.yaml", hub.place(DATA, profile.hub))
                budget = int(task.config.generation_kwargs["max_gen_toks"])
                refuse_budget(budget, asked.answerer.window)
                task.config.generation_kwargs["until"] = []  # whole answers; `score` takes their first line
            except lmeval.Unreached as error:
                unreached[name] = str(error)
            except UserError as error:
                lacking[name] = str(error)
            except Misfit as error:
                lacking[name] = f"not applicable: {error}"
            else:
                for found in measure(name, asked, task, wanted.limit):
                    if isinstance(found, Row) and found.metric == TASKS.get(name):
                        means[name] = found.value, found.n, found.stderr
                    yield found
        if name in lacking:
            yield from (Gap(*cell, lacking[name]) for cell in task_cells(name))
    listed = [name for name in wanted.tasks if name in TASKS]
    if listed:
        yield mean_of_tasks(means, listed)
    if unreached:
        raise UserError(hub.unreached(unreached))


def measure(name: str, asked: Any, task: Any, limit: int | None) -> Iterator[Row | Gap | Sample | Questions]:
    """Rows and samples of one task."""
    from harness import lmeval

    samples = lmeval.run(asked, task, limit)
    yield Questions(name, None, lmeval.digest(samples))
    scores = []
    for sample, written in zip(samples, asked.generations, strict=True):
        doc = sample["doc"]
        scores.append(100 * score(name, written.output, doc["answers"], doc["all_classes"]))
        yield Sample(name, None, written.prompt, written.output, doc["answers"], scores[-1])
    if name in BY_LENGTH:
        yield from by_length(name, scores, [sample["doc"]["length"] for sample in samples])
        return
    for metric, items in (
        (TASKS[name], scores),
        ("at_limit", [float(written.at_limit) for written in asked.generations]),
        ("prompt_tokens", [float(written.prompt_tokens) for written in asked.generations]),
    ):
        yield _mean(name, metric, items)


def by_length(name: str, scores: list[float], lengths: list[int]) -> Iterator[Row | Gap]:
    """The rows of a task of LongBench-E."""
    for bucket, (least, below) in BUCKETS.items():
        items = [score for score, length in zip(scores, lengths, strict=True) if least <= length < below]
        if items:
            yield _mean(f"{name}-{bucket}", BY_LENGTH[name], items)
        else:
            yield Gap(f"{name}-{bucket}", None, BY_LENGTH[name], f"none of {len(scores)} questions is of this length")


def score(name: str, written: str, answers: list[str], classes: list[str] | None) -> float:
    """The score, from 0 to 1, of what was written, by LongBench's own rule for this task."""
    from lm_eval.tasks.longbench import metrics

    name = name.removesuffix("_e")
    if name in FIRST_LINE:
        written = written.lstrip("\n").split("\n")[0]
    rule = getattr(metrics, FUNCTIONS[TASKS[name]])
    return max((float(rule(written, answer, all_classes=classes)) for answer in answers), default=0.0)


def mean_of_tasks(means: Mapping[str, tuple[float, int, float | None]], listed: list[str]) -> Row | Gap:
    """The score over all tasks listed, each with the same weight; a gap where one was not measured."""
    missing = [name for name in listed if name not in means]
    if missing:
        why = f"a mean over tasks needs all of them; {len(missing)} of {len(listed)} lack, such as {missing[0]}"
        return Gap("all", None, "score", why)
    values, sizes, errors = zip(*(means[name] for name in listed), strict=True)
    known = [error for error in errors if error is not None]
    stderr = float(np.sqrt(np.square(known).sum()) / len(listed)) if len(known) == len(listed) else None
    return Row("all", None, "score", float(np.mean(values)), sum(sizes), stderr)


def _mean(task: str, metric: str, items: list[float]) -> Row:
    value, stderr = ratio(np.array(items), np.ones(len(items)))
    return Row(task, None, metric, value, len(items), stderr, items if METRICS[metric].better != "none" else ())
