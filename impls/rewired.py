"""What methods share: a trained softmax layer that mixes in another way, and a draw that depends on places alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from impls import ops
from impls.base import ScoreMixer
from impls.softmax import Mixer as Softmax

Calibration = Sequence[tuple[Tensor, Tensor]]  # (inputs_BT, targets_BT) of the training text


def softmax_layers(model: Any) -> Iterator[tuple[int, Softmax]]:
    """(number, mixer) of each layer. Raises ValueError where one is not softmax attention."""
    for number, layer in enumerate(model.layers):
        if not isinstance(layer.mixer, Softmax):
            kind = type(layer.mixer).__module__.removeprefix("impls.")
            raise ValueError(f"layer {number} of the base is {kind}; this method changes softmax attention")
        yield number, layer.mixer


class Rewired(ScoreMixer):
    """The projections of a trained softmax layer, to be mixed otherwise: `attention` or `mix` is the method's."""

    def __init__(self, mixer: Softmax):
        nn.Module.__init__(self)  # the weights exist
        self.heads, self.head_dim, self.rope, self.scale = mixer.heads, mixer.head_dim, mixer.rope, mixer.scale
        self.qkv, self.out = mixer.qkv, mixer.out


class Recent(NamedTuple):
    """Keys and values of the last tokens, and how many there were in all."""

    k_BHSK: Tensor
    v_BHSV: Tensor
    seen: int


class Window(Rewired):
    """Softmax attention over the last `window` tokens, the token itself among them; its state does not grow."""

    def __init__(self, mixer: Softmax, window: int):
        super().__init__(mixer)
        self.window = window

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        T, S = q_BHTK.shape[2], k_BHSK.shape[2]
        near_TS = ops.causal(T, S, q_BHTK.device).triu(S - T - self.window + 1)
        return ops.scores(q_BHTK, k_BHSK, self.scale).masked_fill(~near_TS, float("-inf")).softmax(dim=-1)

    def mix(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> Tensor:
        """Some rows at a time, with the keys that one of them sees."""
        T, S, y_BHTV = q_BHTK.shape[2], k_BHSK.shape[2], []
        for first in range(0, T, self.rows):
            last = min(first + self.rows, T)
            near = slice(max(0, S - T + first - self.window + 1), S - T + last)
            y_BHTV.append(self.attention(q_BHTK[:, :, first:last], k_BHSK[:, :, near]) @ v_BHSV[:, :, near])
        return torch.cat(y_BHTV, dim=2)

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Recent]:
        y_BTD, cache = super().prefill(x_BTD)
        return y_BTD, Recent(*(z[:, :, -self.window :] for z in cache), seen=x_BTD.shape[1])

    def step(self, x_BD: Tensor, state: Recent) -> tuple[Tensor, Recent]:
        q_BH1K, *new = self.project(x_BD[:, None], start=state.seen)
        k, v = (torch.cat([old, z], dim=2)[:, :, -self.window :] for old, z in zip(state[:2], new, strict=True))
        return self.out(ops.merge_heads(self.mix(q_BH1K, k, v)))[:, 0], Recent(k, v, state.seen + 1)


@torch.no_grad()
def mixer_inputs(model: Any, calibration: Calibration) -> list[Tensor]:
    """x_BTD that each layer's mixer reads, of the batches of the commonest length together."""
    lengths = [inputs_BT.shape[1] for inputs_BT, _ in calibration]
    length = max(lengths, key=lambda n: (lengths.count(n), n))
    ids_BT = torch.cat([inputs_BT for inputs_BT, _ in calibration if inputs_BT.shape[1] == length])
    seen: list[Tensor] = []
    hooks = [layer.mixer.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for layer in model.layers]
    try:
        model(ids_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def lottery(queries: range, keys: int, seed: int, device: torch.device) -> Tensor:
    """luck_TS in [0, 1) of each pair of places: a hash, so that a step draws what the whole pass drew."""
    t_T1 = torch.arange(queries.start, queries.stop, device=device)[:, None]
    x_TS = (t_T1 * 40_503 + torch.arange(keys, device=device) + 1) * 2_654_435_761 + seed * 97_531
    for factor in (2_246_822_519, 3_266_489_917):
        x_TS = ((x_TS & 0xFFFF_FFFF) ^ ((x_TS & 0xFFFF_FFFF) >> 15)) * factor
    return (x_TS & 0xFFFF_FFFF).double() / 2**32
