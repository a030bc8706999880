"""What every mechanism must do, whatever its equations: one function a promise, each raising AssertionError.

`tests/test_mixers.py` holds every mechanism to them; `tests/test_bugs.py` shows that they catch what they are for.
They are given mixers in float64 whose weights have had noise added: what starts at zero or at the identity hides leaks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from impls import ops
from impls.base import RecurrentMixer, ScoreMixer, TokenMixer
from tests.cases import tokens, width

LENGTHS = (1, 2, 7, 33, 64, 65, 130)


def close(a: Tensor, b: Tensor, message: str, tolerance: float = 1e-9) -> None:
    assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text: f"{message}: {text}")


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
    mixer = copy.deepcopy(mixer).train()  # where a choice has no slope, training may put another in its place
    x_BTD = tokens(mixer, 70, B=4)
    weight_BTD = torch.randn(x_BTD.shape, generator=torch.Generator().manual_seed(4), dtype=x_BTD.dtype)
    (mixer(x_BTD) * weight_BTD).sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"{name}: gradient is not finite"
        assert (parameter.grad != 0).any(), f"{name}: gradient is zero"


def gradients_are_the_slope(mixer: TokenMixer) -> None:
    """Along one direction in x and all parameters at once, by a central difference: nothing is detached."""
    mixer = copy.deepcopy(mixer)
    x_BTD = tokens(mixer, 20)
    draw = torch.Generator().manual_seed(6)
    weight_BTD = torch.randn(x_BTD.shape, generator=draw, dtype=x_BTD.dtype)
    moved = [x_BTD.requires_grad_(), *mixer.parameters()]
    along = [torch.randn(z.shape, generator=draw, dtype=z.dtype) for z in moved]
    y_BTD = mixer(x_BTD)
    grads = torch.autograd.grad((y_BTD * weight_BTD).sum(), moved, allow_unused=True, materialize_grads=True)
    slope = sum((grad * d).sum() for grad, d in zip(grads, along, strict=True))
    ends = []
    with torch.no_grad():
        for distance in (1e-6, -2e-6):  # to one side, then to the other
            for z, d in zip(moved, along, strict=True):
                z += distance * d
            ends.append((mixer(x_BTD) * weight_BTD).sum())
    close(torch.as_tensor(slope), (ends[0] - ends[1]) / 2e-6, "gradient and slope", tolerance=1e-5)


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
    gradients_are_the_slope,
    bfloat16_tracks_float64,
    weights_are_causal_and_explain_the_output,
    state_grows_as_promised,
    packed_documents_do_not_meet,
    extreme_inputs_stay_finite,
    evaluation_is_pure,
    steps_leave_their_state_alone,
)
