"""The tests, tested: each mixer below has one planted bug, and the check that is named must raise.

The same checks pass on every mechanism as it is (`tests/test_mixers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.functional import conv1d, dropout, pad

from harness.proofs import contract, extremes, operator, vectors
from harness.proofs.cases import nudge
from harness.proofs.configs import config_is_closed_and_alive
from harness.proofs.gauge import Gauge
from impls import delta_net, gated_delta_net, gla, linear_attention, ops, retnet, sigmoid, softmax, softpick

pytestmark = pytest.mark.usefixtures("exact")

BUGS: list = []


def caught_by(*checks):
    """Plant the class under test: each of the checks alone must find the bug."""

    def plant(mixer_class):
        BUGS.extend(pytest.param(mixer_class, check, id=f"{mixer_class.__name__}-{check.__name__}") for check in checks)
        return mixer_class

    return plant


def equations(name):
    def check_equations(mixer):
        operator.layer_equals(mixer, operator.equations(name).forward, Gauge())

    return check_equations


@pytest.mark.parametrize(("mixer_class", "check"), BUGS)
def test_planted_bug_is_caught(mixer_class, check):
    torch.manual_seed(0)
    mixer = mixer_class(32, mixer_class.Config(heads=4))
    mixer.tested_width = 32
    with pytest.raises(mixer_class.raises if hasattr(mixer_class, "raises") else AssertionError):
        check(nudge(mixer).double())


class Masked(softmax.Mixer):
    """Softmax attention with a mask of one's own."""

    shift = 0

    def attention(self, q_BHTK, k_BHSK):
        T, S = q_BHTK.shape[2], k_BHSK.shape[2]
        visible_TS = torch.ones(T, S, dtype=torch.bool).tril(S - T + self.shift)
        visible_TS[:, 0] = True
        return ops.scores(q_BHTK, k_BHSK, self.scale).masked_fill(~visible_TS, float("-inf")).softmax(dim=-1)

    def mix(self, q_BHTK, k_BHSK, v_BHSV):
        return self.attention(q_BHTK, k_BHSK) @ v_BHSV


@caught_by(contract.causal_by_prefix, contract.causal_by_jacobian, contract.causal_by_edit)
class SeesTheNextToken(Masked):
    shift = 1


@caught_by(equations("softmax"))
class DoesNotSeeItself(Masked):
    shift = -1


@caught_by(contract.causal_by_jacobian, contract.weights_explain)
class NoMask(Masked):
    shift = 1000


@caught_by(contract.causal_by_prefix)
class SoftmaxOverQueries(Masked):
    def attention(self, q_BHTK, k_BHSK):
        mask_TS = ops.causal(q_BHTK.shape[2], k_BHSK.shape[2])
        return ops.scores(q_BHTK, k_BHSK, self.scale).masked_fill(~mask_TS, float("-inf")).softmax(dim=-2)


@caught_by(contract.causal_by_prefix)
class NormaliserOverTheWholeSequence(Masked):
    def attention(self, q_BHTK, k_BHSK):
        T, S = q_BHTK.shape[2], k_BHSK.shape[2]
        return ops.scores(q_BHTK, k_BHSK, self.scale).softmax(dim=-1).tril(S - T)


@caught_by(contract.causal_by_prefix)
class MaskedKeysEnlargeTheDenominator(softpick.Mixer):
    def attention(self, q_BHTK, k_BHSK):
        mask_TS = ops.causal(q_BHTK.shape[2], k_BHSK.shape[2])
        e_BHTS = ops.scores(q_BHTK, k_BHSK, self.scale).masked_fill(~mask_TS, float("-inf")).exp() - 1
        return e_BHTS.relu() / (e_BHTS.abs().sum(dim=-1, keepdim=True) + self.eps)


@caught_by(contract.causal_by_prefix, contract.decoding)
class BiasFromTheCurrentLength(sigmoid.Mixer):
    def attention(self, q_BHTK, k_BHSK):
        return sigmoid.weights(q_BHTK, k_BHSK, self.scale, -torch.tensor(float(k_BHSK.shape[2])).log().item())


@caught_by(contract.weights_explain)
class WeightsOfAnotherOperator(softpick.Mixer):
    def weights(self, x_BTD):
        q_BHTK, k_BHTK, _ = self.project(x_BTD)
        return softmax.weights(q_BHTK, k_BHTK, self.scale)


@caught_by(equations("softmax"))
class NoScale(softmax.Mixer):
    def __init__(self, d_model, cfg):
        super().__init__(d_model, cfg)
        self.scale = 1.0


@caught_by(equations("softmax"))
class NoNormaliser(Masked):
    def attention(self, q_BHTK, k_BHSK):
        T, S = q_BHTK.shape[2], k_BHSK.shape[2]
        return ops.scores(q_BHTK, k_BHSK, self.scale).exp().tril(S - T)


@caught_by(equations("softmax"))
class QueriesAndKeysSwapped(softmax.Mixer):
    def project(self, x_BTD, start=0):
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        return k_BHTK, q_BHTK, v_BHTV


@caught_by(equations("linear_attention"))
class ExpForElu(linear_attention.Mixer):
    def project(self, x_BTD):
        q, k, v = (ops.split_heads(z, self.heads) for z in self.qkv(x_BTD).chunk(3, dim=-1))
        return q.exp(), k.exp(), linear_attention.with_one(v)


@caught_by(equations("gla"))
class NoTemperature(gla.Mixer):
    def project(self, x_BTD):
        q, k, v, g, gate_BTV = super().project(x_BTD)
        return q, k, v, self.temperature * g, gate_BTV


def erase_before_decay(q, k, v, beta, log_decay, scale):
    """The delta rule reads the state before it decays."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for t in range(q.shape[2]):
        error_BH1V = beta[:, :, t, None, None] * (v[:, :, t, None] - k[:, :, t, None] @ S_BHKV)
        S_BHKV = log_decay[:, :, t, None, None].exp() * (S_BHKV + k[:, :, t, :, None] * error_BH1V)
        y_BHTV.append(scale * q[:, :, t, None] @ S_BHKV)
    return torch.cat(y_BHTV, dim=2)


def detached(q, k, v, scale):
    return retnet.attend(q, k.detach(), v, scale)


@pytest.mark.parametrize(("attend", "name"), [(erase_before_decay, "gated_delta_net"), (detached, "retnet")])
def test_wrong_operator_is_caught(attend, name):
    case = "mild" if name != "retnet" else "scaled"
    with pytest.raises(AssertionError, match="not close"):
        operator.operator_equals(attend, operator.equations(name).attend, vectors.cases(name)[case], case, Gauge())


@caught_by(contract.slope)
class DetachedKeys(softmax.Mixer):
    def project(self, x_BTD, start=0):
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        return q_BHTK, k_BHTK.detach(), v_BHTV


@caught_by(contract.live_gradients)
class DeadParameter(softmax.Mixer):
    def __init__(self, d_model, cfg):
        super().__init__(d_model, cfg)
        self.temperature = nn.Parameter(torch.ones(1))


@caught_by(contract.past_used)
class Identity(softmax.Mixer):
    def forward(self, x_BTD):
        return x_BTD


@caught_by(contract.rows_independent)
class BatchStatistics(softmax.Mixer):
    def forward(self, x_BTD):
        return super().forward(x_BTD - x_BTD.mean(dim=0))


@caught_by(contract.causal_by_prefix)
class StatisticsOverTime(softmax.Mixer):
    def forward(self, x_BTD):
        y_BTD = super().forward(x_BTD)
        return y_BTD / (y_BTD.std(dim=1, keepdim=True, correction=0) + 1e-3)


@caught_by(contract.pure)
class DropoutInEvaluation(softmax.Mixer):
    def forward(self, x_BTD):
        return dropout(super().forward(x_BTD), 0.1)


@caught_by(contract.pure)
class ChangesItsInput(softmax.Mixer):
    def forward(self, x_BTD):
        return super().forward(x_BTD.mul_(0.5))


@caught_by(contract.bfloat16)
class GivesFloat32(softmax.Mixer):
    def forward(self, x_BTD):
        return super().forward(x_BTD).float()


@caught_by(contract.packed)
class DocumentsMeet(softmax.Mixer):
    def packed(self, x_BTD, lengths):
        return self(x_BTD)


class Unread(softmax.Mixer):
    @dataclass(frozen=True, kw_only=True)
    class Config(softmax.Mixer.Config):
        window: int = 8


class ReadInVain(Unread):
    def __init__(self, d_model, cfg):
        super().__init__(d_model, cfg)
        self.window = cfg.window  # pyright: ignore[reportAttributeAccessIssue]


class Thawed(softmax.Mixer):
    @dataclass(kw_only=True)
    class Config:
        heads: int = 8
        rope: bool = True


@pytest.mark.parametrize(
    ("mixer_class", "words"),
    [(Unread, "never read.*window"), (ReadInVain, "window changes nothing"), (Thawed, "can be assigned to")],
)
def test_bad_config_is_caught(mixer_class, words):
    with pytest.raises(AssertionError, match=words):
        config_is_closed_and_alive(mixer_class, 32)


@caught_by(contract.causal_by_prefix)
class WholeChunksOnly(retnet.Mixer):
    raises = RuntimeError

    def forward(self, x_BTD):
        x_BTD.unflatten(1, (-1, min(16, x_BTD.shape[1])))
        return super().forward(x_BTD)


@caught_by(contract.causal_by_prefix)
class TailDropped(retnet.Mixer):
    def forward(self, x_BTD):
        y_BTD = super().forward(x_BTD).clone()
        y_BTD[:, x_BTD.shape[1] // 64 * 64 or x_BTD.shape[1] :] = 0
        return y_BTD


@caught_by(extremes.layer)
class DividesByTheDecay(gla.Mixer):
    def forward(self, x_BTD):
        q, k, v, g, gate_BTV = self.project(x_BTD)
        total_BHTK = g.cumsum(dim=2)
        A_BHTS = ((q * total_BHTK.exp()) @ (k * (-total_BHTK).exp()).mT).tril()
        return self.finish(A_BHTS @ v, gate_BTV)


@caught_by(extremes.layer)
class KeysOfAnyLength(delta_net.Mixer):
    def project(self, x_BTD, past_BWD):
        q, k, v, beta_BHT1, past_BWD = super().project(x_BTD, past_BWD)
        return q, 30 * k, v, beta_BHT1, past_BWD


@caught_by(extremes.layer)
class DividesByTheLength(softmax.Mixer):
    def project(self, x_BTD, start=0):
        q_BHTK, k_BHTK, v_BHTV = super().project(x_BTD, start)
        return q_BHTK / q_BHTK.norm(dim=-1, keepdim=True), k_BHTK, v_BHTV


@caught_by(contract.recurrence)
class UninitialisedState(linear_attention.Mixer):
    def init_state(self, batch):
        return linear_attention.State(torch.empty_like(super().init_state(batch).Sz_BHKV))


@caught_by(contract.recurrence)
class AnotherEpsilonInStep(linear_attention.Mixer):
    def step(self, x_BD, state):
        eps, self.eps = self.eps, 1e-3
        y_BD, state = super().step(x_BD, state)
        self.eps = eps
        return y_BD, state


@caught_by(contract.pure)
class StateInPlace(gla.Mixer):
    def step(self, x_BD, state):
        y_BD, after = super().step(x_BD, state)
        state.S_BHKV.copy_(after.S_BHKV)
        return y_BD, state


@caught_by(contract.pure)
class KeepsItsState(gla.Mixer):
    left: ClassVar = {}

    def forward(self, x_BTD):
        y_BTD, state = self.prefill(x_BTD)
        before, self.left["sum"] = self.left.get("sum", 0.0), state.S_BHKV.sum()
        return y_BTD + before


@caught_by(contract.decoding)
class ConvolutionForgetsThePrompt(delta_net.Mixer):
    def prefill(self, x_BTD):
        y_BTD, state = super().prefill(x_BTD)
        return y_BTD, state._replace(past_BWD=torch.zeros_like(state.past_BWD))


@caught_by(contract.decoding)
class LastGateLostInTheTail(gated_delta_net.Mixer):
    def prefill(self, x_BTD):
        y_BTD, state = super().prefill(x_BTD)
        gate_BH = self.project(x_BTD, self.init_state(len(x_BTD)).past_BWD)[4][:, :, -1]
        tail = x_BTD.shape[1] % 32 != 0
        return y_BTD, state._replace(S_BHKV=state.S_BHKV / gate_BH.exp()[..., None, None]) if tail else state


@caught_by(contract.decoding, contract.recurrence)
class PositionForgotten(retnet.Mixer):
    def project(self, x_BTD, start):
        return super().project(x_BTD, 0)


class Prompt(NamedTuple):
    S_BHKV: torch.Tensor
    x_BTD: torch.Tensor


@caught_by(contract.state)
class KeepsThePrompt(gla.Mixer):
    def prefill(self, x_BTD):
        y_BTD, state = super().prefill(x_BTD)
        return y_BTD, Prompt(*state, x_BTD)

    def step(self, x_BD, state):
        y_BD, after = super().step(x_BD, gla.State(state.S_BHKV))
        return y_BD, Prompt(*after, state.x_BTD)  # pyright: ignore[reportAttributeAccessIssue]


@caught_by(contract.causal_by_jacobian)
class ConvolutionLooksAhead(softmax.Mixer):
    """Centred, and the identity at the start: it leaks only once its weights have moved."""

    def __init__(self, d_model, cfg):
        super().__init__(d_model, cfg)
        self.kernel_DW = nn.Parameter(torch.tensor([0.0, 1.0, 0.0]).repeat(d_model, 1))

    def forward(self, x_BTD):
        padded_BDT = pad(x_BTD.mT, (1, 1))
        return super().forward(conv1d(padded_BDT, self.kernel_DW[:, None], groups=x_BTD.shape[2]).mT)


def test_without_the_nudge_that_last_leak_is_not_seen():
    mixer = ConvolutionLooksAhead(32, softmax.Mixer.Config(heads=4)).double()
    mixer.tested_width = 32  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    contract.causal_by_jacobian(mixer)
