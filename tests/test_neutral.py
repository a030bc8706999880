"""Specs in neutral words, each wrong in one place, through the loaders of papers and profiles: see `tests.neutral`."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from tests import neutral
from tests.conftest import SHARED


def test_neutral_specs_behave_as_expected(tmp_path: Path) -> None:
    source = SHARED / "pitfalls"
    if not source.is_dir():
        pytest.skip(f"no {source.name} in {SHARED}; the cases below need none")
    for part in ("_lib.py", "dev/y01_yaml_cases.py", "dev/yaml"):
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy
        (tmp_path / part).parent.mkdir(exist_ok=True)
        copy(source / part, tmp_path / part)
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)
    found = importlib.util.spec_from_file_location("y01", tmp_path / "dev" / "y01_yaml_cases.py")
    assert found is not None
    assert found.loader is not None
    cases = importlib.util.module_from_spec(found)
    found.loader.exec_module(cases)
    wrong, count = cases.run(neutral.load, neutral.rewrite)
    assert count >= 35
    assert wrong == []


NEUTRAL = """paper:
  arxiv: "2410.05258"
  title: "Example mixer"
mixer:
  name: example_mixer
  dim: 32
  heads: 4
train:
  steps: 10
  lr: 1.0e-3
  seed: 7
eval:
  tasks: [ruler, longbench]
  lengths: [512, 1024]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", {"lr": 0.001, "steps": 10, "seed": 7, "lengths": [512, 1024], "dim": 32, "heads": 4}),
        ("1.0e-3", "1e-3", {"lr": 0.001}),
        ("1.0e-3", "3E-4", {"lr": 0.0003}),
        ('"Example mixer"', "2025-01-01", {"title": "2025-01-01"}),
        ('"Example mixer"', '"</script><img src=x>"', {"title": "</script><img src=x>"}),
        ('"Example mixer"', "“softpick” ≤ ∞ 你好", {"title": "“softpick” ≤ ∞ 你好"}),
        ("steps: 10", "steps: 1_000", "steps"),
        ("steps: 10", "steps: 12:30", "steps"),
        ("steps: 10", "steps: .inf", "steps"),
        ("steps: 10", "steps: -1", "steps"),
        ("steps: 10", "steps: 10\n  steps: 99", "steps"),
        ("1.0e-3", ".nan", "lr"),
        ("lr: 1.0e-3", "lr:", "lr"),
        ("train:", "train:\n  steps: 9\ntrain:", "train"),
        ("heads: 4", "heads: 5", "heads"),
        ("heads: 4", "haeds: 4", "haeds"),
        ("  dim: 32\n", "", "dim"),
        ("seed: 7", "seed: 00042", "seed"),
        ('"Example mixer"', "Attention: all you need", "title"),
        ("name: example_mixer", 'name: "a; touch pwned"', "name"),
        ("name: example_mixer", 'name: "../../x"', "name"),
        ("name: example_mixer", 'name: "ехample"', "name"),
        ("[512, 1024]", '["512", 1024]', "multiples"),
        ("[512, 1024]", "[1024, 512, 512]", "multiples"),
    ],
)
def test_a_neutral_spec(old: str, new: str, expected: dict[str, Any] | str, tmp_path: Path) -> None:
    path = tmp_path / "neutral.yaml"
    path.write_text(neutral.rewrite(NEUTRAL.replace(old, new, 1)), encoding="utf-8")
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            neutral.load(str(path))
    else:
        assert {key: neutral.load(str(path))[key] for key in expected} == expected
