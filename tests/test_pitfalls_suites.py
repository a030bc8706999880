"""Public failure reports on lm-eval and LongBench, each with the test that holds it off, or why there is none.

The reports lie beside the checkout, `shared/pitfalls`: the rows of its section (c) that are not about RULER, and those
of (d) that are about LongBench too. What is about RULER is in `tests/test_pitfalls_ruler.py`.
"""

from __future__ import annotations

import importlib
import re

import pytest

from harness.suites import longbench
from tests.conftest import SHARED

PITFALLS = SHARED / "pitfalls"
ADAPTER, LMEVAL, LONGBENCH, MINE = "test_adapter", "test_lmeval", "test_longbench", "test_pitfalls_suites"
TESTED = {
    "C10": (MINE, "test_prompts_hold_line_breaks_and_no_backslashes"),
    "C13": (ADAPTER, "test_scores_do_not_depend_on_batch_order_or_what_else_is_asked"),
    "C14": (LMEVAL, "test_a_continuation_has_a_token_and_the_text_is_kept"),
    "C15": (LMEVAL, "test_texts_are_opened_as_in_training"),
    "C16": (LMEVAL, "test_answers_are_those_of_lm_evals_own_model"),
    "C17": (ADAPTER, "test_whole_texts_are_scored_in_windows_each_token_once"),
    "C18": (LMEVAL, "test_the_published_check_of_scoring_passes"),
    "C21": (LMEVAL, "test_both_suites_offline_end_to_end"),
    "C25": (LMEVAL, "test_both_suites_offline_end_to_end"),
    "C27": (LONGBENCH, "test_a_mean_over_tasks_is_plain_and_needs_all"),
    "C28": (LMEVAL, "test_a_lack_is_told_without_computing"),
    "C29": (LMEVAL, "test_a_generation_that_would_mean_something_else_is_refused_before_any"),
    "C31": (LMEVAL, "test_a_generation_that_would_mean_something_else_is_refused_before_any"),
    "D07": (LONGBENCH, "test_the_suite_has_longbenchs_tasks_and_says_its_scale"),
    "D15": (LMEVAL, "test_writing_stops_before_the_first_stop_string_at_the_end_or_at_the_budget"),
    "D16": (LMEVAL, "test_long_prompts_lose_their_middle_in_longbench_and_else_their_beginning"),
    "D17": (ADAPTER, "test_a_model_without_an_opinion_hits_nothing"),
    "G11": (LMEVAL, "test_a_generation_that_would_mean_something_else_is_refused_before_any"),
}
NOT_TESTED = {
    "C23": "answers are kept in no cache: each record is made by one run and lies in its folder",
    "C24": "prompts are kept in no cache: lm-eval's request cache stays off",
}


@pytest.mark.skipif(not PITFALLS.is_dir(), reason=f"no failure reports at {PITFALLS}")
def test_every_report_has_a_test_or_a_reason():
    from tests import test_pitfalls_ruler

    listed = set(re.findall(r"^\| (C\d\d) ", (PITFALLS / "pitfalls.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed <= set(TESTED) | set(NOT_TESTED) | set(test_pitfalls_ruler.TESTED)
    for module, test in TESTED.values():
        assert callable(getattr(importlib.import_module(f"tests.{module}"), test))


def test_prompts_hold_line_breaks_and_no_backslashes():
    """The templates, that is: code in a question may well hold a backslash."""
    lmeval = pytest.importorskip("harness.lmeval")
    pytest.importorskip("rouge")
    for name in (*longbench.TASKS, *longbench.BY_LENGTH):
        config = lmeval.load_yaml(lmeval.TASKS / "longbench" / f"{name}.yaml")
        assert "\n" in config["doc_to_text"]
        assert "\\" not in config["doc_to_text"]
        assert not config["generation_kwargs"]["do_sample"]
