"""What attention weights and hidden states look like: sinks, entropy, sparsity, kurtosis; for any mechanism.

A_BHTS is `weights()` of a mixer. Sums over queries take the rows that a mask picks; row 0 sees only itself.

    sink rate         share of heads and sequences whose mean weight on the first token exceeds 0.3
                      (Gu et al. 2024, arXiv:2410.10781, code sail-sg/Attention-Sink; all rows, as there)
    normalised        the same of |A_ts| / (sum_r |A_tr| + 1e-8), their proxy for weights that do not sum to 1: without
                      it no sink may only mean small weights
    first-token mass  mean of A_t0
    row entropy       mean of -sum_s p_ts ln p_ts in nats, p the normalised weights; a row of zeros counts 0
    sparsity          share of weights A_ts, s <= t, that are exactly 0
    kurtosis          E[(h - mean)^4] / variance^2 of all hidden states, tokens and channels pooled: 3 for a normal law
                      (Zuhri et al. 2025, arXiv:2504.20966 §5, code zaydzuhri/flame)
    hidden maximum    max |h|, for massive activations (Sun et al. 2024, arXiv:2402.17762)

A mixer that defines no weights has the implicit matrix of its Jacobian: J_ts = |d y_t / d x_s|, Frobenius norm, y the
mixer's output and x its input, over the sum of its row. It is one matrix for all heads, and it counts every way in
which a token acts on a later one, through values, keys, queries and gates alike; where y_t = sum_s A_ts x_s with A >= 0
fixed it is A with its rows normalised. The norm is estimated as the mean of |u^T d y_t / d x_s|^2 over random signs u,
exact in expectation (Hutchinson 1989, doi:10.1080/03610918908812806).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

EPSILON = 0.3  # of the sink rate
TINY = 1e-8  # in the denominator of the normalised weights


class Seen(NamedTuple):
    """Of one layer: what its mixer reads, and the hidden states that leave the layer."""

    x_BTD: Tensor
    h_BTD: Tensor


def observe(model: Any, ids_BT: Tensor) -> list[Seen]:
    """What each layer of a `harness.model.LM` reads and writes for these tokens."""
    with _recorded([layer.mixer for layer in model.layers]) as read, _recorded(model.layers) as written:
        model(ids_BT)
    return [Seen(x[0], h[1]) for x, h in zip(read, written, strict=True)]


@contextmanager
def _recorded(modules: Any) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """(input, output) of the last call of each module, in their order, filled while the block runs."""
    found: list[Any] = [None] * len(modules)

    def watch(place: int) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            found[place] = (inputs[0].detach(), output.detach())

        return hook

    handles = [module.register_forward_hook(watch(place)) for place, module in enumerate(modules)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def matrix(mixer: Any, x_BTD: Tensor, probe: tuple[int, int], signs: int = 4) -> tuple[Tensor, bool]:
    """(A_BHTS, whether it is the mixer's own); an implicit one has H = 1 and `probe` = (rows, tokens) of x at most."""
    A_BHTS = mixer.weights(x_BTD)
    if A_BHTS is not None:
        return A_BHTS.float(), True
    rows, tokens = probe
    return implicit(mixer, x_BTD[:rows, :tokens], signs)[:, None], False


def implicit(mixer: nn.Module, x_BTD: Tensor, signs: int) -> Tensor:
    """J_BTS with rows that sum to 1 (a row of zeros stays one), from `signs` random signs for each output."""
    T, D = x_BTD.shape[1:]
    coins = torch.randint(2, (signs, T, D), generator=torch.Generator().manual_seed(0))
    u_RTD = (2 * coins - 1).to(x_BTD)
    t = torch.arange(T, device=x_BTD.device)
    found = []
    for x_TD in x_BTD:
        x_RTTD = x_TD.expand(signs, T, T, D).clone().requires_grad_()  # a copy of the row for each output's gradient
        with torch.enable_grad():
            y_RTTD = mixer(x_RTTD.flatten(0, 1)).unflatten(0, (signs, T))
            total = (y_RTTD[:, t, t] * u_RTD).sum()
            reads = total.requires_grad  # not where a layer gives zeros whatever it is given
            gradient = torch.autograd.grad(total, x_RTTD)[0] if reads else torch.zeros_like(x_RTTD)
        found.append(gradient.float().square().sum(-1).mean(0).sqrt())
    J_BTS = torch.stack(found)
    return J_BTS / (J_BTS.sum(-1, keepdim=True) + torch.finfo(J_BTS.dtype).tiny)


def normalised(A_BHTS: Tensor) -> Tensor:
    """|A_ts| over the sum of its row."""
    return A_BHTS.abs() / (A_BHTS.abs().sum(-1, keepdim=True) + TINY)


def mean_over(values_BHT: Tensor, rows_BT: Tensor) -> Tensor:
    """values_BH, the mean over the queries that `rows` picks, at least one in each sequence."""
    weight_B1T = rows_BT[:, None].to(values_BHT)
    return (values_BHT * weight_B1T).sum(-1) / weight_B1T.sum(-1)


def first_token_mass(A_BHTS: Tensor, rows_BT: Tensor) -> Tensor:
    """Mean weight_BH on the first token."""
    return mean_over(A_BHTS[..., 0], rows_BT)


def is_sink(A_BHTS: Tensor, rows_BT: Tensor) -> Tensor:
    """Boolean_BH: does the first token get more than EPSILON of the mean row?"""
    return first_token_mass(A_BHTS, rows_BT) > EPSILON


def row_entropy(A_BHTS: Tensor, rows_BT: Tensor) -> Tensor:
    """Mean entropy_BH of a row, in nats."""
    p_BHTS = normalised(A_BHTS)
    return mean_over(-torch.xlogy(p_BHTS, p_BHTS).sum(-1), rows_BT)


def sparsity(A_BHTS: Tensor, rows_BT: Tensor) -> Tensor:
    """Share_BH of exact zeros among the weights of the visible keys of the picked rows."""
    T, S = A_BHTS.shape[-2:]
    visible_BTS = torch.ones(T, S, dtype=torch.bool, device=A_BHTS.device).tril() & rows_BT[..., None]
    zeros_BH = ((A_BHTS == 0) & visible_BTS[:, None]).sum((-2, -1))
    return zeros_BH / visible_BTS.sum((-2, -1))[:, None]


def statistics(A_BHTS: Tensor, rows_BT: Tensor, sink_rows_BT: Tensor | None = None) -> dict[str, np.ndarray]:
    """By name, each measure of weights over these rows, of every sequence and head; sink rates may have other rows."""
    sink_rows_BT = rows_BT if sink_rows_BT is None else sink_rows_BT
    found = {
        "sink_rate": is_sink(A_BHTS, sink_rows_BT),
        "sink_rate_normalised": is_sink(normalised(A_BHTS), sink_rows_BT),
        "first_token_mass": first_token_mass(A_BHTS, rows_BT),
        "row_entropy": row_entropy(A_BHTS, rows_BT),
        "sparsity": sparsity(A_BHTS, rows_BT),
    }
    lost_BH = ~A_BHTS.isfinite().flatten(2).all(dim=-1)  # where a comparison would make a number of what is none
    return {name: values_BH.double().masked_fill(lost_BH, torch.nan).cpu().numpy() for name, values_BH in found.items()}


def kurtosis(hidden: list[Tensor]) -> float:
    """Of all numbers of all tensors together; NaN where they are all equal."""
    pooled_N = torch.cat([h.double().flatten() for h in hidden])
    centred_N = pooled_N - pooled_N.mean()
    return float(centred_N.pow(4).mean() / centred_N.square().mean().square())


def hidden_max(hidden: list[Tensor]) -> float:
    """The largest magnitude among all numbers."""
    return max(float(h.abs().max()) for h in hidden)
