"""What every layer must do, whatever its equations: one function a promise.

Each is given a mixer in float64 whose weights have had noise added, for what starts at zero or at the identity hides
leaks. It returns what it measured, or raises AssertionError. `tests/test_bugs.py` shows that they catch what they are
for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from harness.proofs.cases import tokens, width
from harness.proofs.gauge import Found, Gauge, NotApplicable, Violation
from impls import ops
from impls.base import RecurrentMixer, ScoreMixer, TokenMixer

Check = Callable[[TokenMixer], Found]

LENGTHS = (1, 2, 7, 33, 64, 65, 130)
SPLITS = ((15, 3), (16, 2), (17, 1), (31, 2), (32, 2), (33, 1), (63, 3), (64, 2), (65, 1))  # prefill, then steps
LONGEST = 67  # tokens of a decoded row


def any_length(mixer: TokenMixer) -> Found:
    """Rows of 1, 2, 7, 33, 64, 65 and 130 tokens give finite outputs of their own shape and dtype."""
    x_BTD = tokens(mixer, max(LENGTHS))
    with torch.no_grad():
        for T in LENGTHS:
            y_BTD = mixer(x_BTD[:, :T])
            assert y_BTD.shape == (2, T, width(mixer)), f"T={T}: shape {tuple(y_BTD.shape)}"
            assert y_BTD.dtype == x_BTD.dtype, f"T={T}: dtype {y_BTD.dtype}"
            assert y_BTD.isfinite().all(), f"T={T}: not finite"
    return Found(len(LENGTHS), None, "lengths tried")


def causal_by_prefix(mixer: TokenMixer) -> Found:
    """Cutting later tokens off changes no output: y(x)[:, :t] = y(x[:, :t]). What leaks by length shows only here."""
    x_BTD, gauge = tokens(mixer, max(LENGTHS)), Gauge()
    with torch.no_grad():
        full_BTD = mixer(x_BTD)
        for T in LENGTHS:
            gauge.close(mixer(x_BTD[:, :T]), full_BTD[:, :T], f"a prefix of {T} tokens")
    return gauge.found("largest change of an output")


def causal_by_jacobian(mixer: TokenMixer) -> Found:
    """The gradient of an output by any later token is exactly zero."""
    x_BTD = tokens(mixer, 35, B=1).requires_grad_()
    y_BTD = mixer(x_BTD)
    for t in (0, 1, 15, 16, 31, 32, 33):
        direction_D = torch.randn(width(mixer), generator=torch.Generator().manual_seed(t), dtype=x_BTD.dtype)
        (grad_BTD,) = torch.autograd.grad(y_BTD[0, t] @ direction_D, x_BTD, retain_graph=True)
        leak = grad_BTD[:, t + 1 :].abs().max().item()
        if leak != 0:
            raise Violation(f"output {t} depends on a later token: gradient {leak:.2g}", leak, 0.0)
    return Found(0.0, 0.0, "largest gradient by a later token")


def causal_by_edit(mixer: TokenMixer) -> Found:
    """Nothing that is done to later tokens changes an output, however large they become."""
    x_BTD, gauge = tokens(mixer, 35), Gauge()
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        for t in (1, 16, 33):
            changed_BTD = x_BTD.clone()
            changed_BTD[:, t:] = 30 * tokens(mixer, 35 - t, seed=1)
            gauge.close(mixer(changed_BTD)[:, :t], y_BTD[:, :t], f"an output before a change from token {t} on")
    return gauge.found("largest change of an output")


def past_used(mixer: TokenMixer) -> Found:
    """The last output depends on every token of a short row."""
    x_BTD = tokens(mixer, 8, B=8).requires_grad_()
    y_BTD = mixer(x_BTD)
    weight_BD = torch.randn(8, width(mixer), generator=torch.Generator().manual_seed(3), dtype=x_BTD.dtype)
    (grad_BTD,) = torch.autograd.grad((y_BTD[:, -1] * weight_BD).sum(), x_BTD)
    largest_T = grad_BTD.abs().amax(dim=(0, 2)).tolist()
    for t, largest in enumerate(largest_T):
        assert largest > 1e-9, f"the last output does not depend on token {t} of 8"
    return Found(min(largest_T), None, "least of the gradients by each token, which must exceed 1e-9")


def rows_independent(mixer: TokenMixer) -> Found:
    """A row gives the same output alone as beside others."""
    x_BTD, gauge = tokens(mixer, 33, B=3), Gauge()
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        for row in range(3):
            gauge.close(mixer(x_BTD[row : row + 1]), y_BTD[row : row + 1], f"row {row} alone")
    return gauge.found("largest change of an output")


def decoding(mixer: TokenMixer) -> Found:
    """Prefill and steps give the outputs of the whole row: token by token, the last alone, and by chunk borders."""
    x_BTD, gauge = tokens(mixer, LONGEST), Gauge()
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        for n, steps in ((1, LONGEST - 1), *SPLITS, (LONGEST - 1, 1)):
            prefix_BTD, state = mixer.prefill(x_BTD[:, :n])
            gauge.close(prefix_BTD, y_BTD[:, :n], f"a prefill of {n}")
            for t in range(n, n + steps):
                y_BD, state = mixer.step(x_BTD[:, t], state)
                gauge.close(y_BD, y_BTD[:, t], f"step {t} after a prefill of {n}")
    return gauge.found("largest difference from the whole row")


def recurrence(mixer: TokenMixer) -> Found:
    """The recurrence from its first state on gives the outputs of the whole row."""
    if not isinstance(mixer, RecurrentMixer):
        raise NotApplicable("it keeps its past token by token, and has no state to start from")
    x_BTD, gauge = tokens(mixer, 40), Gauge()
    with torch.no_grad():
        y_BTD, state = mixer(x_BTD), mixer.init_state(2)
        for t in range(40):
            y_BD, state = mixer.step(x_BTD[:, t], state)
            gauge.close(y_BD, y_BTD[:, t], f"step {t} from the first state")
    return gauge.found("largest difference from the whole row")


def live_gradients(mixer: TokenMixer) -> Found:
    """Every parameter gets a gradient that is finite and not zero everywhere."""
    mixer = copy.deepcopy(mixer).train()  # where a choice has no slope, training may put another in its place
    x_BTD = tokens(mixer, 70, B=4)
    weight_BTD = torch.randn(x_BTD.shape, generator=torch.Generator().manual_seed(4), dtype=x_BTD.dtype)
    (mixer(x_BTD) * weight_BTD).sum().backward()
    least = float("inf")
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert (parameter.grad != 0).any(), f"the gradient of {name} is zero"
        least = min(least, parameter.grad.abs().max().item())
    return Found(least, None, "least of the parameters' largest gradients, which must exceed 0")


def slope(mixer: TokenMixer) -> Found:
    """The gradient along one direction in inputs and all parameters at once is the slope: nothing is detached."""
    mixer = copy.deepcopy(mixer)
    x_BTD = tokens(mixer, 20)
    draw = torch.Generator().manual_seed(6)
    weight_BTD = torch.randn(x_BTD.shape, generator=draw, dtype=x_BTD.dtype)
    moved = [x_BTD.requires_grad_(), *mixer.parameters()]
    along = [torch.randn(z.shape, generator=draw, dtype=z.dtype) for z in moved]
    y_BTD = mixer(x_BTD)
    grads = torch.autograd.grad((y_BTD * weight_BTD).sum(), moved, allow_unused=True, materialize_grads=True)
    total = sum((grad * d).sum() for grad, d in zip(grads, along, strict=True))
    ends = []
    with torch.no_grad():
        for distance in (1e-6, -2e-6):  # to one side, then to the other
            for z, d in zip(moved, along, strict=True):
                z += distance * d
            ends.append((mixer(x_BTD) * weight_BTD).sum())
    gauge = Gauge(tolerance=1e-5)
    gauge.close(torch.as_tensor(total), (ends[0] - ends[1]) / 2e-6, "the gradient")
    return gauge.found("difference between gradient and slope")


def bfloat16(mixer: TokenMixer) -> Found:
    """With weights and inputs in bfloat16, and in bfloat16 autocast, outputs are near those of float64."""
    low = copy.deepcopy(mixer).bfloat16()
    x_BTD, gauge = tokens(low, 70), Gauge(tolerance=0.05)
    with torch.no_grad():
        exact_BTD = copy.deepcopy(low).double()(x_BTD.double())
        y_BTD = low(x_BTD)
        with torch.autocast("cpu", torch.bfloat16):
            auto_BTD = copy.deepcopy(low).float()(x_BTD.float())
    assert y_BTD.dtype == torch.bfloat16, f"bfloat16 in, {y_BTD.dtype} out"
    for name, found_BTD in (("bfloat16", y_BTD), ("autocast", auto_BTD)):
        assert found_BTD.isfinite().all(), f"{name}: not finite"
        error = (found_BTD.double() - exact_BTD).norm() / exact_BTD.norm()
        gauge.small(error.item(), f"{name} is far from float64")
    return gauge.found("largest relative error")


def weights_explain(mixer: TokenMixer) -> Found:
    """The weights shown are 0 for later tokens and, where a layer is nothing but A @ values, give its output."""
    x_BTD, gauge = tokens(mixer, 33), Gauge()
    with torch.no_grad():
        A_BHTS = mixer.weights(x_BTD)
        if A_BHTS is None:
            raise NotApplicable("its paper defines no attention weights")
        assert A_BHTS.shape[0] == 2, f"weights have shape {tuple(A_BHTS.shape)}"
        assert A_BHTS.shape[2:] == (33, 33), f"weights have shape {tuple(A_BHTS.shape)}"
        assert A_BHTS.isfinite().all(), "weights are not finite"
        assert (A_BHTS.triu(1) == 0).all(), "a weight on a later token"
        if not (isinstance(mixer, ScoreMixer) and type(mixer).mix is ScoreMixer.mix):
            return Found(0.0, 0.0, "largest weight on a later token; its output is more than weights times values")
        _, _, v_BHTV = mixer.project(x_BTD)
        gauge.close(mixer.out(ops.merge_heads(A_BHTS @ v_BHTV)), mixer(x_BTD), "A @ values")
    return gauge.found("largest difference between A @ values and the output")


def state_size(mixer: TokenMixer, T: int) -> int:
    """Numbers in the state after T tokens and one step."""
    with torch.no_grad():
        x_BTD = tokens(mixer, T + 1)
        _, state = mixer.step(x_BTD[:, T], mixer.prefill(x_BTD[:, :T])[1])
    return sum(leaf.numel() for leaf in tree_leaves(state) if isinstance(leaf, Tensor)) // 2


def state(mixer: TokenMixer) -> Found:
    """The state of one row does not grow where the paper gives a recurrence; else by the same amount a token."""
    sizes = [state_size(mixer, T) for T in (9, 29, 49)]
    text = f"{sizes[0]:,}, {sizes[1]:,} and {sizes[2]:,} numbers after 10, 30 and 50 tokens"
    growth = sizes[2] - sizes[1]
    if isinstance(mixer, RecurrentMixer):
        if not sizes[0] == sizes[1] == sizes[2]:
            raise Violation(f"a recurrence whose state grows: {text}", growth / 20, 0.0)
        return Found(0.0, 0.0, f"growth a token: {text}")
    assert growth == sizes[1] - sizes[0] > 0, f"a state that does not grow by the same amount a token: {text}"
    return Found(growth / 20, None, f"growth a token: {text}")


def packed(mixer: TokenMixer) -> Found:
    """Documents packed into one row are mixed as if each were alone, and lengths that do not fit are refused."""
    lengths, gauge = [5, 1, 2, 30], Gauge()
    x_BTD = tokens(mixer, sum(lengths))
    with torch.no_grad():
        alone_BTD = torch.cat([mixer(document) for document in x_BTD.split(lengths, dim=1)], dim=1)
        gauge.close(mixer.packed(x_BTD, lengths), alone_BTD, "a packed row")
        for wrong in ([5, 1], [38, 0]):
            try:
                mixer.packed(x_BTD, wrong)
            except ValueError:
                continue
            raise Violation(f"lengths {wrong} of 38 tokens were accepted")
    return gauge.found("largest difference from documents alone")


def pure(mixer: TokenMixer) -> Found:
    """In evaluation equal inputs give equal bits; no random number is drawn, no input or earlier state changed."""
    x_BTD, other_BTD = tokens(mixer, 33), tokens(mixer, 50, seed=1)
    kept_BTD, before = x_BTD.clone(), torch.get_rng_state()
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        state = mixer.prefill(other_BTD)[1]
        first_BD, _ = mixer.step(x_BTD[:, 0], state)
        mixer.step(other_BTD[:, 0], state)
        second_BD, _ = mixer.step(x_BTD[:, 0], state)
        mixer(x_BTD[:1, :1])
        again_BTD = mixer(x_BTD)
    assert torch.equal(first_BD, second_BD), "a step changed the state it was given"
    assert torch.equal(y_BTD, again_BTD), "same input, another output"
    assert torch.equal(before, torch.get_rng_state()), "global random numbers were drawn"
    assert torch.equal(kept_BTD, x_BTD), "the input was changed"
    return Found(0.0, 0.0, "largest difference between two evaluations")
