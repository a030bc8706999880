"""What every mechanism must do, whatever its equations: one function a promise, each raising AssertionError.

`tests/test_mixers.py` holds every mechanism to them, with its default arguments and with those of any run in
`papers/`; `tests/test_bugs.py` shows that they catch what they are for. Before a check, noise is added to all
weights: what starts at zero or at the identity hides leaks.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

import impls
from impls import ops
from impls.base import RecurrentMixer, ScoreMixer, TokenMixer

PAPERS = Path(__file__).parents[1] / "papers"
LENGTHS = (1, 2, 7, 33, 64, 65, 130)
TRAIN_LENGTH = 64  # what an argument "train_length" becomes here
WIDTHS = (32, 48, 96, 64, 128)  # d_model: the first that suits the mechanism


class Case(NamedTuple):
    """A mechanism and its arguments."""

    impl: str
    args: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return "-".join([self.impl, *(f"{name}={value}" for name, value in self.args)])


@cache
def cases_by_impl() -> dict[str, list[Case]]:
    """Default arguments, and those of each run of each paper."""
    found = defaultdict(list, {name: [Case(name, ())] for name in impls.names()})
    for path in sorted(PAPERS.glob("*.yaml")):
        for run in (yaml.safe_load(path.read_text()) or {}).get("runs", {}).values():
            args = {n: TRAIN_LENGTH if z == "train_length" else z for n, z in (run.get("args") or {}).items()}
            case = Case(run["impl"], tuple(sorted(args.items())))
            if case.impl in found and case not in found[case.impl]:
                found[case.impl].append(case)
    return found


def build(case: Case, seed: int = 0) -> TokenMixer:
    """The mixer at the smallest width that its arguments allow."""
    for d_model in WIDTHS:
        torch.manual_seed(seed)
        try:
            mixer = impls.build(case.impl, d_model, dict(case.args))
        except ValueError:
            continue
        mixer.tested_width = d_model  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        return mixer
    raise ValueError(f"{case}: no width of {WIDTHS} suits it")


def width(mixer: nn.Module) -> int:
    return mixer.tested_width  # pyright: ignore[reportReturnType]


def nudged(case: Case, dtype: torch.dtype = torch.float64) -> TokenMixer:
    return nudge(build(case)).to(dtype)


def nudge(mixer: TokenMixer, seed: int = 7) -> TokenMixer:
    """Noise on every parameter, in evaluation mode."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw)
    return mixer.eval()


def tokens(mixer: nn.Module, T: int, B: int = 2, seed: int = 0) -> Tensor:
    """x_BTD in the dtype of the weights."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, width(mixer), generator=draw, dtype=torch.float64).to(next(mixer.parameters()).dtype)


def close(a: Tensor, b: Tensor, message: str, tolerance: float = 1e-9) -> None:
    assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text: f"{message}: {text}")


# the checks -----------------------------------------------------------------------------------------------------------


def any_length_and_prefix(mixer: TokenMixer) -> None:
    """T of any value works, and y(x)[:, :t] = y(x[:, :t]): what leaks by length alone shows only here."""
    x_BTD = tokens(mixer, max(LENGTHS))
    with torch.no_grad():
        full_BTD = mixer(x_BTD)
        for T in LENGTHS:
            y_BTD = mixer(x_BTD[:, :T])
            assert y_BTD.shape == (2, T, width(mixer)), f"T={T}: shape {tuple(y_BTD.shape)}"
            assert y_BTD.dtype == x_BTD.dtype, f"T={T}: dtype {y_BTD.dtype}"
            assert y_BTD.isfinite().all(), f"T={T}: not finite"
            close(y_BTD, full_BTD[:, :T], f"prefix of {T} tokens")


def no_gradient_from_the_future(mixer: TokenMixer) -> None:
    """dy_t/dx_s = 0 for s > t, by the Jacobian of some rows; and dy_t/dx_t is not 0 everywhere."""
    x_BTD = tokens(mixer, 35, B=1).requires_grad_()
    y_BTD = mixer(x_BTD)
    for t in (0, 1, 15, 16, 31, 32, 33):
        direction_D = torch.randn(width(mixer), generator=torch.Generator().manual_seed(t), dtype=x_BTD.dtype)
        (grad_BTD,) = torch.autograd.grad(y_BTD[0, t] @ direction_D, x_BTD, retain_graph=True)
        assert grad_BTD[:, t + 1 :].abs().max() == 0, f"y_{t} depends on a later token"


def no_change_from_the_future(mixer: TokenMixer) -> None:
    """Nothing that is done to x[:, t:] changes y[:, :t]."""
    x_BTD = tokens(mixer, 35)
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        for t in (1, 16, 33):
            changed_BTD = x_BTD.clone()
            changed_BTD[:, t:] = 30 * tokens(mixer, 35 - t, seed=1)
            close(mixer(changed_BTD)[:, :t], y_BTD[:, :t], f"a change from token {t} on")


def the_past_is_used(mixer: TokenMixer) -> None:
    """y depends on the token and, for some row, on each earlier one."""
    x_BTD = tokens(mixer, 8, B=8).requires_grad_()
    y_BTD = mixer(x_BTD)
    weight_BD = torch.randn(8, width(mixer), generator=torch.Generator().manual_seed(3), dtype=x_BTD.dtype)
    (grad_BTD,) = torch.autograd.grad((y_BTD[:, -1] * weight_BD).sum(), x_BTD)
    for t, largest in enumerate(grad_BTD.abs().amax(dim=(0, 2)).tolist()):
        assert largest > 1e-9, f"the last output does not depend on token {t} of 8"


def rows_are_independent(mixer: TokenMixer) -> None:
    x_BTD = tokens(mixer, 33, B=3)
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        for row in range(3):
            close(mixer(x_BTD[row : row + 1]), y_BTD[row : row + 1], f"row {row} alone")


def decoding_equals_forward(mixer: TokenMixer) -> None:
    """prefill(x[:, :n]) and steps after it give forward's outputs, for n around chunk borders, 1 and T - 1."""
    x_BTD = tokens(mixer, 67)
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        for n, steps in ((1, 20), (15, 3), (16, 2), (17, 1), (31, 2), (32, 2), (33, 1), (63, 3), (64, 3), (66, 1)):
            prefix_BTD, state = mixer.prefill(x_BTD[:, :n])
            close(prefix_BTD, y_BTD[:, :n], f"prefill of {n}")
            for t in range(n, n + steps):
                y_BD, state = mixer.step(x_BTD[:, t], state)
                assert y_BD.shape == x_BTD[:, t].shape, f"step gives shape {tuple(y_BD.shape)}"
                close(y_BD, y_BTD[:, t], f"prefill of {n}, then step {t}")


def recurrence_equals_forward(mixer: TokenMixer) -> None:
    """step from init_state; also where prefill never uses either."""
    if not isinstance(mixer, RecurrentMixer):
        return
    x_BTD = tokens(mixer, 40)
    with torch.no_grad():
        y_BTD, state = mixer(x_BTD), mixer.init_state(2)
        for t in range(40):
            y_BD, state = mixer.step(x_BTD[:, t], state)
            close(y_BD, y_BTD[:, t], f"step {t} from init_state")


def gradients_reach_every_parameter(mixer: TokenMixer) -> None:
    mixer = copy.deepcopy(mixer)
    x_BTD = tokens(mixer, 40, B=4)
    weight_BTD = torch.randn(x_BTD.shape, generator=torch.Generator().manual_seed(4), dtype=x_BTD.dtype)
    (mixer(x_BTD) * weight_BTD).sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"{name}: gradient is not finite"
        assert (parameter.grad != 0).any(), f"{name}: gradient is zero"


def bfloat16_tracks_float64(mixer: TokenMixer) -> None:
    """With weights and inputs in bfloat16, and in bfloat16 autocast, y is near that of float64."""
    low = copy.deepcopy(mixer).bfloat16()
    x_BTD = tokens(low, 70)
    with torch.no_grad():
        exact_BTD = copy.deepcopy(low).double()(x_BTD.double())
        y_BTD = low(x_BTD)
        with torch.autocast("cpu", torch.bfloat16):
            auto_BTD = copy.deepcopy(low).float()(x_BTD.float())
    assert y_BTD.dtype == torch.bfloat16, f"bfloat16 in, {y_BTD.dtype} out"
    for name, found_BTD in (("bfloat16", y_BTD), ("autocast", auto_BTD)):
        assert found_BTD.isfinite().all(), f"{name}: not finite"
        error = (found_BTD.double() - exact_BTD).norm() / exact_BTD.norm()
        assert error < 0.05, f"{name} is {error:.3f} from float64"


def weights_are_causal_and_explain_the_output(mixer: TokenMixer) -> None:
    """A_BHTS is 0 for s > t and, where the layer is nothing but A @ values, gives its output."""
    x_BTD = tokens(mixer, 33)
    with torch.no_grad():
        A_BHTS = mixer.weights(x_BTD)
        if A_BHTS is None:
            return
        assert A_BHTS.shape[0] == 2, f"weights have shape {tuple(A_BHTS.shape)}"
        assert A_BHTS.shape[2:] == (33, 33), f"weights have shape {tuple(A_BHTS.shape)}"
        assert A_BHTS.isfinite().all(), "weights are not finite"
        assert (A_BHTS.triu(1) == 0).all(), "a weight on a later token"
        if isinstance(mixer, ScoreMixer) and type(mixer).mix is ScoreMixer.mix:
            _, _, v_BHTV = mixer.project(x_BTD)
            close(mixer.out(ops.merge_heads(A_BHTS @ v_BHTV)), mixer(x_BTD), "A @ values")


def state_size(mixer: TokenMixer, T: int) -> int:
    """Numbers in the state after T tokens and one step."""
    with torch.no_grad():
        x_BTD = tokens(mixer, T + 1)
        _, state = mixer.step(x_BTD[:, T], mixer.prefill(x_BTD[:, :T])[1])
    return sum(leaf.numel() for leaf in tree_leaves(state) if isinstance(leaf, Tensor))


def state_grows_as_promised(mixer: TokenMixer) -> None:
    """Not at all for a RecurrentMixer; else by the same amount a token."""
    sizes = [state_size(mixer, T) for T in (9, 29, 49)]
    if isinstance(mixer, RecurrentMixer):
        assert sizes[0] == sizes[1] == sizes[2], f"state of {sizes} numbers after 10, 30 and 50 tokens"
    else:
        assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 0, f"state of {sizes} numbers after 10, 30 and 50 tokens"


def packed_documents_do_not_meet(mixer: TokenMixer) -> None:
    lengths = [5, 1, 2, 30]
    x_BTD = tokens(mixer, sum(lengths))
    with torch.no_grad():
        alone_BTD = torch.cat([mixer(document) for document in x_BTD.split(lengths, dim=1)], dim=1)
        close(mixer.packed(x_BTD, lengths), alone_BTD, "packed")
        for wrong in ([5, 1], [38, 0]):
            try:
                mixer.packed(x_BTD, wrong)
            except ValueError:
                continue
            raise AssertionError(f"lengths {wrong} of 38 tokens were accepted")


def extreme_inputs_stay_finite(mixer: TokenMixer) -> None:
    """Zeros, constants, tiny, huge and alternating rows in float32, and outputs that do not grow with time."""
    mixer = copy.deepcopy(mixer).float()
    x_BTD = tokens(mixer, 66)
    sign_T1 = (1 - 2 * (torch.arange(66.0) % 2))[:, None]
    spike_BTD = x_BTD.clone()
    spike_BTD[:, 5] *= 1e4
    one_BTD = torch.ones_like(x_BTD)
    extremes = {"zeros": 0 * one_BTD, "ones": one_BTD, "tiny": 1e-6 * x_BTD, "x30": 30 * x_BTD, "x1000": 1e3 * x_BTD}
    extremes |= {
        "1e3": 1e3 * one_BTD,
        "-1e3": -1e3 * one_BTD,
        "alternating": 50 * sign_T1 * one_BTD,
        "spike": spike_BTD,
    }
    for name, extreme_BTD in extremes.items():
        extreme_BTD.requires_grad_()
        y_BTD = mixer(extreme_BTD)
        assert y_BTD.isfinite().all(), f"{name}: output is not finite"
        mixer.zero_grad()
        y_BTD.sum().backward()
        for what, grad in [("input", extreme_BTD.grad), *((n, p.grad) for n, p in mixer.named_parameters())]:
            assert grad is None or grad.isfinite().all(), f"{name}: gradient of {what} is not finite"
    with torch.no_grad():
        y_BTD = mixer(tokens(mixer, 600, B=1))
    early, late = y_BTD[:, :100].abs().max().item(), y_BTD[:, -100:].abs().max().item()
    assert late < 1e3 * max(early, 1e-3), f"output grows from {early:.2g} to {late:.2g}"


def evaluation_is_pure(mixer: TokenMixer) -> None:
    """Same input, same bits, whatever ran in between; no global random numbers; the input is left alone."""
    x_BTD = tokens(mixer, 33)
    kept_BTD, before = x_BTD.clone(), torch.get_rng_state()
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        state = mixer.prefill(tokens(mixer, 50, seed=1))[1]
        mixer.step(x_BTD[:, 0], state)
        mixer(x_BTD[:1, :1])
        again_BTD = mixer(x_BTD)
    assert torch.equal(y_BTD, again_BTD), "same input, another output"
    assert torch.equal(before, torch.get_rng_state()), "global random numbers were drawn"
    assert torch.equal(kept_BTD, x_BTD), "the input was changed"


def steps_leave_their_state_alone(mixer: TokenMixer) -> None:
    """Two continuations of one prefix: the second must not see the first."""
    x_BTD, y_BTD = tokens(mixer, 10), tokens(mixer, 10, seed=1)
    with torch.no_grad():
        _, state = mixer.prefill(x_BTD)
        first_BD, _ = mixer.step(x_BTD[:, 0], state)
        mixer.step(y_BTD[:, 0], state)
        again_BD, _ = mixer.step(x_BTD[:, 0], state)
    assert torch.equal(first_BD, again_BD), "a step changed the state it was given"


CHECKS: tuple[Callable[[TokenMixer], None], ...] = (
    any_length_and_prefix,
    no_gradient_from_the_future,
    no_change_from_the_future,
    the_past_is_used,
    rows_are_independent,
    decoding_equals_forward,
    recurrence_equals_forward,
    gradients_reach_every_parameter,
    bfloat16_tracks_float64,
    weights_are_causal_and_explain_the_output,
    state_grows_as_promised,
    packed_documents_do_not_meet,
    extreme_inputs_stay_finite,
    evaluation_is_pure,
    steps_leave_their_state_alone,
)


class Watched:
    """A config that remembers which of its fields were read."""

    def __init__(self, cfg: Any):
        self.__dict__.update(cfg=cfg, read=set())

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.cfg, name)


def another(value: Any) -> list[Any]:
    """Other values to try for a field that has this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value // 2, value * 2, value + 1]
    if isinstance(value, float):
        return [value / 2, value * 2, value + 1]
    if isinstance(value, tuple | list) and value:
        return [[z + 1 for z in value], [z / 2 for z in value]]
    return []


def config_is_closed_and_alive(mixer_class: type, d_model: int) -> None:
    """Frozen, keyword-only, unknown names refused, every field read and every number of consequence."""
    cfg = mixer_class.Config()
    for field in dataclasses.fields(cfg):
        assert field.kw_only, f"{field.name} is positional"
        try:
            setattr(cfg, field.name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"{field.name} can be assigned to")
    try:
        mixer_class.Config(no_such_field=1)
    except TypeError:
        pass
    else:
        raise AssertionError("an unknown field is accepted")
    watched = Watched(cfg)
    mixer_class(d_model, watched)
    unread = {field.name for field in dataclasses.fields(cfg)} - watched.read
    assert not unread, f"fields never read: {sorted(unread)}"
    plain = fingerprint(mixer_class, d_model, cfg)
    for field in dataclasses.fields(cfg):
        others = []
        for value in another(getattr(cfg, field.name)):
            try:
                others.append(fingerprint(mixer_class, d_model, dataclasses.replace(cfg, **{field.name: value})))
            except (ValueError, TypeError):
                continue
        assert not others or any(other != plain for other in others), f"{field.name} changes nothing"


def fingerprint(mixer_class: type, d_model: int, cfg: Any) -> list[Any]:
    """Parameter shapes, and outputs of one seed: in training mode too, where averages move, and of large inputs."""
    torch.manual_seed(0)
    mixer = nudge(mixer_class(d_model, cfg)).double()
    x_BTD = torch.randn(2, 12, d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outputs = [mixer(x_BTD), mixer(30 * x_BTD), mixer.train()(x_BTD), mixer(x_BTD)]
    return [tuple(p.shape) for p in mixer.parameters()] + [y_BTD.tolist() for y_BTD in outputs]
