"""Tasks: the same bytes in any order, no answer in sight, scores of a perfect and of an empty answerer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from harness import tasks
from harness.errors import UserError
from harness.tasks import IGNORE, lm, recall

MODEL = {"width": 16, "layers": 1, "heads": 2, "mlp": 16}
KINDS = ["mqar-4", "needle-4", "mqar-32", "needle-1", "needle-16"]


def settings(**changes: Any) -> recall.Settings:
    given = {"model": MODEL, "length": 128, "batch": 4, "steps": 10, "lr": 1e-3, "warmup": 2, "kinds": KINDS}
    return recall.Settings.model_validate(given | changes)


def test_tasks_are_found_by_file_name():
    assert tasks.names() == ["lm", "recall", "trigger"]
    assert all(hasattr(tasks.load(name), "Settings") and hasattr(tasks.load(name), "Task") for name in tasks.names())


def test_batches_are_a_pure_function_of_seed_and_step():
    first, second = recall.Task(settings(), 3), recall.Task(settings(), 3)
    forward = [first.batch(step) for step in range(7)]
    for step in (5, 0, 6, 2, 2):
        again = second.batch(step)
        assert np.array_equal(again.inputs_BT, forward[step].inputs_BT)
        assert np.array_equal(again.targets_BT, forward[step].targets_BT)
    assert not np.array_equal(recall.Task(settings(), 4).batch(0).inputs_BT, forward[0].inputs_BT)


@pytest.mark.parametrize("step", range(len(KINDS)))
def test_a_step_holds_the_same_number_of_tokens_whatever_its_kind(step: int):
    inputs_BT, targets_BT = recall.Task(settings(), 0).batch(step)
    assert inputs_BT.size == 4 * 128
    assert inputs_BT.dtype == np.int64
    assert targets_BT.shape == inputs_BT.shape


@pytest.mark.parametrize("name", ["mqar-1", "mqar-4", "mqar-32", "needle-1", "needle-8", "needle-16"])
@pytest.mark.parametrize("stretch", [1, 2])
def test_every_query_has_one_answer_and_it_stands_beside_its_key(name: str, stretch: int):
    kind = recall.kind(name)
    length = stretch * max(kind.shortest, 128 if kind.task == "needle" else 0)
    inputs_BT, targets_BT = recall.generate(name, 8, length, np.random.default_rng(0))
    assert inputs_BT.min() >= 1
    assert inputs_BT.max() < recall.VOCAB
    queries = min(kind.pairs, recall.NEEDLE_QUERIES) if kind.task == "needle" else kind.pairs
    for inputs_T, targets_T in zip(inputs_BT, targets_BT, strict=True):
        scored = np.flatnonzero(targets_T != IGNORE)
        assert len(scored) == queries
        assert len(set(inputs_T[scored])) == queries, "a key is asked for once"
        context_T = inputs_T[: length - 2 * queries]
        assert sum(token in recall.KEYS for token in context_T) == kind.pairs
        for place in scored:
            (stored,) = np.flatnonzero(context_T == inputs_T[place])
            assert context_T[stored + 1] == targets_T[place]
            assert place == length - 1 or inputs_T[place + 1] == targets_T[place], (
                "the row itself goes on with the answer"
            )


def test_a_lookup_scores_one_and_a_constant_scores_chance():
    inputs_BT, targets_BT = recall.evaluation("mqar-32", 200, 128, seed=0)
    scored_BT = targets_BT != IGNORE
    looked_up = []
    for inputs_T, targets_T in zip(inputs_BT, targets_BT, strict=True):
        table = dict(zip(inputs_T[0:64:2], inputs_T[1:64:2], strict=True))
        looked_up += [table[key] for key in inputs_T[targets_T != IGNORE]]
    assert np.array_equal(looked_up, targets_BT[scored_BT])
    hits = [(targets_BT[scored_BT] == value).mean() for value in recall.VALUES]
    assert np.mean(hits) == pytest.approx(recall.CHANCE)
    assert max(hits) < 2 * recall.CHANCE


def test_evaluation_rows_are_none_of_training_and_differ_by_seed():
    seen = {
        recall.Task(settings(kinds=["mqar-4"]), seed).batch(step).inputs_BT.tobytes()
        for seed in (0, 1)
        for step in range(40)
    }
    asked = [recall.evaluation("mqar-4", 32, 16, seed).inputs_BT.tobytes() for seed in (0, 1)]
    assert len(seen) == 80
    assert asked[0] != asked[1]
    assert not seen & set(asked)


def test_queries_come_in_random_order_and_needles_at_random_places():
    inputs_BT, _ = recall.generate("mqar-8", 200, 32, np.random.default_rng(1))
    first = [list(row[0:16:2]).index(row[16]) for row in inputs_BT]
    assert set(first) == set(range(8))
    inputs_BT, _ = recall.generate("needle-1", 400, 128, np.random.default_rng(1))
    places = {int(np.flatnonzero(row < 64)[0]) for row in inputs_BT}
    assert places == set(range(0, 126, 2))


@pytest.mark.parametrize("name", ["mqar", "mqar-0", "mqar-64", "mqar-4.5", "needle-²", "copy-3", ""])
def test_unknown_kinds_are_refused_by_name(name: str):
    with pytest.raises(ValidationError, match="is no kind of recall"):
        settings(kinds=[name])


@pytest.mark.parametrize(("name", "length"), [("mqar-4", 14), ("mqar-4", 17), ("needle-16", 46), ("needle-1", 129)])
def test_rows_too_short_or_odd_are_refused_with_the_shortest(name: str, length: int):
    with pytest.raises(ValueError, match="needs an even length of at least"):
        recall.generate(name, 1, length, np.random.default_rng(0))


@pytest.mark.parametrize("key", ["step", "LR", "haeds"])
def test_unknown_settings_are_refused(key: str):
    with pytest.raises(ValidationError, match="Extra inputs"):
        settings(**{key: 1})


@pytest.mark.parametrize(
    "change", [{"lr": float("nan")}, {"steps": 10.5}, {"steps": "10"}, {"batch": 0}, {"clip": 0.0}]
)
def test_bad_values_are_refused(change: dict[str, Any]):
    with pytest.raises(ValidationError):
        settings(**change)


class FakeCorpus:
    """171 training tokens 0 … 170, validation tokens 100 … 172, tokens of 0 to 4 bytes."""

    def __init__(self, folder: Path):
        self.vocab, self.digest = 200, "0"
        self.token_bytes_V = np.arange(200, dtype=np.uint16) % 5
        self.manifest = {"splits": {"train": {"bytes": 342, "tokens": 171}}}

    def tokens(self, split: str) -> np.ndarray:
        return np.arange(171, dtype=np.uint16) if split == "train" else np.arange(100, 173, dtype=np.uint16)


@pytest.fixture
def lm_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., lm.Task]:
    monkeypatch.setattr("harness.data.Corpus", FakeCorpus)
    rest = {"model": MODEL, "steps": 9, "lr": 1e-3, "warmup": 0, "valid_every": 3, "valid_tokens": 10**6}
    return lambda length, batch: lm.Task(
        lm.Settings.model_validate(rest | {"length": length, "batch": batch}), 0, Path("nowhere")
    )


def test_an_epoch_visits_every_window_once_and_the_next_in_another_order(lm_task: Callable[..., lm.Task]):
    task = lm_task(length=8, batch=4)
    assert task.windows == 20
    epochs = [[task.batch(epoch * 5 + step) for step in range(5)] for epoch in range(2)]
    firsts = [[int(row[0]) for batch in epoch for row in batch.inputs_BT] for epoch in epochs]
    for order in firsts:
        assert len({first // 8 for first in order}) == 20
        assert len({first % 8 for first in order}) == 1
        assert order != sorted(order)
    assert firsts[0] != firsts[1]


def test_targets_are_the_next_tokens_of_the_same_row(lm_task: Callable[..., lm.Task]):
    task = lm_task(length=8, batch=3)
    inputs_BT, targets_BT = task.batch(11)
    assert np.array_equal(targets_BT, inputs_BT + 1)
    assert inputs_BT.shape == (3, 8)


def test_batches_that_straddle_epochs_are_whole(lm_task: Callable[..., lm.Task]):
    task = lm_task(length=8, batch=7)
    starts = [int(row[0]) // 8 for step in range(20) for row in task.batch(step).inputs_BT]
    for epoch in range(7):
        assert sorted(starts[20 * epoch : 20 * epoch + 20]) == list(range(20))


def test_held_out_windows_score_each_token_once_and_count_its_bytes(lm_task: Callable[..., lm.Task]):
    valid_N, task = np.arange(100, 173), lm_task(length=8, batch=4)
    batches = list(task.held_out())
    scored = np.concatenate([batch.targets_BT.ravel() for batch in batches])
    assert np.array_equal(scored, valid_N[1:])
    assert sum(batch.text_bytes for batch in batches) == int((valid_N[1:] % 5).sum())
    assert [batch.inputs_BT.shape for batch in batches] == [(4, 8), (4, 8), (1, 8)]


def test_held_out_text_that_does_not_fill_a_window_is_scored_too():
    batches = list(lm.windows(np.arange(11), 4, 8, np.ones(11, dtype=np.int64)))
    assert [batch.inputs_BT.shape for batch in batches] == [(2, 4), (1, 2)]
    assert sum(batch.text_bytes for batch in batches) == 10


def test_shift_leaves_rows_alone():
    inputs_BT, targets_BT = tasks.shift(np.array([[1, 2, 3], [7, 8, 9]]))
    assert inputs_BT.tolist() == [[1, 2], [7, 8]]
    assert targets_BT.tolist() == [[2, 3], [8, 9]]


def test_a_text_shorter_than_a_window_is_refused(lm_task: Callable[..., lm.Task]):
    with pytest.raises(UserError, match="171 tokens, too few for length 128"):
        lm_task(length=128, batch=1)
