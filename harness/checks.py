"""Properties of a mechanism that hold exactly or not at all: what a claim of kind `property` names as its `check`.

Each public function below takes a mixer of width WIDTH in float64, its weights nudged away from their special start,
and returns what was found. A check that cannot be asked of this kind of mixer raises ValueError with the reason.
"Exactly" means to within TOLERANCE of float64 arithmetic, on drawn inputs of growing scale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import isfunction, signature
from typing import Any

import torch

import impls
from harness import probe
from harness.probe import BATCH, LENGTH, NUDGE, TOLERANCE, WIDTH, Finding
from impls.base import TokenMixer


def names() -> list[str]:
    """Every check, in alphabetical order."""
    return sorted(name for name, value in vars(sys.modules[__name__]).items() if _is_check(name, value))


def summary(name: str) -> str:
    """The sentence that a check asserts."""
    return _find(name).__doc__ or ""


def run(name: str, impl: str, args: dict[str, Any]) -> Finding:
    """Ask a check of a mechanism with these arguments. Raises ValueError when it cannot be asked."""
    check = _find(name)
    args = {key: LENGTH if value == "train_length" else value for key, value in args.items()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        mixer = impls.build(impl, WIDTH, args).double().eval()
        for parameter in mixer.parameters():
            parameter.add_(NUDGE * torch.randn_like(parameter))
        return check(mixer)


def causal(mixer: TokenMixer) -> Finding:
    """The output at a token does not depend on later tokens."""
    error = 0.0
    for x_BTD in probe.inputs():
        y_BTD = mixer(x_BTD)
        error = max([error, *(probe.distance(mixer(x_BTD[:, :t]), y_BTD[:, :t]) for t in (1, 2, 7, LENGTH - 1))])
    return probe.is_zero(error, "largest change of an output when later tokens are cut off")


def step_equals_forward(mixer: TokenMixer) -> Finding:
    """Decoding token by token after a prefix gives the outputs of the whole sequence at once."""
    error = 0.0
    for x_BTD in probe.inputs():
        y_BTD = mixer(x_BTD)
        y_prefix_BTD, state = mixer.prefill(x_BTD[:, :7])
        error = max(error, probe.distance(y_prefix_BTD, y_BTD[:, :7]))
        for t in range(7, LENGTH):
            y_BD, state = mixer.step(x_BTD[:, t], state)
            error = max(error, probe.distance(y_BD, y_BTD[:, t]))
    return probe.is_zero(error, "largest difference between decoding and the whole sequence")


def state_constant_in_length(mixer: TokenMixer) -> Finding:
    """The state kept for decoding has the same size after any number of tokens."""
    short, long = probe.state_sizes(mixer)
    return Finding(short == long, f"{short:,} numbers after {LENGTH} tokens, {long:,} after {4 * LENGTH}")


def state_grows_with_length(mixer: TokenMixer) -> Finding:
    """The state kept for decoding grows with the number of tokens."""
    short, long = probe.state_sizes(mixer)
    return Finding(short < long, f"{short:,} numbers after {LENGTH} tokens, {long:,} after {4 * LENGTH}")


def rows_sum_to_one(mixer: TokenMixer) -> Finding:
    """The weights of every query sum to one."""
    error = max(float((A_BHTS.sum(-1) - 1).abs().max()) for A_BHTS in probe.weights(mixer))
    return probe.is_zero(error, "largest distance of a row sum from 1")


def rows_need_not_sum_to_one(mixer: TokenMixer) -> Finding:
    """The weights of some query do not sum to one."""
    error = max(float((A_BHTS.sum(-1) - 1).abs().max()) for A_BHTS in probe.weights(mixer))
    return Finding(error > 1e-3, f"largest distance of a row sum from 1: {error:.2g}")


def row_sums_within_unit(mixer: TokenMixer) -> Finding:
    """The weights of every query sum to something between zero and one."""
    sums = torch.cat([A_BHTS.sum(-1).flatten() for A_BHTS in probe.weights(mixer)])
    low, high = float(sums.min()), float(sums.max())
    return Finding(low >= -TOLERANCE and high <= 1 + TOLERANCE, f"row sums from {low:.3g} to {high:.3g}")


def absolute_rows_sum_to_one(mixer: TokenMixer) -> Finding:
    """The absolute weights of every query sum to one."""
    error = max(float((A_BHTS.abs().sum(-1) - 1).abs().max()) for A_BHTS in probe.weights(mixer))
    return probe.is_zero(error, "largest distance of a sum of absolute weights from 1")


def weights_not_negative(mixer: TokenMixer) -> Finding:
    """No weight is negative."""
    low = float(probe.visible(mixer).min())
    return Finding(low >= 0, f"least weight {low:.3g}")


def weights_of_both_signs(mixer: TokenMixer) -> Finding:
    """Some weights are negative and some positive."""
    seen = probe.visible(mixer)
    low, high = float(seen.min()), float(seen.max())
    return Finding(low < 0 < high, f"weights from {low:.3g} to {high:.3g}")


def weights_exact_zeros(mixer: TokenMixer) -> Finding:
    """Some visible keys get a weight of exactly zero."""
    zeros, text = probe.zeros(mixer)
    return Finding(zeros > 0, text)


def weights_no_zeros(mixer: TokenMixer) -> Finding:
    """No visible key gets a weight of exactly zero."""
    zeros, text = probe.zeros(mixer)
    return Finding(zeros == 0, text)


def zero_row_when_all_scores_negative(mixer: TokenMixer) -> Finding:
    """A query whose scores are all negative gives every key a weight of exactly zero."""
    scores = probe.score_mixer(mixer)
    largest = 0.0
    for x_BTD in probe.inputs():
        _, k_BHSK, _ = scores.project(x_BTD)
        k_BHSK = k_BHSK.abs() + 0.1
        largest = max(largest, float(scores.attention(-k_BHSK, k_BHSK, *scores.gates(x_BTD)).abs().max()))
    return Finding(largest == 0, f"largest absolute weight when q · k < 0 for every key: {largest:.2g}")


def softmax_of_length_one(mixer: TokenMixer) -> Finding:
    """Every head gives softmax attention scaled to length one, but where all scores are negative and epsilon shows."""
    scores, error = probe.score_mixer(mixer), 0.0
    hidden_TS = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    for x_BTD in probe.inputs():
        q_BHTK, k_BHSK, v_BHSV = scores.project(x_BTD)
        s_BHTS = (q_BHTK @ k_BHSK.mT * scores.head_dim**-0.5).masked_fill(hidden_TS, float("-inf"))
        unit_BHTV = torch.nn.functional.normalize(s_BHTS.softmax(dim=-1) @ v_BHSV, dim=-1)
        y_BHTV, seen_BHT = scores.mix(q_BHTK, k_BHSK, v_BHSV, *scores.gates(x_BTD)), s_BHTS.amax(dim=-1) >= 0
        error = max(error, probe.distance(y_BHTV[seen_BHT], unit_BHTV[seen_BHT]))
    return probe.is_zero(error, "largest difference from softmax attention of length one")


def weights_depend_on_own_score(mixer: TokenMixer) -> Finding:
    """The weight of a key depends on that key's score alone: the Jacobian of weights by scores is diagonal."""
    scores = probe.score_mixer(mixer)
    others, own = 0.0, 0.0
    for x_BTD in probe.inputs():
        q_BHTK, k_BHSK, _ = scores.project(x_BTD)
        gates = scores.gates(x_BTD)
        before_BHTS = scores.attention(q_BHTK, k_BHSK, *gates)
        for s in (0, LENGTH // 2):
            moved_BHSK = k_BHSK.clone()
            moved_BHSK[:, :, s] = 1.5 * moved_BHSK[:, :, s].flip(-1)
            change_BHTS = (scores.attention(q_BHTK, moved_BHSK, *gates) - before_BHTS).abs()
            own = max(own, float(change_BHTS[..., s].max()))
            change_BHTS[..., s] = 0
            others = max(others, float(change_BHTS.max()))
    detail = f"a changed key moves its own weights by up to {own:.2g} and those of other keys by {others:.2g}"
    return Finding(others <= TOLERANCE < own, detail)


def last_write_wins(mixer: TokenMixer) -> Finding:
    """With a write strength of one and no decay, reading a repeated unit key returns the last value written to it."""
    attend = getattr(sys.modules[type(mixer).__module__], "attend", None)
    wanted = signature(attend).parameters if attend else {}
    if attend is None or "beta" not in wanted:
        raise ValueError(f"{type(mixer).__module__} has no write strength beta, so no value is ever overwritten")
    generator = torch.Generator().manual_seed(0)
    k_BHTK = torch.nn.functional.normalize(
        torch.randn(BATCH, 1, 4, 8, generator=generator, dtype=torch.float64), dim=-1
    )
    k_BHTK = k_BHTK[:, :, [0, 1, 0, 2, 0]]  # the first key three times
    v_BHTV = torch.randn(BATCH, 1, 5, 6, generator=generator, dtype=torch.float64)
    ones_BHT = torch.ones(BATCH, 1, 5, dtype=torch.float64)
    given = {"beta": ones_BHT, "log_decay": torch.zeros_like(ones_BHT), "scale": 1.0}
    y_BHTV = attend(k_BHTK, k_BHTK, v_BHTV, **{name: value for name, value in given.items() if name in wanted})
    return probe.is_zero(
        probe.distance(y_BHTV, v_BHTV), "largest difference between the value read and the value last written"
    )


def existence_is_a_soft_mask(mixer: TokenMixer) -> Finding:
    """Existence of one and zero cuts a bidirectional sequence off; between them its gradient is nowhere zero."""
    attend = getattr(sys.modules[type(mixer).__module__], "attend", None)
    if attend is None or "existence" not in signature(attend).parameters:
        raise ValueError(f"{type(mixer).__module__} has no probability of existence")
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(BATCH, 2, 8, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    cut_BS = torch.ones(BATCH, 8, dtype=torch.float64)
    cut_BS[:, 5:] = 0
    whole = attend(q, k, v, cut_BS, 0.5)
    short = attend(q[:, :, :5], k[:, :, :5], v[:, :, :5], cut_BS[:, :5], 0.5)
    error = max(probe.distance(whole[:, :, :5], short), float(whole[:, :, 5:].abs().max()))
    with torch.enable_grad():
        p_BS = torch.linspace(1, 0.2, 8, dtype=torch.float64).expand(BATCH, 8).clone().requires_grad_()
        (slope_BS,) = torch.autograd.grad(attend(q, k, v, p_BS, 0.5).square().sum(), p_BS)
    least = float(slope_BS.abs().min())
    detail = f"largest difference from a sequence that ends there: {error:.2g}; least absolute slope: {least:.2g}"
    return Finding(error <= TOLERANCE and bool(slope_BS.isfinite().all()) and least > 0, detail)


def state_map_of_norm_one(mixer: TokenMixer) -> Finding:
    """The state before a token enters the state after it by a map whose spectral norm is exactly one."""
    norms = torch.cat([torch.linalg.matrix_norm(M_BHKK, 2).flatten() for M_BHKK in probe.state_maps(mixer)])
    low, high = float(norms.min()), float(norms.max())
    return Finding(max(1 - low, high - 1) <= TOLERANCE, f"spectral norms from {low:.6g} to {high:.6g}")


def query_length_ignored(mixer: TokenMixer) -> Finding:
    """A query whose features are twice as long gets the same output."""
    error = _longer_query(mixer)
    return Finding(error <= TOLERANCE, f"largest change of an output for a query twice as long: {error:.2g}")


def query_length_heeded(mixer: TokenMixer) -> Finding:
    """A query whose features are twice as long gets another output."""
    error = _longer_query(mixer)
    return Finding(error > 1e-3, f"largest change of an output for a query twice as long: {error:.2g}")


def slope_vanishes_at_full_weight(mixer: TokenMixer) -> Finding:
    """The weight of a key that leads all others by a score of 60 no longer moves with its score."""
    slope = _slope(mixer, 60.0)
    return Finding(abs(slope) <= TOLERANCE, f"slope of the weight by its own score: {slope:.2g}")


def slope_kept_at_full_weight(mixer: TokenMixer) -> Finding:
    """The weight of a key that leads all others by a score of 60 moves with its score by at least a half."""
    slope = _slope(mixer, 60.0)
    return Finding(abs(slope) >= 0.5, f"slope of the weight by its own score: {slope:.2g}")


def _longer_query(mixer: TokenMixer) -> float:
    """Change of the operator's output where `scale`, which multiplies a query or its features, is doubled.

    Of the equations, whatever this mixer's settings: rows divided by their sums, with nothing added to the denominator.
    """
    attend = getattr(sys.modules[type(mixer).__module__], "attend", None)
    wanted = set(signature(attend).parameters) if attend else set()
    given = {"eps": 0.0, "normalize": True}
    if attend is None or not {"q", "k", "v", "scale"} <= wanted <= {"q", "k", "v", "scale", *given}:
        raise ValueError(f"{type(mixer).__module__} has no operator of queries, keys, values and a scale alone")
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(BATCH, 2, LENGTH, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    fixed = {name: value for name, value in given.items() if name in wanted}
    return probe.distance(attend(q, k, v, scale=0.5, **fixed), attend(q, k, v, scale=1.0, **fixed))


def _slope(mixer: TokenMixer, lead: float) -> float:
    """dA/ds of the first key in the last row, s its score, all others having a score of 0."""
    scores = probe.score_mixer(mixer)
    gates = scores.gates(next(probe.inputs()))
    with torch.enable_grad():
        lead_1 = torch.tensor(lead, dtype=torch.float64, requires_grad=True)
        one = torch.zeros(BATCH, scores.heads, LENGTH, scores.head_dim, dtype=torch.float64)
        q, first = one.index_fill(3, torch.tensor([0]), 1.0), one.clone()
        first[:, :, 0, 0] = scores.head_dim**0.5
        (slope,) = torch.autograd.grad(scores.attention(q, lead_1 * first, *gates)[0, 0, -1, 0], lead_1)
    return float(slope)


def _is_check(name: str, value: Any) -> bool:
    public = isfunction(value) and value.__module__ == __name__ and not name.startswith("_") and name != "run"
    return public and value.__annotations__.get("return") == "Finding"


def _find(name: str) -> Callable[[TokenMixer], Finding]:
    if name not in names():
        raise ValueError(f"there is no check {name!r}")
    return getattr(sys.modules[__name__], name)
