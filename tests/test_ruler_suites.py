"""The suites `ruler` and `ruler_micro` against answerers whose scores are known."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness import vocabulary as words
from harness.adapter import Answerer, over
from harness.config import Data, Profile
from harness.data import train_tokenizer
from harness.model import Shape, build
from harness.ruler import ANY, SHORTEST, TASKS, micro
from harness.suites import Gap, Questions, Row, Sample, name, ruler, ruler_micro
from harness.tasks import IGNORE, recall
from harness.text import CorpusText
from tests.ruler_texts import articles, small

SETTINGS: Any = SimpleNamespace(length=128, model=SimpleNamespace(heads=2))
WANTED = ruler_micro.Settings(tokens=1024, multiples=(1, 4))
PROFILE = Profile(
    name="test",
    data=Data(),
    tasks={"recall": SimpleNamespace(length=128)},
    suites={"ruler_micro": WANTED, "ruler": ruler.Settings(lengths=(256, 1024), samples=3)},
)


def rows(task: str, count: int = 6, length: int = 128, part: int = words.EVALUATION, seed: int = 0) -> micro.Rows:
    return micro.generate(task, count, length, np.random.default_rng(seed), part)


class Reader(nn.Module):
    """Reads all that it was shown again for each word, and counts its readings."""

    readings = 0

    def prefill(self, ids_BT: torch.Tensor, last: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        self.readings += 1
        return self(ids_BT)[:, -last:], ids_BT

    def step(self, ids_B: torch.Tensor, shown_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits_BTV, shown_BT = self.prefill(torch.cat([shown_BT, ids_B[:, None]], dim=1), last=1)
        return logits_BTV[:, -1], shown_BT


class Table(Reader):
    """Knows rows by heart: writes these answers into the row whose start it is shown."""

    def __init__(self):
        super().__init__()
        self.known: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def learn(self, made: micro.Rows, answers_BA: np.ndarray) -> micro.Rows:
        self.start = made.inputs_BT.shape[1] - made.question
        for row, answers in zip(made.inputs_BT, answers_BA, strict=True):
            self.known[row[: self.start].tobytes()] = made.blanks_A, answers
        return made

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids_BT.shape, words.VOCAB)
        for n, row in enumerate(ids_BT.numpy()):
            for blank, answer in zip(*self.known[row[: self.start].tobytes()], strict=True):
                if blank <= len(row):
                    logits[n, blank - 1, answer] = 1.0
        return logits


@pytest.mark.parametrize("length", [128, 130, 257, 2048])
@pytest.mark.parametrize("task", TASKS)
def test_a_micro_row_has_its_length_and_its_answers_stand_at_the_blanks(task: str, length: int):
    for part in (words.TRAINING, words.EVALUATION):
        made = rows(task, 3, length, part)
        assert made.inputs_BT.shape == (3, length)
        assert made.inputs_BT.min() >= 0
        assert made.inputs_BT.max() < words.VOCAB
        scored = np.flatnonzero((made.targets_BT != IGNORE).all(axis=0))
        assert np.array_equal(scored, made.blanks_A - 1)
        assert np.array_equal(made.targets_BT[:, scored], made.inputs_BT[:, made.blanks_A])
        assert ((made.targets_BT != IGNORE).sum(axis=1) == len(scored)).all()
        assert (ruler_micro.scores(task, made.inputs_BT[:, made.blanks_A], made.references_BR) == 1).all()
        assert all(reference in made.answers for reference in made.references_BR.ravel())


@pytest.mark.parametrize("task", micro.FACTS)
def test_what_is_asked_for_stands_behind_its_key_once(task: str):
    kind = micro.FACTS[task]
    for made in (rows(task, length=128), rows(task, length=512)):
        text = made.inputs_BT[:, : made.inputs_BT.shape[1] - made.question]
        asked = made.inputs_BT[:, made.inputs_BT.shape[1] - made.question :]
        for row, question, references in zip(text, asked, made.references_BR, strict=True):
            key = question[: kind.key]
            at = [n for n in range(len(row)) if np.array_equal(row[n : n + kind.key], key)]
            assert len(at) == kind.each, "the key stands there once for each of its values"
            step = 2 if kind.spread else 1
            first = [row[n + kind.key * step] for n in at]
            assert set(first) <= set(references)
            assert all((k + v) % 8 == 0 for k, v in zip([key[-1]] * len(first), first, strict=True)), "a test's pairing"


def test_no_pairing_of_a_test_is_ever_seen_in_training():
    for task in ("niah_single_2", "niah_multikey_2", "niah_multivalue", "niah_multikey_3"):
        made = rows(task, 40, 128, words.TRAINING)
        for row in made.inputs_BT:
            pairs = itertools.pairwise(row)
            assert not [1 for k, v in pairs if k in words.KEYS and v in words.VALUES and (k + v) % 8 == 0]
    every = {words.TRAINING: 56, words.EVALUATION: 8}
    for part, count in every.items():
        for key in words.KEYS:
            values = words.paired(np.full(count, key), np.arange(count), part)
            assert len(set(values)) == count
            assert set(values) <= set(words.VALUES)
            assert all(((key + value) % 8 == 0) == (part == words.EVALUATION) for value in values)


def test_counts_of_micro_lists_have_one_answer():
    for length in (128, 300, 1024, 2048):
        for row, references in zip(*_lists("cwe", length), strict=True):
            ranked = Counter(row).most_common()
            assert {word for word, _ in ranked[: micro.LISTED]} == set(references)
            assert ranked[micro.LISTED - 1][1] >= 3 * ranked[micro.LISTED][1]
        for row, references in zip(*_lists("fwe", length), strict=True):
            ranked = Counter(row).most_common()
            assert ranked[0][0] == words.DOTS
            assert [word for word, _ in ranked[1:4]] == list(references)
            assert ranked[3][1] > ranked[4][1]


def _lists(task: str, length: int) -> tuple[list[list[int]], list[list[int]]]:
    made = rows(task, 4, length)
    return made.inputs_BT[:, : length - made.question].tolist(), made.references_BR.tolist()


def test_chains_and_bridges_lead_to_the_answer():
    made = rows("vt", 10)
    for row in made.inputs_BT:
        asked = row[-6:]
        text = row[:-6]
        for a, b in itertools.pairwise(asked):
            (place,) = [n for n in range(len(text) - 1) if text[n] == a and text[n + 1] == b]
            assert place % 2 == 0
    for row in rows("qa_2", 10).inputs_BT:
        follows = {int(a): int(b) for a, b in zip(row[:-2:2], row[1:-2:2], strict=True) if a in words.KEYS}
        assert follows[follows[int(row[-2])]] == row[-1]


def test_short_rows_are_refused():
    with pytest.raises(ValueError, match=f"at least {SHORTEST} tokens"):
        rows("vt", 1, 127)
    with pytest.raises(ValueError, match="too short for the kind ruler"):
        recall.Settings.model_validate(
            {
                "model": {"width": 16, "layers": 1, "heads": 2, "mlp": 16},
                "length": 64,
                "batch": 4,
                "steps": 1,
                "lr": 1e-3,
            }
            | {"warmup": 0, "kinds": ["ruler"]}
        )


@pytest.mark.parametrize("suite", [ruler, ruler_micro])
def test_unknown_tasks_are_refused_with_the_nearest(suite):
    with pytest.raises(ValueError, match="'niah_singel_1' is no task of RULER; did you mean 'niah_single_1'"):
        suite.Settings(tasks=("niah_singel_1",))


def test_training_deals_every_task_its_turn_and_is_a_pure_function_of_seed_and_step():
    settings = recall.Settings.model_validate(
        {"model": {"width": 16, "layers": 1, "heads": 2, "mlp": 16}, "length": 128, "batch": 4, "steps": 99, "lr": 1e-3}
        | {"warmup": 0, "kinds": ["ruler", "mqar-4", "ruler"]}
    )
    task, again = recall.Task(settings, 1), recall.Task(settings, 1)
    for step in (5, 0, 3, 2):
        assert np.array_equal(task.batch(step).inputs_BT, again.batch(step).inputs_BT)
        assert task.batch(step).inputs_BT.size == 4 * 128
    marked = sum(int((task.batch(step).inputs_BT == words.COMMON).sum()) for step in range(0, 39, 3))
    marked += sum(int((task.batch(step).inputs_BT == words.COMMON).sum()) for step in range(2, 39, 3))
    assert marked == 26 * 4 // 13, "26 steps of four rows hold each task eight times"
    kinds = [batch.inputs_BT.shape for batch in task.held_out()]
    assert kinds == [(4, 128), (32, 16)]


@pytest.mark.parametrize("task", TASKS)
def test_decoding_is_greedy_and_reads_the_text_once(task: str):
    made = rows(task)
    right = made.inputs_BT[:, made.blanks_A]
    wrong = np.where(right == words.VALUES.start, words.VALUES.start + 1, words.VALUES.start)
    for answers in (right, wrong):
        model = Table()
        model.learn(made, answers)
        assert np.array_equal(ruler_micro.decode(model, made, 2, "cpu"), answers)
        assert model.readings == 1 + made.blanks_A[-1] - made.blanks_A[0]


@pytest.mark.parametrize("task", TASKS)
def test_blanks_hold_what_a_step_by_step_decoder_writes(task: str):
    """An untrained model, whose answers depend on the blanks before them."""
    shape = Shape(impl="softmax", args={"heads": 2}, vocab=words.VOCAB, width=16, layers=1, mlp=16, conv=4)
    model = build(shape, 0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        made = rows(task, 8)
        fast = ruler_micro.decode(model, made, 2, "cpu")
        slow_BT = torch.from_numpy(made.inputs_BT.copy())
        for blank in made.blanks_A:
            slow_BT[:, blank] = model(slow_BT[:, :blank])[:, -1].argmax(-1)
    assert np.array_equal(fast, slow_BT[:, made.blanks_A].numpy())


def test_micro_cells_are_what_is_measured_and_an_answerer_who_knows_scores_one(monkeypatch):
    oracle, generate = Table(), micro.generate

    def told(*given: Any) -> micro.Rows:
        made = generate(*given)
        return oracle.learn(made, made.inputs_BT[:, made.blanks_A])

    monkeypatch.setattr(micro, "generate", told)
    everything = list(ruler_micro.measure(oracle, SETTINGS, WANTED, 0, "cpu"))
    found = [row for row in everything if isinstance(row, Row)]
    names = [name(row.cell) for row in found]
    wanted = [name(cell) for cell in ruler_micro.cells(PROFILE)]
    assert len(set(names)) == len(names)
    assert set(names) <= set(wanted)
    assert all(ruler_micro.may_lack(cell) for cell in ruler_micro.cells(PROFILE) if name(cell) not in names)
    by = {name(row.cell): row for row in found}
    assert all(row.value == 1 for row in found if row.metric == "score")
    ends = ("all/effective_length", "all/effective_length_low", "all/effective_length_high")
    assert [(by[end].value, by[end].stderr) for end in ends] == [(512, None)] * 3
    kept = [row for row in everything if isinstance(row, Sample)]
    kinds = Counter((sample.task, sample.length) for sample in kept)
    assert kinds == {(task, row.length): min(20, row.n) for task in TASKS for row in found if row.cell[0] == task}
    for sample in kept:
        spelled = sample.prompt.split()
        assert len(spelled) == sample.length
        assert spelled.count("_") == len(sample.output.split())
        assert set(sample.answers) >= set(sample.output.split()) or "qa" in sample.task
        assert sample.score == 1
    assert by["all/score@128"].n == 13
    assert by["niah_single_2/score@128"].n == 8
    assert len(by["niah_single_2/score@128"].items) == 8
    for task in TASKS:
        assert by[f"{task}/echo@128"].value < 0.5
        assert by[f"{task}/guess@128"].value < 0.5
    again = list(ruler_micro.measure(oracle, SETTINGS, ruler_micro.Settings(tokens=1024, multiples=(4,)), 0, "cpu"))
    again = [row for row in again if isinstance(row, Row)]
    assert {name(row.cell): row.value for row in again if "512" in name(row.cell)}.items() <= {
        key: row.value for key, row in by.items()
    }.items(), "other lengths change nothing"


def test_a_constant_answerer_scores_no_more_than_a_guesser():
    class Constant(Reader):
        def forward(self, ids_BT):
            return torch.zeros(*ids_BT.shape, words.VOCAB)

    found = ruler_micro.measure(Constant(), SETTINGS, WANTED, 0, "cpu")
    scores = [row.value for row in found if isinstance(row, Row) and row.metric == "score"]
    assert set(scores) == {0}, "of equal words it says the first, the dots"


def test_logits_that_are_no_numbers_are_no_score():
    class Broken(Reader):
        def forward(self, ids_BT):
            return torch.full((*ids_BT.shape, words.VOCAB), math.nan)

    made = rows("niah_multiquery")
    assert np.isnan(
        ruler_micro.scores("niah_multiquery", ruler_micro.decode(Broken(), made, 2, "cpu"), made.references_BR)
    ).all()
    found = {128: {task: np.array([1.0, 1.0]) for task in TASKS}, 512: {task: np.array([1.0, 0.9]) for task in TASKS}}
    assert [row.value for row in ruler_micro.summary(found, 0.9)] == [1.0, pytest.approx(0.95), 512, 512, 512]
    doubtful = found | {512: {task: np.array([1.0] * 9 + [0.1]) for task in TASKS}}
    ends = [row.value for row in ruler_micro.summary(doubtful, 0.9) if row.metric.startswith("effective_length")]
    assert ends == [512, 128, 512], "an interval need not lie around its value evenly"
    found[128]["vt"] = np.array([1.0, math.nan])
    assert not any(row.metric == "effective_length" for row in ruler_micro.summary(found, 0.9))


@pytest.mark.parametrize(
    ("task", "answers", "references", "expected"),
    [
        ("niah_single_1", [70], [70], 1.0),
        ("niah_single_1", [71], [70], 0.0),
        ("niah_multivalue", [70, 70, 71, 99], [70, 71, 72, 73], 0.5),
        ("vt", [5, 4, 3, 2, 1], [1, 2, 3, 4, 5], 1.0),
        ("qa_1", [71], [70, 71], 1.0),
        ("qa_2", [72], [71], 0.0),
    ],
)
def test_micro_scores_known_by_hand(task, answers, references, expected):
    assert ruler_micro.scores(task, np.array([answers]), np.array([references])).tolist() == [expected]


class Scripted:
    """An answerer that looks its answer up; `says` maps a sample's outputs to text."""

    def __init__(self, text, says, window=4096):
        self.text, self.says, self.window = text, says, window

    def generate(self, prompts, budget, stopped):
        answers = [self.text.encode(self.says(self.text.decode(prompt)), opened=False)[:budget] for prompt in prompts]
        return [[*answer, self.text.end][:budget] for answer in answers]


@pytest.fixture(scope="module")
def text() -> CorpusText:
    return CorpusText(train_tokenizer([article.text for article in articles()], Data(vocab=600)))


def asked(text, says, folder, window=4096, **changes) -> dict[str, Any]:
    wanted = ruler.Settings.model_validate({"lengths": (256, 2048), "samples": 3} | changes)
    found = list(ruler.measure(Scripted(text, says, window), text, small(), wanted, folder))
    profile = PROFILE.model_copy(update={"suites": {"ruler": wanted}})
    cells = ruler.cells(profile)
    measured = [row.cell for row in found if isinstance(row, Row | Gap)]
    assert len(set(measured)) == len(measured)
    assert set(measured) <= set(cells)
    assert all(ruler.may_lack(cell) for cell in set(cells) - set(measured))
    return {name(row.cell): row for row in found if isinstance(row, Row | Gap)} | {
        "samples": [row for row in found if isinstance(row, Sample)]
    }


def test_silence_scores_nothing_and_gaps_say_why(text, tmp_path):
    by = asked(text, lambda prompt: "", tmp_path)
    assert isinstance(by["cwe/score@256"], Gap)
    assert "256 tokens cannot hold cwe: it needs at least" in by["cwe/score@256"].reason
    assert isinstance(by["all/score@256"], Gap)
    assert by["all/score@256"].reason.endswith("/13 tasks")
    for task in TASKS:
        assert by[f"{task}/score@2048"].value == by[f"{task}/empty@2048"].value == 0
        assert by[f"{task}/at_limit@2048"].value == 0
        assert by[f"{task}/echo@2048"].value <= 1
        assert by[f"{task}/prompt_tokens@2048"].value + by[f"{task}/budget@2048"].value <= 2048
    assert by["all/score@2048"].value == 0
    assert by["all/effective_length"].value == 0


def test_whoever_reads_everything_out_finds_the_needles(text, tmp_path):
    import re

    def reads(prompt: str) -> str:
        facts = re.findall(r"for (\S+) is: (\S+)\.", prompt)
        return " ".join(value for key, value in facts if key in prompt.rpartition("\nWhat ")[2])

    by = asked(text, reads, tmp_path, tasks=("niah_single_2", "niah_multiquery"), lengths=(2048,))
    assert by["niah_single_2/score@2048"].value == 1
    assert by["niah_multiquery/score@2048"].value == 1
    depths = [row for key, row in by.items() if key.startswith("niah_multiquery-depth-")]
    assert sum(row.n for row in depths) == 3 * 4
    assert all(row.value == 1 for row in depths)
    assert isinstance(by["all/score@2048"], Gap)
    assert by["all/score@2048"].reason == "2/13 tasks"
    assert isinstance(by["all/effective_length"], Gap)
    sample = by["samples"][0]
    assert sample.prompt.endswith("mentioned in the provided text is")
    assert sample.score == 1
    limited = asked(text, lambda prompt: "the " * 500, tmp_path, tasks=("niah_single_2",), lengths=(2048,))
    assert limited["niah_single_2/at_limit@2048"].value == 1


def test_lengths_beyond_the_window_are_gaps(text, tmp_path):
    by = asked(text, lambda prompt: "", tmp_path, window=256, tasks=("niah_single_1",))
    assert by["niah_single_1/score@2048"].reason == "the model reads at most 256 tokens"


def test_a_real_model_answers_all_of_a_length(text, tmp_path):
    shape = Shape(impl="softmax", args={"heads": 2}, vocab=600, width=16, layers=1, mlp=16, conv=4)
    wanted = ruler.Settings(lengths=(512,), samples=2, tasks=("niah_single_1", "qa_1"))
    found = list(ruler.measure(Answerer(over(build(shape, 0).eval()), 512), text, small(), wanted, tmp_path))
    asked = [(each.task, each.length) for each in found if isinstance(each, Questions)]
    assert asked == [("niah_single_1", 512), ("qa_1", 512)]
    assert [row.n for row in found if isinstance(row, Row) and row.metric == "score" and "depth" not in row.task] == [
        2,
        2,
    ]
    assert set(ANY) < set(TASKS)


def test_files_may_lie_in_the_folder_that_stands_for_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "hub" / "sets" / "squad.json"
    inside.parent.mkdir(parents=True)
    inside.write_text("{}")
    (tmp_path / "own.txt").write_text("a")
    wanted = ruler.Settings(squad="sets/squad.json", haystack="own.txt", hotpotqa="sets/none.json")
    profile = PROFILE.model_copy(update={"suites": {"ruler": wanted}, "hub": "hub"})
    found = ruler.named(profile)
    assert found == {
        "squad": Path("hub/sets/squad.json"),
        "haystack": Path("own.txt"),
        "hotpotqa": Path("sets/none.json"),
    }
    assert set(ruler.files(profile)) == set(found.values())
