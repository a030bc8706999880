"""Tasks of lm-eval asked through our adapter, on a tiny real model and small real data beside the checkout."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import hub, pretrained
from harness.config import Profile
from harness.suites import Gap, Questions, Row, Sample, longbench, zeroshot
from harness.text import HubText, split
from tests.conftest import SHARED

HUB, STORIES = SHARED / "hub", SHARED / "models" / "stories260k"
HERE = pytest.mark.skipif(not (HUB.is_dir() and STORIES.is_dir()), reason=f"no data at {HUB} or no model at {STORIES}")
LIMIT = 12


def first_lines(folder: Path) -> None:
    """The data of each task, cut to a few questions, so that no time goes into preparing the rest."""
    for source in (each for each in HUB.rglob("*") if each.is_file() and each.parent != HUB):
        target = folder / source.relative_to(HUB)
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        target.write_text("".join(lines[: LIMIT if source.suffix == ".jsonl" else None]), encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        for name in hub.OFFLINE:
            patch.setenv(name, "1")
        patch.setenv("HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        if HUB.is_dir():
            first_lines(tmp_path_factory.mktemp("hub"))
            patch.setattr(sys.modules[__name__], "HUB", tmp_path_factory.getbasetemp() / "hub0")
        yield


@pytest.fixture(scope="module")
def ours():
    from harness import lmeval

    settings = pretrained.Settings(hf=str(STORIES), length=512)
    return lmeval.Harness(*lmeval_asked(settings))


def lmeval_asked(settings: pretrained.Settings):
    from harness.text import asked

    return asked(pretrained.load(settings.hf, None), settings, profile())


def profile(**suites) -> Profile:
    return Profile.model_construct(name="test", tasks={}, suites=suites, hub=str(HUB), noise=0)


def theirs(**options):
    huggingface = pytest.importorskip("lm_eval.models.huggingface")
    return huggingface.HFLM(pretrained=str(STORIES), device="cpu", batch_size=8, **options)


@HERE
@pytest.mark.parametrize("name", ["lambada_openai", "hellaswag", "arc_easy"])
def test_answers_are_those_of_lm_evals_own_model(ours, name):
    from harness import lmeval

    task = lmeval.load(zeroshot.TASKS[name][0], HUB / zeroshot.TASKS[name][1])
    mine, reference = lmeval.run(ours, task, LIMIT), lmeval.run(theirs(), task, LIMIT)
    for a, b in zip(mine, reference, strict=True):
        for x, y in zip(a["resps"], b["resps"], strict=True):
            assert x[0][0] == pytest.approx(y[0][0], abs=1e-3)
            assert x[0][1] == y[0][1]
    rows, wanted = list(zeroshot.rows(name, mine)), list(zeroshot.rows(name, reference))
    for row, other in zip(rows, wanted, strict=True):
        exact = row.metric in zeroshot.CHOICE
        assert row.value == (other.value if exact else pytest.approx(other.value, rel=1e-4))
        assert row.n == LIMIT


@HERE
def test_perplexity_is_that_of_lm_evals_own_model_opened_by_one_token(ours):
    from harness import lmeval

    task = lmeval.load(zeroshot.TASKS["wikitext"][0], HUB / zeroshot.TASKS["wikitext"][1])
    rows = list(zeroshot.rows("wikitext", lmeval.run(ours, task, 1)))
    wanted = list(zeroshot.rows("wikitext", lmeval.run(theirs(add_bos_token=False), task, 1)))
    for row, other in zip(rows, wanted, strict=True):
        assert row.value == pytest.approx(other.value, rel=1e-4)
    assert rows[2].value == pytest.approx(math.log2(rows[1].value))


@HERE
def test_both_suites_offline_end_to_end():
    wanted = profile(
        zeroshot=zeroshot.Settings(tasks=("piqa", "arc_challenge"), limit=4),
        longbench=longbench.Settings(tasks=("trec", "lcc", "multi_news", "narrativeqa"), limit=1),
    )
    settings = pretrained.Settings(hf=str(STORIES), length=512)
    model = pretrained.load(settings.hf, None)
    for suite in (zeroshot, longbench):
        found = list(suite.evaluate(model, settings, wanted, 0, "cpu"))
        cells = [each.cell for each in found if isinstance(each, Row | Gap)]
        assert sorted(map(str, cells)) == sorted(map(str, suite.cells(wanted)))
        assert all(math.isfinite(row.value) and row.n in (1, 4) for row in found if isinstance(row, Row))
        asked = {each.task: each.sha256 for each in found if isinstance(each, Questions)}
        assert asked.keys() == {row.task for row in found if isinstance(row, Row)}
        assert len(set(asked.values())) == 2
    gaps = {gap.task: gap.reason for gap in found if isinstance(gap, Gap)}
    assert gaps.keys() == {"multi_news", "narrativeqa", "all"}
    assert gaps["multi_news"] == (
        "not applicable: it writes up to 512 tokens, which leaves no room for a prompt in a window of 512"
    )
    assert "cannot be loaded" in gaps["narrativeqa"]
    assert "2 of 4 lack" in gaps["all"]
    samples = [each for each in found if isinstance(each, Sample)]
    assert {sample.task for sample in samples} == {"trec", "lcc"}
    assert all(sample.prompt and sample.answers for sample in samples)


def test_budgets_known_at_planning_time_are_those_of_the_tasks():
    from harness import lmeval

    for name in longbench.TASKS | longbench.BY_LENGTH:
        config = lmeval.load_yaml(lmeval.TASKS / f"longbench/{name}.yaml")
        assert config["generation_kwargs"]["max_gen_toks"] == longbench.BUDGETS[name.removesuffix("_e")]


def test_the_digest_of_questions_changes_with_each_of_them():
    from harness import lmeval

    one = {"doc_hash": "a", "prompt_hash": "b", "target_hash": "c", "resps": [1]}
    digests = [lmeval.digest([one])] + [lmeval.digest([one | {key: "d"}]) for key in one if key != "resps"]
    assert len({*digests, lmeval.digest([one, one])}) == 5
    assert lmeval.digest([one | {"resps": [2]}]) == digests[0]  # answers are not what was asked


class Silent:
    """An answerer who is not asked."""

    window = 512


def test_what_the_network_did_not_bring_is_a_failure_and_no_gap(monkeypatch: pytest.MonkeyPatch):
    from harness import lmeval, text
    from harness.errors import UserError

    def load(path: str, data: Path | None):
        assert data is None
        raise lmeval.Unreached(f"{path} cannot be loaded: no route to host")

    monkeypatch.setattr(lmeval, "load", load)
    monkeypatch.setattr(text, "asked", lambda *given: (Silent(), Letters()))
    for name in hub.OFFLINE:
        monkeypatch.delenv(name)
    wanted = Profile.model_construct(
        name="test",
        tasks={},
        suites={"zeroshot": zeroshot.Settings(tasks=("piqa",)), "longbench": longbench.Settings(tasks=("trec",))},
        hub=None,
        noise=0,
    )
    for suite in (zeroshot, longbench):
        found = []
        with pytest.raises(UserError, match=r"^(piqa|trec): \S+ cannot be loaded: no route to host$"):
            found.extend(suite.evaluate(None, None, wanted, 0, "cpu"))
        assert not any(isinstance(each, Gap) and each.task != "all" for each in found)


def request(*args):
    return SimpleNamespace(args=args)


class Letters:
    """A tokenizer of letters, with 0 to open and 1 to end."""

    first, end = 0, 1

    def encode(self, text: str, opened: bool = True) -> list[int]:
        return [0] * opened + [ord(letter) for letter in text]

    def decode(self, ids) -> str:
        return "".join(chr(n) for n in ids if n > 1)


class Script:
    """An answerer that writes a fixed text, whatever it is asked."""

    def __init__(self, text: str, window: int = 100):
        self.text, self.window, self.prompts = text, window, []

    def generate(self, prompts, budget, stopped):
        self.prompts += prompts
        written: list[list[int]] = []
        for _ in prompts:
            tokens: list[int] = []
            for token in [*map(ord, self.text), 1]:
                tokens.append(token)
                if len(tokens) == budget or stopped(tokens):
                    break
            written.append(tokens)
        return written


def harness(text: str, window: int = 100, middle: bool = False):
    from harness import lmeval

    return lmeval.Harness(Script(text, window), Letters(), middle)  # pyright: ignore[reportArgumentType]


def test_writing_stops_before_the_first_stop_string_at_the_end_or_at_the_budget():
    asked = harness("one\ntwo. three")
    limits = [{"until": ["two", "\n"]}, {"until": []}, {"until": ["o. t"]}, {"until": ["zzz"], "max_gen_toks": 6}]
    requests = [request("?", {"max_gen_toks": 50} | each) for each in limits]
    assert asked.generate_until(requests) == ["one", "one\ntwo. three", "one\ntw", "one\ntw"]
    assert [each.at_limit for each in asked.generations] == [False, False, False, True]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"until": "stop"}, "must be a list"),
        ({"until": ["\\n"]}, "holds a backslash"),
        ({"until": [""]}, "must be a list"),
        ({"do_sample": True}, "greedy"),
        ({"max_gen_toks": 100}, "leaves no room for a prompt in a window of 100"),
    ],
)
def test_a_generation_that_would_mean_something_else_is_refused_before_any(arguments, fault):
    asked: Any = harness("text")
    with pytest.raises(ValueError, match=fault):
        asked.generate_until([request("?", {"max_gen_toks": 5}), request("?", {"max_gen_toks": 5} | arguments)])
    assert asked.answerer.prompts == []


def test_long_prompts_lose_their_middle_in_longbench_and_else_their_beginning():
    for middle, wanted in ((True, "\0abchij"), (False, "efghij")):
        asked: Any = harness("x", window=9 if middle else 8, middle=middle)
        asked.generate_until([request("abcdefghij", {"max_gen_toks": 2})])
        (prompt,) = asked.answerer.prompts
        assert "".join(map(chr, prompt)).endswith(wanted[-3:])
        assert "".join(map(chr, prompt)) == (wanted if not middle else "\0ab" + "hij")


def longest_match(text: str) -> list[str]:
    words, found = ["Answer", "Ans", "wer", ": C", ":", " C", "C", " yes", "yes", " "], []
    while text:
        word = next((word for word in words if text.startswith(word)), text[0])
        found.append(word)
        text = text[len(word) :]
    return found


@pytest.mark.parametrize(
    ("context", "continuation", "before", "after"),
    [
        ("Answer", " yes", ["Answer"], [" yes"]),
        ("Answer: ", "yes", ["Answer", ":"], [" yes"]),
        ("Ans", "wer", [], ["Answer"]),
        ("Answer:", " C", ["Answer"], [": C"]),
    ],
)
def test_a_continuation_has_a_token_and_the_text_is_kept(context, continuation, before, after):
    assert split(context, continuation, longest_match) == (before, after)


@pytest.mark.skipif(not (SHARED / "pitfalls").is_dir(), reason="no failure reports beside the checkout")
def test_the_published_check_of_scoring_passes(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(SHARED / "pitfalls" / "dev"))
    from harness.adapter import windows

    def positions(n: int, window: int):
        return [([z - 1 for z in i], [z - 1 for z in t]) for i, t in windows(range(1, n + 1), 0, window)]

    importlib.import_module("e04_likelihood_windows").check(SimpleNamespace(windows=positions, split=split))


@HERE
def test_texts_are_opened_as_in_training(ours):
    text = ours.text
    assert isinstance(text, HubText)
    assert text.encode("Once")[0] == text.first == 1
    assert text.encode("Once", opened=False)[0] != 1
    assert ours._pair("", "Once")[0] == [1]  # an empty context is the opening alone


def test_a_lack_is_told_without_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "is not in the folder that stands for the Hub" in (hub.obstacle("a/b", str(tmp_path)) or "")
    assert "pip install no_such_module" in (hub.obstacle("a/b", None, ["no_such_module"]) or "")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert hub.obstacle("a/b", str(tmp_path)) is None
    assert "stay offline" in (hub.obstacle("a/b", None) or "")
