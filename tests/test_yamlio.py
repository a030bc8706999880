"""The strict reader: plain values with their lines, one sentence for everything else, and never a traceback."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import yamlio
from harness.errors import UserError

ROOT = Path(__file__).parents[1]
BASE = (ROOT / "papers" / "softpick.yaml").read_bytes()


def value(text: str) -> object:
    return yamlio.parse(f"key: {text}\n".encode(), "x.yaml").value["key"]


def refusal(content: str | bytes) -> str:
    with pytest.raises(UserError) as caught:
        yamlio.parse(content.encode() if isinstance(content, str) else content, "x.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("x.yaml:")
    return message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("3E-4", 0.0003),
        ("1.0e-3", 0.001),
        ("1.e-3", 0.001),
        (".5", 0.5),
        ("1e5", 100000.0),
        ("-7", -7),
        ("0", 0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("2025-01-01", "2025-01-01"),
        ("2025-01-01 12:00:00", "2025-01-01 12:00:00"),
        ("v1.2", "v1.2"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("'1e-3'", "1e-3"),
        ('"0o17"', "0o17"),
        ("'.nan'", ".nan"),
        (r'"a\nb"', "a\nb"),
        (r"'\n'", "\\n"),
        ("Δ-Net — “softpick” ≤ ∞ 你好", "Δ-Net — “softpick” ≤ ∞ 你好"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_a_value_is_read_as_it_stands(text: str, expected: object) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_keys_are_text() -> None:
    assert yamlio.parse(b"true: 1\n1: 2\nno: 3\n", "x.yaml").value == {"true": 1, "1": 2, "no": 3}


@pytest.mark.parametrize(
    ("content", "line", "part"),
    [
        ("a: 1\na: 2\n", 2, "'a' was given before, on line 1"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", 4, "'b' was given before, on line 2"),
        ("a: {b: 1, b: 2}\n", 1, "'b' was given before"),
        ("a: 1\n'a': 2\n", 2, "'a' was given before"),
        ("a: &x 1\n", 1, "anchors"),
        ("a: *x\n", 1, "anchors"),
        ("b: 1\na:\n  <<: {c: 1}\n", 3, "merge keys"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag"),
        ("a: !!str 1\n", 1, "tag"),
        ("a: ! 1\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("", 1, "empty"),
        ("# nothing\n", 1, "empty"),
        ("- a\n", 1, "mapping"),
        ("text\n", 1, "mapping"),
        ("a: 1\n\tb: 2\n", 2, "tab"),
        ("title: Attention: all you need\n", 1, "title: Attention"),
        ("a: 00042\n", 1, "a: 00042 is not a plain decimal"),
        ("a: 08\n", 1, "plain decimal"),
        ("a: 1_000\n", 1, "plain decimal"),
        ("a: 12:30\n", 1, "plain decimal"),
        ("a: 0x1F\n", 1, "plain decimal"),
        ("a: 0o17\n", 1, "plain decimal"),
        ("a: .nan\n", 1, "finite"),
        ("a: -.INF\n", 1, "finite"),
        ("a: 1e999\n", 1, "finite"),
        ("a: 1234567890123456789\n", 1, "too many digits"),
        ("? [a]\n: 1\n", 1, "key"),
        ("? {a: 1}\n: 1\n", 1, "key"),
        ("'': 1\n", 1, "key"),
        ('a: "\\0"\n', 1, "control character"),
        ('a: "\\uD800"\n', 1, "control character"),
        ('a: "\\UFFFFFFFF"\n', 1, "names no character"),
        ("a: 1\nb: \x07\n", 2, "not allowed"),
        ("a: [1\n", 2, "column"),
        ("a: 1\n" + "[" * 40, 2, "column"),
        ("a: " + "[" * 40, 1, "nested"),
        ("b: 1\na: '" + "x" * yamlio.MAX_BYTES + "'", 1, "larger"),
        ("a: [" + "1," * (yamlio.MAX_NODES + 10) + "]", 1, "values"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "UTF-8"),
    ],
)
def test_a_fault_is_one_sentence_with_its_line(content: str | bytes, line: int, part: str) -> None:
    message = refusal(content)
    assert message.startswith(f"x.yaml:{line}: ")
    assert part in message
    assert len(message) < 250


def test_a_tag_runs_nothing(tmp_path: Path) -> None:
    refusal(f"a: !!python/object/apply:os.system ['touch {tmp_path}/made']\n")
    assert not list(tmp_path.iterdir())


def test_lines_follow_the_nodes() -> None:
    doc = yamlio.parse(b"# comment\na:\n  b: 1\n  c: [2,\n    3]\nd: >-\n  long\n  text\n", "x.yaml")
    assert doc.lines["a",] == 2
    assert doc.lines["a", "b"] == 3
    assert doc.lines["a", "c", 1] == 5
    assert doc.lines["d",] == 6
    doc.blame(("a", "missing", 3), "here")  # the nearest ancestor that has a line
    doc.blame((), "the file")
    assert doc.faults() == ["x.yaml:2: here", "x.yaml:2: the file"]


def test_a_mark_at_the_start_is_no_text() -> None:
    assert yamlio.parse(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "x.yaml").value == {"a": 1, "b": 2}


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        yamlio.read(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        yamlio.read(tmp_path)


def harmless(content: bytes) -> None:
    """Fails unless the bytes are plain data, or are refused in one short sentence."""
    try:
        value, refused = yamlio.parse(content, "x.yaml").value, ""
    except UserError as error:
        value, refused = {}, str(error)
    assert isinstance(value, dict)
    assert "\n" not in refused
    assert len(refused) < 250
    assert refused == "" or refused.startswith("x.yaml:")


@pytest.mark.parametrize("hostile", ["1_" * 60_000, "1" + "_" * 50_000 + "x", "1:" * 60_000, "1" * 200_000, "? " * 900])
def test_hostile_text_is_read_in_bounded_time(hostile: str) -> None:
    started = time.monotonic()
    harmless(f"a: {hostile}\n".encode())
    assert time.monotonic() - started < 5


FUZZ = settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.too_slow])


@FUZZ
@given(st.binary(max_size=300))
def test_random_bytes_never_trace_back(content: bytes) -> None:
    harmless(content)


@FUZZ
@given(st.text(alphabet="ab:-?[]{},&*!|>'\"%@`#\n\t <.0e_~\\Ux\u2028\x85", max_size=120))
def test_random_yaml_never_traces_back(text: str) -> None:
    harmless(text.encode())


@FUZZ
@given(st.integers(0, len(BASE) - 1), st.integers(0, 40), st.binary(max_size=8))
def test_a_damaged_paper_never_traces_back(start: int, cut: int, put: bytes) -> None:
    harmless(BASE[:start] + put + BASE[start + cut :])


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="this PyYAML was built without libyaml")
@pytest.mark.parametrize("path", sorted([*ROOT.glob("papers/*.yaml"), *ROOT.glob("config/**/*.yaml")]), ids=str)
def test_both_parsers_read_the_same(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    slow, fast = (yamlio._Reader("x", text, loader).document() for loader in (yaml.SafeLoader, yaml.CSafeLoader))
    assert (fast.value, fast.lines, fast.texts) == (slow.value, slow.lines, slow.texts)
