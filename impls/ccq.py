"""READING, not the paper's own equations, which were not found: what its abstract fixes, and choices named below.

Curvature-conditioned query. "Don't Read Everything: A Curvature-Conditioned Query for Linear Attention", 2026,
arXiv:2606.01294. The log-partition ln sum_s exp(q . k_s) has the keys' covariance as its curvature at q = 0; along
directions where keys are dense the query is contracted before it reads:

    C_t = a_t C_{t-1} + k_t k_t^T,   n_t = a_t n_{t-1} + 1              kept as the state is
    q~_t = q_t - eta C_t q_t / n_t                                      C_t q_t is linear attention with k as its values
    S_t as in GLA or Gated DeltaNet,   y_t = S_t^T q~_t

Chosen here: C is not centred, decays as the state does and is divided by n, so that for unit keys no eigenvalue exceeds
1; one gradient step, not the resolvent; eta = sigmoid of one number a head that starts at -2. With a decay a channel
(GLA) C decays by the mean of the log-decays, and its keys are brought to unit length.

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


def contract(
    q: Tensor, k: Tensor, eta_H: Tensor, g_BHT: Tensor, C_BHKK: Tensor | None = None, n_BH11: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(q~_BHTK, C_T, n_T)."""
    one_BHT1 = torch.ones_like(k[..., :1])
    Cq_BHTK, C_BHKK = ops.decay_scan(q, k, k, g_BHT, C_BHKK)
    n_BHT1, n_BH11 = ops.decay_scan(one_BHT1, one_BHT1, ops.wide(one_BHT1), g_BHT, n_BH11)
    return q - (eta_H[:, None, None] * Cq_BHTK / n_BHT1).to(q.dtype), C_BHKK, n_BH11


def reference(q: Tensor, k: Tensor, v: Tensor, eta: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV by the recurrences, over a decay of one number a head."""
    S_BHKV = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None])
    C_BHKK = torch.zeros_like(k[:, :, 0, :, None] * k[:, :, 0, None])
    n_BH1, y_BHTV = torch.zeros_like(k[:, :, 0, :1]), []
    for q_BHK, k_BHK, v_BHV, g_BH in zip(*(z.unbind(2) for z in (q, k, v, log_decay)), strict=True):
        a_BH1 = g_BH.exp()[..., None]
        C_BHKK = a_BH1[..., None] * C_BHKK + k_BHK[..., None] * k_BHK[..., None, :]
        S_BHKV = a_BH1[..., None] * S_BHKV + k_BHK[..., None] * v_BHV[..., None, :]
        n_BH1 = a_BH1 * n_BH1 + 1
        q_BHK = q_BHK - eta[:, None] * torch.einsum("bhkj,bhj->bhk", C_BHKK, q_BHK) / n_BH1
        y_BHTV.append(scale * torch.einsum("bhk,bhkv->bhv", q_BHK, S_BHKV))
    return torch.stack(y_BHTV, dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, eta: Tensor, log_decay: Tensor, scale: float) -> Tensor:
    """y_BHTV of q_BHTK, k_BHTK of unit length, v_BHTV, eta_H and log_decay_BHT <= 0: two scans, in chunks."""
    return ops.decay_scan(contract(q, k, eta, log_decay)[0] * scale, k, v, log_decay)[0]


attend.reference = reference


class State(NamedTuple):
    """The backbone's state and last inputs of its convolution; the keys' covariance and its weight."""

    S_BHKV: Tensor
    past_BWD: Tensor
    C_BHKK: Tensor
    n_BH11: Tensor


class Mixer(OnePath):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        backbone: str = "gdn"  # or "gla"
        heads: int = 4
        eta_logit: float = -2.0  # sigmoid of this is eta at the start
        conv: int = 4  # Gated DeltaNet's taps of the convolution; 0 where the backbone has one
        gate: bool = True  # swish output gate
        A: Sequence[float] = (0.0, 16.0)  # Gated DeltaNet's decays start as in `impls.gated_delta_net`
        dt: Sequence[float] = (1e-3, 1e-1)

        def __post_init__(self):
            if self.backbone not in ("gla", "gdn"):
                raise ValueError(f"backbone={self.backbone!r} is neither gla nor gdn")

    def __init__(self, d_model: int, cfg: Config):
        super().__init__()
        self.trunk = Trunk(d_model, cfg.backbone, cfg.heads, cfg.conv, cfg.gate, cfg.A, cfg.dt)
        self.eta_logit_H = nn.Parameter(torch.full((cfg.heads,), cfg.eta_logit))

    def run(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        i = self.trunk.project(x_BTD, state.past_BWD, 0)
        k, g_BHT = (i.k, i.log_decay) if i.log_decay.dim() == 3 else (ops.unit(i.k), i.log_decay.mean(dim=-1))
        q, C_BHKK, n_BH11 = contract(i.q, k, self.eta_logit_H.sigmoid(), g_BHT, state.C_BHKK, state.n_BH11)
        y_BHTV, S_BHKV = scan(i._replace(q=q), state.S_BHKV)
        return self.trunk.finish(y_BHTV, i.gate_BTV), State(S_BHKV, i.past_BWD, C_BHKK, n_BH11)

    def init_state(self, batch: int) -> State:
        S_BHKV, past_BWD = self.trunk.zeros(batch)
        H, K = S_BHKV.shape[1:3]
        return State(S_BHKV, past_BWD, S_BHKV.new_zeros(batch, H, K, K), S_BHKV.new_zeros(batch, H, 1, 1))
