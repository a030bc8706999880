"""Records without a result: which are listed, and which are forgotten so that they are tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import failures

RECORDS = {
    "ok": '{"status": "ok", "reason": null}',
    "failed": '{"status": "failed", "reason": "it raised"}',
    "diverged": '{"status": "diverged", "reason": "the loss is nan"}',
    "cut": '{"status": "ok", "rea',
    "empty": "",
    "list": "[]",
}


@pytest.fixture
def records(tmp_path: Path) -> list[Path]:
    for name, text in RECORDS.items():
        (tmp_path / f"{name}.json").write_text(text)
    return [tmp_path / f"{name}.json" for name in (*RECORDS, "missing")]


def test_failed_diverged_and_damaged_records_are_listed_with_their_reasons(records: list[Path]):
    found = {failure.record.stem: (failure.status, failure.reason) for failure in failures.find(records)}
    assert found == {
        "failed": ("failed", "it raised"),
        "diverged": ("diverged", "the loss is nan"),
        "cut": ("failed", "the record is damaged (JSONDecodeError)"),
        "empty": ("failed", "the record is damaged (JSONDecodeError)"),
        "list": ("failed", "the record is damaged (TypeError)"),
    }


def test_what_would_fail_alike_is_not_tried_again(records: list[Path]):
    assert [record.stem for record in failures.remove(records)] == ["failed", "cut", "empty", "list"]
    assert [record.stem for record in records if record.exists()] == ["ok", "diverged"]
