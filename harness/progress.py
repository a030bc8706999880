"""How far a training run is: a bar on a terminal, now and then a line in a log."""

from __future__ import annotations

import sys
import time
from typing import Any

LINES = 10  # in a log, spread over the run


class Progress:
    """Shows steps on stderr; the first `done` of `steps` are behind already."""

    def __init__(self, steps: int, title: str, done: int = 0):
        self.steps, self.title, self.start, self.done = steps, title, time.monotonic(), done
        self.bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=steps, initial=done, desc=title, unit="step", dynamic_ncols=True)

    def show(self, point: Any) -> None:
        """One more step; `point` has step, loss and perhaps valid_bpb."""
        if self.bar is not None:
            self.bar.update(1)
            self.bar.set_postfix(loss=f"{point.loss:.3f}", refresh=False)
        elif point.step * LINES % self.steps < LINES:
            each = (time.monotonic() - self.start) / (point.step - self.done)
            held_out = "" if point.valid_bpb is None else f", {point.valid_bpb:.4f} bits per byte of held-out text"
            line = (
                f"{self.title}: step {point.step} of {self.steps}, loss {point.loss:.4f}{held_out}, {each:.3f} s a step"
            )
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
