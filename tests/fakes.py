"""Models whose answers are known by hand."""

from __future__ import annotations

import math

import torch
from torch import nn

V = 4  # tokens that they know


class Fake(nn.Module):
    """A model that is a function of its tokens: `answer(ids_BT) -> logits_BTV`."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, ids_BT):
        return self.answer(ids_BT)


def uniform(ids_BT):
    return torch.zeros(*ids_BT.shape, V)


def missing(ids_BT):
    return torch.full((*ids_BT.shape, V), math.nan)
