"""What a configuration asks for, and what is known to be in its way before anything is trained."""

from __future__ import annotations

from harness.plan import Plan


def test_a_mechanism_is_proved_with_the_arguments_of_all_papers_whichever_are_asked_for():
    few, everything = (Plan.load({"profile": "smoke", "papers": papers}) for papers in (["softpick"], "all"))
    assert set(few.runs) < set(everything.runs)
    assert few.settings_of("softmax") == everything.settings_of("softmax")
    assert few.settings_of("softmax").count("{") > 1
