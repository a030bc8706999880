"""Trained runs and models of the Hub behind one interface: logits of whole rows, and reading on from a state.

Axis letters: `impls.base`; V is the vocabulary, L the positions that logits are wanted of, R rows of a state.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor


class Model(Protocol):
    """What is asked of a model; logits in fp32."""

    device: torch.device
    vocab: int
    cached: bool  # whether `step` costs less than reading everything again
    extends: bool  # whether `extend` costs less than as many steps

    def logits(self, ids_BT: Tensor, last: int) -> Tensor:
        """logits_BLV of the last L positions."""
        ...

    def prefill(self, ids_BT: Tensor) -> tuple[Tensor, Any]:
        """(logits_BV of the last position, state after T tokens)."""
        ...

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(logits_BV, next state); the state that is given may be changed in place."""
        ...

    def extend(self, ids_BT: Tensor, state: Any) -> Tensor:
        """logits_BTV of T tokens more; the state is used up."""
        ...

    def select(self, state: Any, rows_R: Tensor) -> Any:
        """A state of these rows, in this order; a row may be taken several times or not at all."""
        ...


class Trained:
    """A run of ours."""

    extends = False

    def __init__(self, model: Any):
        from impls.base import TokenMixer

        self.model, self.vocab = model, model.shape.vocab
        self.device = next(model.parameters()).device
        self.cached = all(type(layer.mixer).step is not TokenMixer.step for layer in model.layers)

    def logits(self, ids_BT: Tensor, last: int) -> Tensor:
        return self.model.head(self.model.hidden(ids_BT)[:, -last:]).float()

    def prefill(self, ids_BT: Tensor) -> tuple[Tensor, Any]:
        logits_B1V, state = self.model.prefill(ids_BT, last=1)
        return logits_B1V[:, 0].float(), state

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits_BV, state = self.model.step(ids_B, state)
        return logits_BV.float(), state

    def extend(self, ids_BT: Tensor, state: Any) -> Tensor:
        logits = []
        for ids_B in ids_BT.unbind(1):
            logits_BV, state = self.step(ids_B, state)
            logits.append(logits_BV)
        return torch.stack(logits, dim=1)

    def select(self, state: Any, rows_R: Tensor) -> Any:
        return _select(state, rows_R)


class Pretrained:
    """A causal language model of transformers."""

    cached = extends = True

    def __init__(self, model: Any):
        self.model, self.vocab = model, model.config.get_text_config().vocab_size
        self.device = model.device

    def logits(self, ids_BT: Tensor, last: int) -> Tensor:
        return self.model(ids_BT, use_cache=False, logits_to_keep=last).logits.float()

    def prefill(self, ids_BT: Tensor) -> tuple[Tensor, Any]:
        out = self.model(ids_BT, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1].float(), out.cache

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        out = self.model(ids_B[:, None], use_cache=True, cache=state)
        return out.logits[:, -1].float(), out.cache

    def extend(self, ids_BT: Tensor, state: Any) -> Tensor:
        return self.model(ids_BT, use_cache=True, cache=state).logits.float()

    def select(self, state: Any, rows_R: Tensor) -> Any:
        state = copy.copy(state)  # selecting and growing replace the layers' tensors and leave those of the original
        state.layers = [copy.copy(layer) for layer in state.layers]
        state.batch_select_indices(rows_R)
        return state


def over(model: Any) -> Model:
    """The model as `Answerer` asks it."""
    return Trained(model) if hasattr(model, "hidden") else Pretrained(model)


def _select(state: Any, rows_R: Tensor) -> Any:
    """Rows of every tensor of a state: their first axis is the batch. Numbers and None are the same for all rows."""
    if isinstance(state, Tensor):
        return state[rows_R]
    if isinstance(state, tuple | list):
        parts = [_select(part, rows_R) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return state


def judge(logits_LV: Tensor, target_L: Tensor) -> tuple[Tensor, Tensor]:
    """(log p of each target in float64, whether it is the most likely token: of equals, the first)."""
    reached_L = logits_LV.gather(1, target_L[:, None])[:, 0]
    hit_L = reached_L == logits_LV.amax(-1)
    hit_L[hit_L.clone()] = logits_LV[hit_L].argmax(-1) == target_L[hit_L]
    return (reached_L - logits_LV.logsumexp(-1)).double().cpu(), hit_L.cpu()
