"""Which runs share a budget with the softmax reference: parameters, FLOPs a token, decoding state."""

from __future__ import annotations

from collections.abc import Mapping

from harness.report.evidence import DONE, Evidence, Run
from harness.report.tables import Item
from harness.tasks import REFERENCE

VIEWS = {  # name: (what the record calls it, how far from the reference's it may be)
    "iso-parameter": ("parameters", 0.01),
    "iso-FLOP": ("flops_per_token", 0.1),
    "iso-state": ("state_bytes", 0.1),
}


def shared(evidence: Evidence, run: Run) -> Item:
    """The names of the budgets that a run shares with the reference on every task it was trained on."""
    names = [name for name in VIEWS if equal(evidence, run, name)]
    return (
        Item(", ".join(names))
        if names
        else Item("none", why="no budget of the reference's is its own, or none is known")
    )


def equal(evidence: Evidence, run: Run, view: str) -> bool:
    """Whether one cost of a run is the reference's within its tolerance; what is not known is not equal."""
    key, tolerance = VIEWS[view]
    theirs = costs(next((other for other in evidence.runs.values() if other.impl == REFERENCE), run), key)
    ours = costs(run, key)
    return bool(ours) and all(
        task in theirs and abs(value - theirs[task]) <= tolerance * theirs[task] for task, value in ours.items()
    )


def costs(run: Run, key: str) -> Mapping[str, float]:
    """One cost by training task."""
    return {
        task: record[key]
        for (task, _), record in run.records.items()
        if record["status"] == DONE and record.get(key) is not None
    }
