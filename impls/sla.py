"""READING, not the paper's own equations, which were not found: what its abstract fixes, and choices named below.

Softmax linear attention. "Softmax Linear Attention: Reclaiming Global Competition", 2026, arXiv:2602.01744.

    gQ_t = H softmax_h(W_Q x_t),   gK_t = H softmax_h(W_K x_t)          heads compete, at the write and at the read
    S_t  = decay_t S_{t-1} + gK_t k_t v_t^T,   y_t = gQ_t S_t^T q_t     on RetNet's or GLA's rule, or with
    v_t := gK_t v_t                                                     in the delta rule of Gated DeltaNet

Chosen here: both gates, not the query's alone; the factor H and weights that start at 0, so that the layer starts as
its backbone; no temperature; on the delta rule the gate scales the value, which leaves the rule's stability alone; gQ
comes after the norm of the heads, which would divide it out.

Differs from the paper: unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from impls import ops
from impls.parts import OnePath, Trunk, scan


def compete(logit_BHT: Tensor, head_scale: float) -> Tensor:
    """Gates_BHT1, a softmax over the heads times head_scale."""
    return head_scale * ops.wide(logit_BHT).softmax(dim=1)[..., None]


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate_q_logit: Tensor,
    gate_k_logit: Tensor,
    log_decay: Tensor,
    scale: float,
    head_scale: float,
) -> Tensor:
    """y_BHTV by the recurrence, over a decay of one number a head."""
    gQ_BHT1, gK_BHT1 = compete(gate_q_logit, head_scale), compete(gate_k_logit, head_scale)
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    y_BHTV = []
    for t in range(q.shape[2]):
        write_BHKV = (gK_BHT1 * k)[:, :, t, :, None] * v[:, :, t, None]
        S_BHKV = log_decay[:, :, t, None, None].exp() * S_BHKV + write_BHKV
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", (gQ_BHT1 * q)[:, :, t], S_BHKV))
    return torch.stack(y_BHTV, dim=2)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate_q_logit: Tensor,
    gate_k_logit: Tensor,
    log_decay: Tensor,
    scale: float,
    head_scale: float,
) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK, v_BHTV, the logits_BHT of both gates and log_decay_BHT <= 0, in chunks."""
    v = (compete(gate_k_logit, head_scale) * v).to(v.dtype)
    return (compete(gate_q_logit, head_scale) * ops.decay_scan(q * scale, k, v, log_decay)[0]).to(v.dtype)


attend.reference = reference


class State(NamedTuple):
    """The backbone's state and last inputs of its convolution, and how many tokens there were."""

    S_BHKV: Tensor
    past_BWD: Tensor
    position: int


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        backbone: str = "gdn"  # or "gla", "retnet"
        heads: int = 4
        gate_k: bool = True  # heads compete at the write as well, not at the read alone
        conv: int = 4  # Gated DeltaNet's taps of the convolution; 0 where the backbone has one
        gate: bool = True  # swish output gate
        A: Sequence[float] = (0.0, 16.0)  # Gated DeltaNet's decays start as in `impls.gated_delta_net`
        dt: Sequence[float] = (1e-3, 1e-1)

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.trunk = Trunk(d_model, cfg.backbone, cfg.heads, cfg.conv, cfg.gate, cfg.A, cfg.dt)
        self.gates = nn.Linear(d_model, (2 if cfg.gate_k else 1) * cfg.heads, bias=False)
        nn.init.zeros_(self.gates.weight)
        self.heads = cfg.heads

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        i = self.trunk.project(x_BTD, state.past_BWD, state.position)
        gQ_BHT1, *gK_BHT1 = (compete(z.mT, self.heads).to(x_BTD.dtype) for z in self.gates(x_BTD).split(self.heads, -1))
        y_BHTV, S_BHKV = scan(i._replace(v=gK_BHT1[0] * i.v) if gK_BHT1 else i, state.S_BHKV)
        y_BTD = self.trunk.finish(y_BHTV, i.gate_BTV, gQ_BHT1)
        return y_BTD, State(S_BHKV, i.past_BWD, state.position + x_BTD.shape[1])

    def init_state(self, batch: int) -> State:
        return State(*self.trunk.zeros(batch), 0)
