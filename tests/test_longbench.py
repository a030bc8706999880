"""LongBench's scores on pairs of what was written and what was wanted, worked out by hand from its published rules."""

from __future__ import annotations

import pytest

from harness.suites import Gap, Row, longbench

pytest.importorskip("rouge")
CLASSES = ["Date", "Number", "Other number", "City", "Other location"]


@pytest.mark.parametrize(
    ("task", "written", "answers", "wanted"),
    [
        ("hotpotqa", "", ["Paris"], 0.0),
        ("hotpotqa", "The city of Paris!", ["London", "Paris"], 0.5),  # "city of paris" against "paris": 1/3, 1
        ("qasper", " a, the, an ", ["the"], 0.0),  # articles are no words
        ("2wikimqa", "yes yes", ["Yes"], 2 / 3),  # each word counts as often as both have it
        ("triviaqa", "\n\nParis\nLondon", ["Paris"], 1.0),  # the first line that is not empty
        ("trec", "Date", ["Date"], 1.0),
        ("trec", "\nNumber\nDate", ["Number"], 1.0),
        ("trec", "Number or Date", ["Date"], 0.5),
        ("trec", "Other number", ["Other number"], 1.0),  # "number" is in no class as it is written
        ("trec", "", ["Date"], 0.0),
        ("passage_count", "There are 3, or 4, or 3.", ["3"], 2 / 3),
        ("passage_count", "none", ["3"], 0.0),
        ("passage_retrieval_en", "Paragraph 12", ["Paragraph 12"], 1.0),
        ("passage_retrieval_en", "Paragraphs 1 and 12", ["Paragraph 12"], 0.5),
        ("lcc", "```python\n# so:\nreturn x\n```", ["return x"], 1.0),  # fences and comments are passed over
        ("lcc", "\n\n  \nreturn x\nreturn y", ["return x"], 1.0),
        ("lcc", "", ["return x"], 0.0),
        ("lcc_e", "abcd", ["abcx"], 0.75),
        ("gov_report", "", ["a report"], 0.0),
        ("gov_report", "the cat sat", ["the cat sat"], 1.0),
    ],
)
def test_scores_follow_the_published_rules(task, written, answers, wanted):
    assert longbench.score(task, written, answers, CLASSES) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("answer", "wanted"), [("Other location", 1.0), ("location", 0.5), ("City", 0.0)])
def test_a_class_within_the_right_one_does_not_count_and_one_around_it_does(answer, wanted):
    """LongBench/metrics.py drops each matched class that is a part of the right one, and shares the rest."""
    assert longbench.score("trec", "Other location", [answer], ["City", "location", "Other location"]) == wanted


def test_a_mean_over_tasks_is_plain_and_needs_all():
    means = {"trec": (50.0, 2, 3.0), "lcc": (10.0, 200, 4.0)}
    row = longbench.mean_of_tasks(means, ["trec", "lcc"])
    assert isinstance(row, Row)
    assert (row.value, row.n, row.stderr) == (30.0, 202, 2.5)
    gap = longbench.mean_of_tasks(means, ["trec", "lcc", "qasper"])
    assert isinstance(gap, Gap)
    assert "1 of 3 lack, such as qasper" in gap.reason


def test_longbench_e_goes_by_the_words_of_the_text():
    found = list(longbench.by_length("lcc_e", [10.0, 20.0, 60.0], [3999, 4000, 7999]))
    assert [(each.task, getattr(each, "value", None)) for each in found] == [
        ("lcc_e-0-4k", 10.0),
        ("lcc_e-4-8k", 40.0),
        ("lcc_e-8k-up", None),
    ]


def test_the_suite_has_longbenchs_tasks_and_says_its_scale():
    assert (len(longbench.TASKS), len(longbench.BY_LENGTH)) == (16, 13)
    scores = {longbench.METRICS[metric].unit for metric in (*longbench.TASKS.values(), "score")}
    assert scores == {"points of 100"}
