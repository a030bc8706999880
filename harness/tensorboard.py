"""Curves of the trainings that have ended, as event files of TensorBoard: results/tensorboard/<run>/<task>/seed<k>.

    pip install tensorboard==2.20.0
    python -m harness.tensorboard
    tensorboard --logdir results/tensorboard

Nothing else needs them or that package: they are the numbers of curve.jsonl in another form.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from harness.errors import UserError, leave
from harness.job import RESULTS
from harness.plan import Plan, add_options

NEEDED = "tensorboard==2.20.0"
AXES = ("step", "tokens")  # what a point is plotted over, not a number of its own


def write(folder: Path, curve: Path, writer: Any) -> int:
    """The event file of one curve, in place of an older one there; how many points it has."""
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    points = [json.loads(line) for line in curve.read_text(encoding="utf-8").splitlines()]
    events = writer(str(folder))
    for point in points:
        for name, value in point.items():
            if name not in AXES:
                events.add_scalar(name, value, step=point["step"])
    events.close()
    return len(points)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.tensorboard", description="Curves for TensorBoard.")
    add_options(parser)
    plan = Plan.asked(parser.parse_args())
    try:
        from tensorboard.summary import Writer  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(f"TensorBoard is not installed; pip install {NEEDED}") from None
    curves = [Path(folder, "curve.jsonl") for task in plan.trainings for folder in plan.folder(task)]
    made = [curve for curve in curves if curve.is_file()]
    for curve in made:
        write(RESULTS / "tensorboard" / curve.parent.relative_to(RESULTS / "runs"), curve, Writer)
    print(f"{RESULTS / 'tensorboard'}: {len(made)} of {len(curves)} curves")


if __name__ == "__main__":
    leave(main)
