"""Public failure reports on RULER, each with the test that holds it off, or the reason why there is none.

The reports lie beside the checkout, `shared/pitfalls`: its section (d), and what in (c) is about RULER.
"""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from harness.metrics import Key, parse_key
from harness.ruler.fill import TooShort
from harness.ruler.tasks import build
from harness.suites import ruler
from tests.conftest import SHARED
from tests.ruler_texts import small, words

PITFALLS = SHARED / "pitfalls"
HERE = pytest.mark.skipif(not PITFALLS.is_dir(), reason=f"no failure reports at {PITFALLS}")

RULER, SUITES, MINE = "tests.test_ruler", "tests.test_ruler_suites", "tests.test_pitfalls_ruler"
TESTED = {
    "C01": (RULER, "test_prompt_prefix_and_budget_fit_the_length_or_it_is_refused_within_a_second"),
    "C02": (SUITES, "test_silence_scores_nothing_and_gaps_say_why"),
    "C03": (SUITES, "test_whoever_reads_everything_out_finds_the_needles"),
    "C04": (RULER, "test_samples_depend_on_task_length_seed_and_place_alone"),
    "C05": (RULER, "test_prompt_prefix_and_budget_fit_the_length_or_it_is_refused_within_a_second"),
    "C24": (RULER, "test_data_on_disk_are_made_once_and_again_when_anything_changed"),
    "C27": (RULER, "test_a_mean_is_made_of_complete_sets_only"),
    "C28": (RULER, "test_words_are_refused_with_the_mend_where_the_package_is_missing"),
    "C31": (SUITES, "test_lengths_beyond_the_window_are_gaps"),
    "D01": (MINE, "test_the_prompt_ends_with_the_answer_prefix"),
    "D04": (RULER, "test_filling_ends_whatever_the_tokenizer_does"),
    "D06": (SUITES, "test_silence_scores_nothing_and_gaps_say_why"),
    "D07": (MINE, "test_the_key_of_a_score_names_suite_task_and_metric"),
    "D08": (MINE, "test_the_key_of_a_score_names_suite_task_and_metric"),
    "D12": (RULER, "test_each_key_of_a_needle_task_has_one_answer"),
    "D14": (MINE, "test_the_value_alone_is_matched"),
    "D15": (SUITES, "test_whoever_reads_everything_out_finds_the_needles"),
    "D16": (RULER, "test_prompt_prefix_and_budget_fit_the_length_or_it_is_refused_within_a_second"),
    "D17": (SUITES, "test_a_constant_answerer_scores_no_more_than_a_guesser"),
    "D18": (RULER, "test_data_on_disk_are_made_once_and_again_when_anything_changed"),
}
NOT_TESTED = {
    "D05": "HotpotQA's own wording: its references are asked for as published, and nobody's score is blamed on a mixer "
    "before it is compared to published ones; the default questions are of the corpus, whose titles stand in the text",
}
ABOUT_RULER = {"C01", "C02", "C03", "C04", "C05", "C24", "C27", "C28", "C31"}


@HERE
def test_every_report_has_a_test_or_a_reason():
    listed = set(re.findall(r"^\| (D\d\d) ", (PITFALLS / "pitfalls.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert len(listed) == 12
    assert set(TESTED) | set(NOT_TESTED) == listed | ABOUT_RULER
    for module, test in TESTED.values():
        assert callable(getattr(importlib.import_module(module), test))
    assert all(len(reason) > 20 for reason in NOT_TESTED.values())


@HERE
def test_our_data_have_the_properties_that_the_reports_ask_for(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(PITFALLS))
    monkeypatch.syspath_prepend(str(PITFALLS / "dev"))
    script = importlib.import_module("e05_ruler_data_properties")
    ours = {"niah_single": "niah_single_2", "niah_multikey": "niah_multikey_2"}

    def made(task: str, length: int, n: int, seed: int, count) -> list[dict]:
        """Its script reads facts in the singular."""
        samples = build(ours[task], length, n, seed, lambda text: range(count(text)), small())
        return [
            {
                "prompt": sample.prompt.replace("numbers for", "number for"),
                "outputs": list(sample.outputs),
                "gen_tokens": sample.budget,
            }
            for sample in samples
        ]

    script.check(made)


def test_the_prompt_ends_with_the_answer_prefix():
    ends = {
        "niah_single_1": "mentioned in the provided text is",
        "niah_multivalue": "mentioned in the provided text are",
        "vt": "they are:",
        "cwe": "Answer: The top 10 words that appear most often in the list are:",
        "fwe": "the three most frequently appeared words are:",
        "qa_1": "Answer:",
    }
    for task, end in ends.items():
        (sample,) = build(task, 1024, 1, 0, words, small())
        assert sample.prompt.endswith(end)
        assert not sample.prompt.endswith(" "), "a space at the end is half a token"


def test_the_key_of_a_score_names_suite_task_and_metric():
    key = parse_key("ruler/niah_single_1/score@4096")
    assert key == Key("ruler", "niah_single_1", "score", length=4096)
    assert ruler.METRICS["score"].unit == "share", "from 0 to 1, not percent"
    assert parse_key("ruler_micro/niah_single_1/score@4x").suite == "ruler_micro", "another suite, another name"


def test_the_value_alone_is_matched():
    from harness.ruler.score import score

    (sample,) = build("niah_single_1", 1024, 1, 0, words, small())
    assert all(output.isdigit() for output in sample.outputs)
    assert score("niah_single_1", f"I read {sample.outputs[0]} somewhere", sample.outputs) == 1


def test_too_short_is_a_value_error():
    assert issubclass(TooShort, ValueError)
