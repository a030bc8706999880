"""What stands around the rule of RetNet, GLA or Gated DeltaNet, and the rule itself, written out."""

from itertools import product

import torch

from tests.equations import convolved, heads, joined, rms_normed, rotated, sigmoid, silu, unit


def inputs(trunk, x_TD, normalize=True):
    """q, k, v, beta_1HT or None, the decay_1HTK (not its logarithm) and the gate_TV."""
    H, key, value = trunk.heads, trunk.key, trunk.value
    z_TX = trunk.inner(x_TD)
    gate_width = trunk.widths[1]
    rest = z_TX.shape[1] - 2 * key - value - gate_width
    qkv, gate, further = z_TX.split([2 * key + value, gate_width, rest], dim=-1)
    if trunk.rule == "gdn":
        q, k, v = (heads(z, H) for z in silu(convolved(qkv, trunk.conv_DW)).split([key, key, value], dim=-1))
        rate = torch.exp(trunk.A_log_H) * torch.log(1 + torch.exp(further[:, H:] + trunk.dt_bias_H))
        decay = heads(torch.exp(-rate), H).expand_as(k)
        q, k = (unit(q), unit(k)) if normalize else (q, k)
        return q, k, v, heads(sigmoid(further[:, :H]), H)[..., 0], decay, gate
    q, k, v = (heads(z, H) for z in qkv.split([key, key, value], dim=-1))
    if trunk.rule == "gla":
        return q / q.shape[-1] ** 0.5, k, v, None, heads(sigmoid(trunk.decay(further)) ** (1 / 16), H), gate
    gamma = torch.tensor([1 - 2.0 ** (-5 - h) for h in range(H)], dtype=x_TD.dtype)
    return rotated(q) / q.shape[-1] ** 0.5, rotated(k), v, None, gamma[None, :, None, None].expand_as(k), gate


def rule(q, k, v, beta, decay):
    """y_1HTV: the state decays, is corrected or added to, and read."""
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b, h in product(*map(range, q.shape[:2])):
        state = torch.zeros(k.shape[-1], v.shape[-1], dtype=v.dtype)
        for t in range(q.shape[2]):
            state = decay[b, h, t, :, None] * state
            error = v[b, h, t] if beta is None else beta[b, h, t] * (v[b, h, t] - state.T @ k[b, h, t])
            state = state + torch.outer(k[b, h, t], error)
            y[b, h, t] = state.T @ q[b, h, t]
    return y


def finished(trunk, y_1HTV, gate_TV, head_gate_1HT=None):
    y_1HTV = rms_normed(y_1HTV, trunk.norm_V)
    y_1HTV = y_1HTV if head_gate_1HT is None else y_1HTV * head_gate_1HT[..., None]
    return trunk.out(silu(gate_TV) * joined(y_1HTV) if gate_TV.shape[1] else joined(y_1HTV))
