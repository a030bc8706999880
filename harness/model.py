"""The one backbone around every mechanism: a pre-norm decoder, as in LLaMA (arXiv:2302.13971 §2.2).

    x = E[ids]
    x = x + mixer(conv(norm(x)));  x = x + mlp(norm(x))      in each layer
    logits = norm(x) E^T                                     the head is the embedding

RMSNorm (arXiv:1910.07467), SwiGLU (arXiv:2002.05202), and, for every mechanism alike, a causal depthwise convolution
before each mixer, without which a small recurrent model cannot bind a key to the value beside it (arXiv:2312.06635).
Positions are the mixers' own affair. Axis letters: `impls.base`; V is the vocabulary, M the MLP's hidden width,
W the width of the convolution.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, silu

import impls
from harness.errors import UserError
from harness.files import sha256_file
from harness.tasks import ModelSettings
from impls import ops
from impls.convs import short_conv


class RMSNorm(nn.Module):
    """x / rms(x) · weight, over the last axis."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return rms_norm(x_BTD, self.weight.shape, self.weight, self.eps)


class SwiGLU(nn.Module):
    """W_out(silu(a) · b) with a, b = W_in(x)."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.inner = ops.linear(width, 2 * hidden)
        self.outer = ops.linear(hidden, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        a_BTM, b_BTM = self.inner(x_BTD).chunk(2, dim=-1)
        return self.outer(silu(a_BTM) * b_BTM)


class ShortConv(nn.Module):
    """Each channel mixed with its own W − 1 past values; starts as the identity plus noise."""

    def __init__(self, width: int, taps: int):
        super().__init__()
        weight_DW = torch.randn(width, taps) * 0.02
        weight_DW[:, -1] += 1
        self.weight_DW = nn.Parameter(weight_DW)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.prefill(x_BTD)[0]

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """(y_BTD, the last W − 1 inputs, zeros where there were fewer)."""
        B, _, D = x_BTD.shape
        return short_conv(x_BTD, self.weight_DW, x_BTD.new_zeros(B, self.weight_DW.shape[1] - 1, D))

    def step(self, x_BD: Tensor, past_BWD: Tensor) -> tuple[Tensor, Tensor]:
        y_B1D, past_BWD = short_conv(x_BD[:, None], self.weight_DW, past_BWD)
        return y_B1D[:, 0], past_BWD


class NoConv(nn.Module):
    """The identity, with the state that a convolution would have."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, None]:
        return x_BTD, None

    def step(self, x_BD: Tensor, past_BWD: None) -> tuple[Tensor, None]:
        return x_BD, None


class LayerState(NamedTuple):
    """What one layer remembers of the past."""

    conv: Any
    mixer: Any


class Layer(nn.Module):
    """x + mixer(conv(norm(x))), then x + mlp(norm(x))."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.mixer_norm, self.mlp_norm = RMSNorm(shape.width), RMSNorm(shape.width)
        self.conv = ShortConv(shape.width, shape.conv) if shape.conv else NoConv()
        self.mixer = impls.build(shape.impl, shape.width, shape.args)
        self.mlp = SwiGLU(shape.width, shape.mlp)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.mixer(self.conv(self.mixer_norm(x_BTD)))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, LayerState]:
        mixed_BTD, past = self.conv.prefill(self.mixer_norm(x_BTD))
        mixed_BTD, state = self.mixer.prefill(mixed_BTD)
        x_BTD = x_BTD + mixed_BTD
        return x_BTD + self.mlp(self.mlp_norm(x_BTD)), LayerState(past, state)

    def step(self, x_BD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        mixed_BD, past = self.conv.step(self.mixer_norm(x_BD), state.conv)
        mixed_BD, mixer_state = self.mixer.step(mixed_BD, state.mixer)
        x_BD = x_BD + mixed_BD
        return x_BD + self.mlp(self.mlp_norm(x_BD)), LayerState(past, mixer_state)


class Alone(Layer):
    """mixer(conv(norm(x + mlp(norm(x))))): what the mixer writes is all that comes out, so it alone can be silent.

    There is no way around the mixer and none to correct it after. The MLP before it, which reads one token at a time,
    only gives each token another embedding; it is there so that parameters can be matched.
    """

    def enter(self, x_BTD: Tensor) -> Tensor:
        """What is read by the convolution."""
        return self.mixer_norm(x_BTD + self.mlp(self.mlp_norm(x_BTD)))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.mixer(self.conv(self.enter(x_BTD)))

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, LayerState]:
        mixed_BTD, past = self.conv.prefill(self.enter(x_BTD))
        y_BTD, state = self.mixer.prefill(mixed_BTD)
        return y_BTD, LayerState(past, state)

    def step(self, x_BD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        mixed_BD, past = self.conv.step(self.enter(x_BD), state.conv)
        y_BD, mixer_state = self.mixer.step(mixed_BD, state.mixer)
        return y_BD, LayerState(past, mixer_state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """Everything that a model's parameters depend on but their values; `run.json` holds it as `model`."""

    impl: str
    args: dict[str, Any]
    vocab: int
    width: int
    layers: int
    mlp: int
    conv: int
    alone: bool = False  # the mixer without residuals, and no norm before the head
    method: dict[str, Any] | None = None  # what changed the model once it was trained: its impl, args and choices


class LM(nn.Module):
    """Token ids to logits. Weights are drawn from torch's global generator: see `build`."""

    layers: Sequence[Layer]

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)  # logits of deviation 1
        kind = Alone if shape.alone else Layer
        self.layers = nn.ModuleList(kind(shape) for _ in range(shape.layers))  # pyright: ignore[reportAttributeAccessIssue]
        self.norm = nn.Identity() if shape.alone else RMSNorm(shape.width)

    def hidden(self, ids_BT: Tensor) -> Tensor:
        """x_BTD that the head reads."""
        x_BTD = self.embedding(ids_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD)
        return self.norm(x_BTD)

    def head(self, x_BTD: Tensor) -> Tensor:
        """logits_BTV of hidden vectors of any leading shape."""
        return linear(x_BTD, self.embedding.weight)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """logits_BTV; row t depends on ids[:, :t + 1] only."""
        return self.head(self.hidden(ids_BT))

    def prefill(self, ids_BT: Tensor, last: int = 0) -> tuple[Tensor, list[LayerState]]:
        """(logits_BTV, state after T tokens); logits of the last positions only where `last` says of how many."""
        x_BTD = self.embedding(ids_BT)
        states = []
        for layer in self.layers:
            x_BTD, state = layer.prefill(x_BTD)
            states.append(state)
        return self.head(self.norm(x_BTD[:, -last:])), states

    def step(self, ids_B: Tensor, states: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        """(logits_BV, next state) for one more token a row."""
        x_BD = self.embedding(ids_B)
        after = []
        for layer, state in zip(self.layers, states, strict=True):
            x_BD, state = layer.step(x_BD, state)
            after.append(state)
        return self.head(self.norm(x_BD)), after


def shape_of(impl: str, args: dict[str, Any], settings: ModelSettings, vocab: int) -> Shape:
    """The shape before budgets are matched (`harness.cost.match`): with the reference's MLP.

    Where the args do not say, `heads` is the profile's, and a mixer's own convolution gives way to the backbone's.
    Raises TypeError for an argument that the mechanism lacks.
    """
    known = {field.name for field in dataclasses.fields(impls.config(impl, args))}
    given = {"heads": settings.heads} | ({"conv": 0} if settings.conv else {})
    return Shape(
        impl=impl,
        args={name: value for name, value in given.items() if name in known} | args,
        vocab=vocab,
        width=settings.width,
        layers=settings.layers,
        mlp=settings.mlp,
        conv=settings.conv,
        alone=settings.alone,
    )


def build(shape: Shape, seed: int) -> LM:
    """A model whose weights depend on (shape, seed) alone; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LM(shape)
        if shape.method is None:
            return model
        method = impls.build_method(shape.method["impl"], shape.method["args"])
        return method.install(model, shape.method["choices"])


def load(folder: Path, device: str = "cpu") -> LM:
    """The trained model of results/runs/<run>/<task>/seed<k>, in evaluation mode.

    Raises ValueError when its training failed, with the recorded reason, and UserError when its weights are damaged.
    """
    from safetensors.torch import load_file

    record = json.loads((folder / "run.json").read_text())
    if record["status"] != "ok":
        raise ValueError(f"training {record['status']}: {record['reason']}")
    path = folder / "model.safetensors"
    if record.get("digest") not in (None, sha256_file(path)):
        record = folder / "run.json"
        raise UserError(f"{path} is damaged (its SHA-256 is not in run.json); delete {record} and run snakemake again")
    model = build(Shape(**record["model"]), seed=0)
    model.load_state_dict(load_file(path))
    return model.to(device).eval()


def param_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Every parameter once: matrices decay, vectors and scalars never do."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
