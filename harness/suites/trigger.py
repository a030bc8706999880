"""Does a model that must keep silent until a trigger park its weight on the first token?

One layer of attention is trained on `harness.tasks.trigger`, on which softmax provably needs a sink and attention whose
rows need not sum to 1 does not (arXiv:2603.11487). Rows are made as in training, from streams no training draws.

    quiet     at tokens that must give nothing: sink_rate, sink_rate_normalised, first_token_mass, row_entropy, sparsity
              as `harness.sinks` defines them, BOS left out as a query; and excess_nats
    answer    at the trigger: first_token_mass, row_entropy, excess_nats
    head0, …  at quiet tokens, one head: the first five; its sink rates are the shares of rows in which it is one

excess_nats is KL(best answer | the model's) in nats: 0 where the task is done. The best answer is the mean of the
content at the trigger, and equal shares of the vocabulary where nothing must be given; a model that always gives those
has 0 at `quiet` and about 3.6 at `answer`. No sink means something only in a model that does the task.

Evidence about the mechanism, not about language models. A mechanism that defines no weights is measured by its implicit
matrix, on `probe` rows, and has no heads here. n counts rows, or rows and heads; standard errors are over rows.
Hidden states are not measured: here they are the answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.closed import Count
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.suites import Cell, Row
from harness.suites.sinks import WEIGHTS, row
from harness.tasks import trigger

TASK = "trigger"
METRICS = WEIGHTS | {
    "excess_nats": Metric(unit="nats", better="lower", summary="cost above that of the best answer; 0 when it is given")
}


AT_TRIGGER = ("first_token_mass", "row_entropy")


class Settings(SuiteSettings):
    examples: Count = 128  # rows
    probe: Count = 8  # rows of an implicit matrix


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    heads = range(profile.task(TASK).model.heads)
    return [
        *(("quiet", None, metric) for metric in METRICS),
        *(("answer", None, metric) for metric in (*AT_TRIGGER, "excess_nats")),
        *((f"head{h}", None, metric) for h in heads for metric in WEIGHTS),
    ]


def may_lack(cell: Cell) -> bool:
    """Whether a mechanism may have no such thing: a head."""
    return cell[0].startswith("head")


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row]:
    """Rows of every cell."""
    announced = set(cells(profile))
    found = measure(model, settings, profile.suite("trigger"), seed, device)
    yield from (made for made in found if made.cell in announced)


def measure(model: Any, settings: Any, wanted: Settings, seed: int, device: Any) -> Iterator[Row]:
    """The suite on examples of this seed; a row for each head that the model has."""
    import torch

    from harness import sinks

    rows = trigger.evaluation(settings, wanted.examples, seed)
    ids_BT = torch.from_numpy(rows.inputs_BT).to(device)
    (seen,) = sinks.observe(model, ids_BT)
    A_BHTS, own = sinks.matrix(model.layers[0].mixer, seen.x_BTD, (wanted.probe, ids_BT.shape[1]))
    answer_BT = ids_BT == trigger.TRIGGER
    quiet_BT = ~answer_BT
    quiet_BT[:, 0] = False
    quiet = sinks.statistics(A_BHTS, quiet_BT[: len(A_BHTS)])
    for metric in WEIGHTS:
        yield row("quiet", metric, [quiet[metric]])
    answer = sinks.statistics(A_BHTS, answer_BT[: len(A_BHTS)])
    for metric in AT_TRIGGER:
        yield row("answer", metric, [answer[metric]])
    for head in range(A_BHTS.shape[1] if own else 0):
        for metric in WEIGHTS:
            yield row(f"head{head}", metric, [quiet[metric][:, head : head + 1]])
    logp_BTV = model(ids_BT).float().log_softmax(-1).double().cpu().numpy()
    yield from excess(logp_BTV, rows, quiet_BT.cpu().numpy())


def excess(logp_BTV: np.ndarray, rows: trigger.Rows, quiet_BT: np.ndarray) -> Iterator[Row]:
    """KL of the best answers to the model's, at quiet tokens and at the trigger."""
    uniform_BT = -logp_BTV.mean(axis=-1) - math.log(logp_BTV.shape[-1])
    quiet_B = (uniform_BT * quiet_BT).sum(axis=1) / quiet_BT.sum(axis=1)
    yield row("quiet", "excess_nats", [quiet_B[:, None]])
    p_BV, at_trigger_BV = trigger.shares(rows), logp_BTV[np.arange(len(logp_BTV)), rows.trigger_B]
    costs_BV = p_BV * (np.log(np.where(p_BV > 0, p_BV, 1.0)) - np.where(p_BV > 0, at_trigger_BV, 0.0))
    yield row("answer", "excess_nats", [costs_BV.sum(axis=1)[:, None]])
