"""Parts of layers that three or more recurrent mechanisms share. Axis letters: see `impls.base`."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu, softplus

from impls import ops
from impls.base import RecurrentMixer
from impls.convs import conv_weight, short_conv

WIDTHS = {"retnet": (1.0, 2.0), "gla": (0.5, 1.0), "gdn": (0.75, 1.5)}  # of keys and values over d_model
RANK, TEMPERATURE = 16, 16.0  # of GLA's gate


def phi(x: Tensor) -> Tensor:
    """elu(x) + 1, without the cancellation of (exp(x) - 1) + 1 for x far below 0."""
    return x.clamp(max=0).exp() + x.relu()


def with_one(v: Tensor) -> Tensor:
    """v with a last column of ones."""
    return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)


def divide(y: Tensor, eps: float) -> Tensor:
    """What was read of the values, over what was read of the ones."""
    return y[..., :-1] / (y[..., -1:] + eps)


def second_order(x: Tensor) -> Tensor:
    """f(x) of K(K+1)/2 channels with f(x) . f(y) = (x . y)^2: products x_i x_j for i <= j, times sqrt(2) for i < j."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], device=x.device)
    return x[..., i] * x[..., j] * (1 + (i < j)).to(x.dtype).sqrt()


def decay_start(heads: int, A: Sequence[float], dt: Sequence[float]) -> tuple[nn.Parameter, nn.Parameter]:
    """(ln A, b_dt) of `log_decay`: A uniform in (low, high], softplus(b_dt) log-uniform in [low, high]."""
    (A_low, A_high), (dt_low, dt_high) = A, dt
    A_H = A_high - (A_high - A_low) * torch.rand(heads)  # never 0, whose logarithm would be infinite
    dt_H = torch.empty(heads).uniform_(math.log(dt_low), math.log(dt_high)).exp()
    return nn.Parameter(A_H.log()), nn.Parameter(dt_H + torch.log(-torch.expm1(-dt_H)))  # the inverse of softplus


def forget_bias(heads: int, forget: float) -> nn.Parameter | None:
    """What is added to a_BHT so that exp(-softplus(a)) = sigmoid(-a) starts at 1 - forget; None at the half that it is
    anyway. Raises ValueError unless forget lies between 0 and 1."""
    if not 0 < forget < 1:
        raise ValueError(f"forget={forget} must lie between 0 and 1")
    return None if forget == 0.5 else nn.Parameter(torch.full((heads,), math.log(forget / (1 - forget))))


def log_decay(A_log_H: Tensor, step_BHT: Tensor) -> Tensor:
    """-A · step, the log-decay_BHT of Mamba-2 and Gated DeltaNet, in float32 or wider."""
    return -ops.wide(A_log_H).exp()[:, None] * step_BHT


class OnePath(RecurrentMixer):
    """A recurrent mixer whose `run` goes on from any state with any number of tokens: a step is a run of one."""

    @abstractmethod
    def run(self, x_BTD: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(y_BTD, state after these tokens)."""

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Any]:
        return self.run(x_BTD, self.init_state(x_BTD.shape[0]))

    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        y_B1D, state = self.run(x_BD[:, None], state)
        return y_B1D[:, 0], state


class Inputs(NamedTuple):
    """What a rule reads and writes at each token."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta_BHT1: Tensor | None  # strength of a delta rule's write; None where the rule only adds
    log_decay: Tensor  # [B,H,T], [1,H,1] or [B,H,T,K]
    gate_BTV: Tensor
    past_BWD: Tensor  # of the convolution, after these tokens


class Trunk(nn.Module):
    """What stands around the rule in RetNet, GLA or Gated DeltaNet: projections, decays, head norm, swish gate.

    As in `impls.retnet`, `impls.gla` and `impls.gated_delta_net`, whose sources they name, but with one RMSNorm of the
    heads for all three. Raises ValueError for another name.
    """

    def __init__(
        self, d_model: int, rule: str, heads: int, conv: int, gate: bool, A: Sequence[float], dt: Sequence[float]
    ):
        super().__init__()
        if rule not in WIDTHS:
            raise ValueError(f"backbone={rule!r} is none of {', '.join(WIDTHS)}")
        self.rule, self.heads, self.past = rule, heads, max(conv - 1, 0) if rule == "gdn" else 0
        self.key, self.value = (ops.expanded(d_model, factor, heads) for factor in WIDTHS[rule])
        further = {"retnet": 0, "gla": RANK, "gdn": 2 * heads}[rule]
        self.widths = [2 * self.key + self.value, self.value if gate else 0, further]
        self.inner = ops.linear(d_model, sum(self.widths))
        self.conv_DW = conv_weight(self.widths[0], conv) if rule == "gdn" else None
        self.decay = ops.linear(RANK, self.key, bias=True) if rule == "gla" else None
        self.A_log_H, self.dt_bias_H = decay_start(heads, A, dt) if rule == "gdn" else (None, None)
        self.norm_V = nn.Parameter(torch.ones(self.value // heads))
        self.out = ops.linear(self.value, d_model)

    def project(self, x_BTD: Tensor, past_BWD: Tensor, start: int, unit: bool = True) -> Inputs:
        """Of tokens at positions start, start + 1, ...; q and k of a delta rule have unit length if `unit`."""
        qkv, gate_BTV, further = self.inner(x_BTD).split(self.widths, dim=-1)
        qkv, past_BWD = short_conv(qkv, self.conv_DW, past_BWD)
        qkv = (silu(qkv) if self.rule == "gdn" else qkv).split([self.key, self.key, self.value], dim=-1)
        q, k, v = (ops.split_heads(z, self.heads) for z in qkv)
        if self.A_log_H is not None and self.dt_bias_H is not None:
            beta_BTH, dt_BTH = further.chunk(2, dim=-1)
            g_BHT = log_decay(self.A_log_H, softplus(ops.wide(dt_BTH) + self.dt_bias_H).mT)
            q, k = (ops.unit(q), ops.unit(k)) if unit else (q, k)
            return Inputs(q, k, v, beta_BTH.sigmoid().mT[..., None], g_BHT, gate_BTV, past_BWD)
        q = q * q.shape[-1] ** -0.5
        if self.decay is not None:
            g_BTK = logsigmoid(ops.wide(self.decay(further))) / TEMPERATURE
            return Inputs(q, k, v, None, ops.split_heads(g_BTK, self.heads), gate_BTV, past_BWD)
        h_H = torch.arange(self.heads, device=x_BTD.device, dtype=ops.wide(x_BTD[:0]).dtype)
        g_1H1 = torch.log1p(-(2 ** (-5 - h_H)))[None, :, None]
        return Inputs(ops.rope(q, start), ops.rope(k, start), v, None, g_1H1, gate_BTV, past_BWD)

    def finish(self, y_BHTV: Tensor, gate_BTV: Tensor, head_gate_BHT1: Tensor | None = None) -> Tensor:
        """y_BTD; a gate that is one number a head must come after the norm, which would divide it out."""
        y_BHTV = ops.head_norm(y_BHTV, self.norm_V)
        y_BHTV = y_BHTV if head_gate_BHT1 is None else y_BHTV * head_gate_BHT1
        return self.gated(ops.merge_heads(y_BHTV), gate_BTV)

    def gated(self, y_BTV: Tensor, gate_BTV: Tensor) -> Tensor:
        """y_BTD; without its swish gate where that has no width."""
        return self.out(silu(gate_BTV) * y_BTV if gate_BTV.shape[-1] else y_BTV)

    def zeros(self, batch: int) -> tuple[Tensor, Tensor]:
        """(S_BHKV, past_BWD) before the first token."""
        zeros = ops.wide(self.out.weight).new_zeros
        S_BHKV = zeros(batch, self.heads, self.key // self.heads, self.value // self.heads)
        return S_BHKV, zeros(batch, self.past, self.widths[0])


def scan(i: Inputs, S_BHKV: Tensor | None) -> tuple[Tensor, Tensor]:
    """(y_BHTV, S_T) of the rule that the inputs are of."""
    if i.beta_BHT1 is not None:
        return ops.delta_scan(i.q, i.k, i.v, i.beta_BHT1 * i.k, i.log_decay, S_BHKV)
    return ops.decay_scan(i.q, i.k, i.v, i.log_decay, S_BHKV, chunk=32 if i.log_decay.dim() == 3 else 16)
