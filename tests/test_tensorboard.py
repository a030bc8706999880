"""Event files for TensorBoard: the numbers of the curve; and a sentence where the package is not there."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness import tensorboard

ROOT = Path(__file__).parents[1]
THERE = importlib.util.find_spec("tensorboard") is not None
CURVE = [{"step": 1, "tokens": 64, "loss": 5.25, "lr": 0.5}, {"step": 2, "tokens": 128, "loss": 4.5, "lr": 0.25}]


@pytest.mark.skipif(not THERE, reason=f"needs {tensorboard.NEEDED}, which is optional")
def test_event_files_hold_the_curve_once_however_often_they_are_written(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import (  # pyright: ignore[reportMissingImports]
        EventAccumulator,
    )
    from tensorboard.summary import Writer  # pyright: ignore[reportMissingImports]

    curve = tmp_path / "curve.jsonl"
    curve.write_text("".join(json.dumps(point) + "\n" for point in CURVE))
    for _ in range(2):
        assert tensorboard.write(tmp_path / "events", curve, Writer) == 2
    found = EventAccumulator(str(tmp_path / "events"), size_guidance={"tensors": 0})
    found.Reload()
    assert sorted(found.Tags()["tensors"]) == ["loss", "lr"]
    for name in ("loss", "lr"):
        told = [(event.step, event.tensor_proto.float_val[0]) for event in found.Tensors(name)]
        assert told == [(point["step"], point[name]) for point in CURVE]


@pytest.mark.skipif(THERE, reason="TensorBoard is installed")
def test_without_the_package_it_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-m", "harness.tensorboard"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (
        1,
        f"TensorBoard is not installed; pip install {tensorboard.NEEDED}",
    )


def test_the_optional_package_is_pinned_in_one_version():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["tensorboard"] == [tensorboard.NEEDED]
