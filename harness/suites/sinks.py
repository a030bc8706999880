"""Does the language model have an attention sink, and what do its weights and hidden states look like?

Measured on windows of the test text, `length` tokens each, as `harness.sinks` defines it.

    lm                   the whole model, over layers and heads: sink_rate and sink_rate_normalised (mean weight on the
                         first token above 0.3), first_token_mass, row_entropy, sparsity, kurtosis, hidden_max
    layer1, …            one layer: the same of its heads, and of the hidden states that leave it
    layer1-head0, …      one head: the first five; its sink rates are the shares of the windows in which it is one

Sink rates count all queries, as their authors do; first_token_mass, row_entropy and sparsity leave out the first query,
which sees nothing but itself. A mechanism that defines no weights has no heads here: its implicit matrix is measured on
`probe` windows of at most 32 tokens, where both sink rates are of its normalised rows. Standard errors are over
windows. A head that a mechanism lacks is not measured.

Small models trained for minutes have no sink in language modelling: the suite `trigger` shows what mechanisms do where
softmax needs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.closed import Count
from harness.config import Profile, SuiteSettings
from harness.errors import UserError
from harness.metrics import Metric
from harness.suites import Cell, Row, ratio

TASK = "lm"
WEIGHTS = {
    "sink_rate": Metric(unit="share", better="none", summary="heads whose mean weight on the first token exceeds 0.3"),
    "sink_rate_normalised": Metric(
        unit="share", better="none", summary="the same after |A| is divided by its row's sum"
    ),
    "first_token_mass": Metric(unit="weight", better="none", summary="mean weight on the first token"),
    "row_entropy": Metric(unit="nats", better="none", summary="entropy of a row of normalised weights"),
    "sparsity": Metric(unit="share", better="none", summary="weights that are exactly 0"),
}
HIDDEN = {
    "kurtosis": Metric(unit="1", better="none", summary="of all hidden states pooled; 3 for a normal law"),
    "hidden_max": Metric(unit="1", better="none", summary="largest magnitude of a hidden state"),
}
METRICS = WEIGHTS | HIDDEN
PROBE_TOKENS = 32  # of an implicit matrix: its cost grows with the square


class Settings(SuiteSettings):
    sequences: Count = 100  # as in the code that defines the sink rate
    length: Count = 64  # tokens of a window; likewise
    probe: Count = 4  # windows of an implicit matrix


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    model = profile.task(TASK).model
    layers = [f"layer{n}" for n in range(1, model.layers + 1)]
    return [
        *(("lm", None, metric) for metric in METRICS),
        *((layer, None, metric) for layer in layers for metric in METRICS),
        *((f"{layer}-head{h}", None, metric) for layer in layers for h in range(model.heads) for metric in WEIGHTS),
    ]


def may_lack(cell: Cell) -> bool:
    """Whether a mechanism may have no such thing: a head."""
    return "-head" in cell[0]


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row]:
    """Rows of every cell. Raises UserError when the test text is shorter than one window."""
    from harness.data import Corpus

    text_N = Corpus(profile.data.folder).tokens("test")
    announced = set(cells(profile))
    yield from (row for row in measure(model, text_N, profile.suite("sinks"), device) if row.cell in announced)


def measure(model: Any, text_N: np.ndarray, wanted: Settings, device: Any) -> Iterator[Row]:
    """The suite on a given text; a row for each layer and head that the model has."""
    import torch

    from harness import sinks

    count = min(wanted.sequences, len(text_N) // wanted.length)
    if not count:
        raise UserError(f"the test text has {len(text_N)} tokens, fewer than suites.sinks.length: {wanted.length}")
    windows_NT = text_N[: count * wanted.length].reshape(count, wanted.length).astype(np.int64)
    seen = sinks.observe(model, torch.from_numpy(windows_NT).to(device))
    layers = []
    for number, (layer, (x_BTD, h_BTD)) in enumerate(zip(model.layers, seen, strict=True), 1):
        A_BHTS, own = sinks.matrix(layer.mixer, x_BTD, (wanted.probe, PROBE_TOKENS))
        every_BT = torch.ones(A_BHTS.shape[0], A_BHTS.shape[2], dtype=torch.bool, device=A_BHTS.device)
        later_BT = every_BT.clone()
        later_BT[:, 0] = False
        found = sinks.statistics(A_BHTS, later_BT, sink_rows_BT=every_BT)
        layers.append(found)
        for metric in WEIGHTS:
            yield row(f"layer{number}", metric, [found[metric]])
        yield from hidden_rows(f"layer{number}", [h_BTD])
        for head in range(A_BHTS.shape[1] if own else 0):
            for metric in WEIGHTS:
                yield row(f"layer{number}-head{head}", metric, [found[metric][:, head : head + 1]])
    for metric in WEIGHTS:
        yield row("lm", metric, [found[metric] for found in layers])
    yield from hidden_rows("lm", [h_BTD for _, h_BTD in seen])


def row(task: str, metric: str, values: list[np.ndarray]) -> Row:
    """The mean over sequences and over the heads of the given layers, [B,H] each; n counts both.

    Where some layers have an implicit matrix, all count on its sequences alone, which are the first.
    """
    few = min(len(value_BH) for value_BH in values)
    by_head_BH = np.concatenate([value_BH[:few] for value_BH in values], axis=1)
    value, stderr = ratio(by_head_BH.mean(axis=1), np.ones(len(by_head_BH)))
    return Row(task, None, metric, value, by_head_BH.size, stderr)


def hidden_rows(task: str, hidden: list[Any]) -> Iterator[Row]:
    """Kurtosis and maximum; n counts the numbers behind them."""
    from harness import sinks

    n = sum(h.numel() for h in hidden)
    yield Row(task, None, "kurtosis", sinks.kurtosis(hidden), n)
    yield Row(task, None, "hidden_max", sinks.hidden_max(hidden), n)
