"""RULER's 13 tasks on rows of single-token words, asked of the model that was trained on `recall`.

The tasks are those of `harness.ruler.micro`; `all` is their mean, each counting once. Rows have 1, 2, 4 … times the
training length (128 tokens at least), are the same for every mechanism, and differ from seed to seed.

    score             share of the reference words in the blanks; for qa_1, qa_2 whether the blank holds one
    echo              the same for an answerer who repeats the last words before the question
    guess             the same for one who draws words of the kind that is asked for
    effective_length  the greatest of the lengths at which `all` reaches the threshold, 0 where none does;
                      effective_length_low and _high are the ends of its 95 % bootstrap interval over rows

Blanks hold what greedy decoding writes (of equal logits, the first word of the vocabulary): each blank is the most
likely word after the text, the questions and the blanks before it.

n counts rows. `niah_single_2-depth-20` and the like are the rows of that task whose fact lies in that fifth of the
text, here from 20 % to 40 %. The first 20 rows of each task and length are kept with what was written. The threshold
is the score of Llama2-7B at 4K that RULER takes (arXiv:2404.06654 §4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import field_validator

from harness.closed import Ascending, Count, Distinct, Fraction
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.ruler import ANY, SHORTEST, TASKS, known, micro
from harness.ruler.score import BINS, EFFECTIVE, EFFECTIVE_CELLS, depth_bin, effective_rows, plain_mean
from harness.suites import SAMPLES, Cell, Row, Sample, ratio
from harness.vocabulary import EVALUATION, VOCAB, choose, spelled

TASK = "recall"
METRICS = {
    "score": Metric(unit="share", better="higher", summary="reference words in the answer; RULER's string match"),
    "echo": Metric(unit="share", better="none", summary="the score of repeating the words before the question"),
    "guess": Metric(unit="share", better="none", summary="the score of drawing words of the kind that is asked for"),
} | EFFECTIVE
BY_DEPTH = ("niah_single_2", "niah_multikey_1")
STREAM = 2  # the second word of the random stream, apart from that of `recall`


class Settings(SuiteSettings):
    tokens: Count = 16_384  # a cell: so many rows of its length as fill them, four at least
    multiples: Ascending[Count] = (1, 2, 4, 8, 16)  # of the training length
    tasks: Distinct[str] = TASKS
    threshold: Fraction = 0.856

    _known = field_validator("tasks")(known)


def lengths(length: int, multiples: tuple[int, ...]) -> list[int]:
    """Row lengths under a training length."""
    return sorted({max(multiple * length, SHORTEST) for multiple in multiples})


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    wanted = profile.suite("ruler_micro")
    at = lengths(profile.task(TASK).length, wanted.multiples)
    each: list[Cell] = [
        (task, length, metric) for task in wanted.tasks for length in at for metric in ("score", "echo", "guess")
    ]
    depths: list[Cell] = [
        (depth_task(task, part), length, "score")
        for task in BY_DEPTH
        if task in wanted.tasks
        for length in at
        for part in range(BINS)
    ]
    whole: list[Cell] = [("all", length, "score") for length in at]
    return each + depths + (whole + EFFECTIVE_CELLS if set(TASKS) <= set(wanted.tasks) else [])


def depth_task(task: str, part: int) -> str:
    """The name of the rows whose fact lies in that part of the text."""
    return f"{task}-depth-{100 * part // BINS}"


def may_lack(cell: Cell) -> bool:
    """Few rows may leave a part of the text without a fact."""
    return "-depth-" in cell[0]


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row | Sample]:
    """Rows of every cell."""
    yield from measure(model, settings, profile.suite("ruler_micro"), seed, device)


def measure(model: Any, settings: Any, wanted: Settings, seed: int, device: Any) -> Iterator[Row | Sample]:
    """The suite on rows of this seed; `settings` has `length` and `model.heads` of the training."""
    found: dict[int, dict[str, np.ndarray]] = defaultdict(dict)
    for task in wanted.tasks:
        for length in lengths(settings.length, wanted.multiples):
            rng = np.random.default_rng([EVALUATION, STREAM, seed, TASKS.index(task), length])
            rows = micro.generate(task, max(4, wanted.tokens // length), length, rng, EVALUATION)
            answers_BA = decode(model, rows, settings.model.heads, device)
            score_B = scores(task, answers_BA, rows.references_BR)
            found[length][task] = score_B
            yield from samples(task, length, rows, answers_BA, score_B)
            yield shares(task, length, "score", score_B)
            yield shares(task, length, "echo", scores(task, echo(rows), rows.references_BR))
            yield shares(task, length, "guess", scores(task, guess(rows, rng), rows.references_BR))
            if task in BY_DEPTH:
                yield from by_depth(task, length, score_B, rows)
    if set(TASKS) <= set(wanted.tasks):
        yield from summary(found, wanted.threshold)


def samples(task: str, length: int, rows: micro.Rows, answers_BA: np.ndarray, score_B: np.ndarray) -> Iterator[Sample]:
    """The first rows in words, `_` for each blank; an answer without finite logits is `?`."""
    for place in range(min(SAMPLES, len(score_B))):
        words = [spelled(token) for token in rows.inputs_BT[place].tolist()]
        for blank in rows.blanks_A:
            words[blank] = "_"
        wrote = ["?" if token < 0 else spelled(token) for token in answers_BA[place].tolist()]
        wanted = [spelled(token) for token in rows.references_BR[place].tolist()]
        score = float(score_B[place]) if np.isfinite(score_B[place]) else None
        yield Sample(task, length, " ".join(words), " ".join(wrote), wanted, score)


def decode(model: Any, rows: micro.Rows, heads: int, device: Any) -> np.ndarray:
    """Answers_BA of greedy decoding; −1 where the logits are not finite."""
    from harness.scoring import rows_that_fit

    size = rows_that_fit(rows.inputs_BT.shape[1], heads, VOCAB)
    parts = np.split(rows.inputs_BT, range(size, len(rows.inputs_BT), size))
    return np.concatenate([write(model, part_BT, rows.blanks_A.tolist(), device) for part_BT in parts])


def write(model: Any, inputs_BT: np.ndarray, blanks: list[int], device: Any) -> np.ndarray:
    """The same for rows of one batch: the text is read once, then word by word up to the last blank."""
    import torch

    ids_BT = torch.from_numpy(inputs_BT).to(device)
    logits_BTV, states = model.prefill(ids_BT[:, : blanks[0]], last=1)
    logits_BV, written = logits_BTV[:, -1], []
    for place in range(blanks[0], blanks[-1] + 1):
        next_B = ids_BT[:, place]
        if place in blanks:
            next_B = logits_BV.argmax(-1)
            written.append(next_B.masked_fill(~logits_BV.isfinite().all(-1), -1))
        if place < blanks[-1]:
            logits_BV, states = model.step(next_B, states)
    return torch.stack(written, dim=1).cpu().numpy()


def scores(task: str, answers_BA: np.ndarray, references_BR: np.ndarray) -> np.ndarray:
    """Score of each row; NaN where an answer is none."""
    hit_BR = (answers_BA[:, :, None] == references_BR[:, None, :]).any(axis=1)
    score_B = hit_BR.any(axis=1).astype(float) if task in ANY else hit_BR.mean(axis=1)
    return np.where((answers_BA < 0).any(axis=1), np.nan, score_B)


def echo(rows: micro.Rows) -> np.ndarray:
    """The last words before the questions, as many as there are blanks."""
    start, blanks = rows.inputs_BT.shape[1] - rows.question, len(rows.blanks_A)
    return rows.inputs_BT[:, start - blanks : start]


def guess(rows: micro.Rows, rng: np.random.Generator) -> np.ndarray:
    """Different words of the kind that the references are of."""
    kind = rows.answers
    return kind.start + choose(rng, len(rows.inputs_BT), len(kind), len(rows.blanks_A))


def shares(task: str, length: int | None, metric: str, score_B: np.ndarray) -> Row:
    """The row of one cell, with the score of each example."""
    value, stderr = ratio(score_B, np.ones_like(score_B))
    return Row(task, length, metric, value, len(score_B), stderr, score_B.tolist() if np.isfinite(value) else ())


def by_depth(task: str, length: int, score_B: np.ndarray, rows: micro.Rows) -> Iterator[Row]:
    """A row for each fifth of the text in which any fact lies."""
    assert rows.depths_BR is not None
    part_B = np.array([depth_bin(depth) for depth in rows.depths_BR[:, 0]])
    for part in range(BINS):
        if (part_B == part).any():
            yield shares(depth_task(task, part), length, "score", score_B[part_B == part])


def summary(found: dict[int, dict[str, np.ndarray]], threshold: float) -> Iterator[Row]:
    """The mean over tasks at each length, and the effective length; neither where a score is not finite."""
    for length, by_task in found.items():
        mean, n = plain_mean({task: float(score_B.mean()) for task, score_B in by_task.items()}, TASKS)
        errors = [ratio(score_B, np.ones_like(score_B))[1] or 0.0 for score_B in by_task.values()]
        if mean is not None:
            yield Row("all", length, "score", mean, n, float(np.sqrt(np.square(errors).sum()) / n))
    if not all(np.isfinite(score_B).all() for by_task in found.values() for score_B in by_task.values()):
        return
    yield from effective_rows({n: [s.tolist() for s in by.values()] for n, by in found.items()}, threshold)
