"""The backbone: decoding equals the whole pass, weights are tied and drawn by the seed, every mechanism fits in."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import impls
from harness import model as backbone
from harness.loss import bits_per_byte
from harness.model import LM, Shape, build, param_groups, shape_of
from harness.tasks import HeldOut, ModelSettings, shift
from tests.conftest import SHARED
from tests.test_pitfalls import script  # noqa: F401  (a fixture)

SMALL = Shape(impl="softmax", args={"heads": 2}, vocab=50, width=32, layers=2, mlp=24, conv=4)
IMPLS = impls.names()


def nudged(model: nn.Module) -> nn.Module:
    """Weights moved off their start, where a convolution is nearly the identity and norms are ones."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator)
    return model


def ids(rows: int = 2, length: int = 19, vocab: int = 50) -> Tensor:
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("conv", [0, 1, 4])
@pytest.mark.parametrize("prefix", [1, 2, 3, 11])
def test_prefill_and_steps_equal_the_whole_pass(conv: int, prefix: int):
    model = nudged(build(dataclasses.replace(SMALL, conv=conv), seed=0)).double().eval()
    assert isinstance(model, LM)
    whole_BTV = model(ids())
    logits_BTV, state = model.prefill(ids()[:, :prefix])
    torch.testing.assert_close(logits_BTV, whole_BTV[:, :prefix], rtol=1e-9, atol=1e-9)
    for t in range(prefix, 19):
        logits_BV, state = model.step(ids()[:, t], state)
        torch.testing.assert_close(logits_BV, whole_BTV[:, t], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("impl", IMPLS)
def test_every_mechanism_decodes_as_it_reads(impl: str):
    shape = shape_of(impl, {}, ModelSettings(width=32, layers=1, heads=2, mlp=16), vocab=50)
    model = nudged(build(shape, seed=0)).double().eval()
    assert isinstance(model, LM)
    whole_BTV = model(ids())
    _, state = model.prefill(ids()[:, :7])
    for t in range(7, 19):
        logits_BV, state = model.step(ids()[:, t], state)
        torch.testing.assert_close(logits_BV, whole_BTV[:, t], rtol=1e-5, atol=1e-5)


def test_logits_of_a_prefix_do_not_depend_on_what_follows():
    model = nudged(build(SMALL, seed=0)).double()
    whole_BTV = model(ids())
    for t in (1, 2, 5, 18):
        torch.testing.assert_close(model(ids()[:, :t]), whole_BTV[:, :t], rtol=1e-9, atol=1e-9)


def test_the_convolution_is_causal_and_reaches_three_tokens_back():
    conv = nudged(backbone.ShortConv(8, 4)).double()
    x_BTD = torch.randn(1, 9, 8, dtype=torch.double, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (grad,) = torch.autograd.grad(conv(x_BTD)[0, 6].sum(), x_BTD)
    assert (grad[0].abs().sum(-1) > 0).tolist() == [False] * 3 + [True] * 4 + [False] * 2


def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (build(SMALL, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_mechanisms_of_one_seed_start_from_one_embedding():
    linear = dataclasses.replace(SMALL, impl="linear_attention", args={"heads": 2}, mlp=20)
    assert torch.equal(build(SMALL, 1).embedding.weight, build(linear, 1).embedding.weight)


def test_the_head_is_the_embedding():
    model = build(SMALL, seed=0)
    assert sum(p.shape == (50, 32) for p in model.parameters()) == 1
    x_BTD = torch.randn(1, 3, 32)
    torch.testing.assert_close(model.head(x_BTD), x_BTD @ model.embedding.weight.T)


def test_a_layer_is_as_documented():
    """x + mixer(conv(norm(x))), then x + mlp(norm(x)), written out."""
    layer: Any = nudged(backbone.Layer(SMALL))
    x_BTD = torch.randn(2, 5, 32)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    h_BTD = norm(x_BTD, layer.mixer_norm.weight)
    taps_DW = layer.conv.weight_DW
    mixed_BTD = torch.zeros_like(h_BTD)
    for t in range(5):
        for back in range(min(4, t + 1)):
            mixed_BTD[:, t] += taps_DW[:, 3 - back] * h_BTD[:, t - back]
    x1_BTD = x_BTD + layer.mixer(mixed_BTD)
    a, b = (norm(x1_BTD, layer.mlp_norm.weight) @ layer.mlp.inner.weight.T).chunk(2, dim=-1)
    want_BTD = x1_BTD + (a * torch.sigmoid(a) * b) @ layer.mlp.outer.weight.T
    torch.testing.assert_close(layer(x_BTD), want_BTD)


def test_heads_are_the_profiles_unless_the_run_says_otherwise():
    settings = ModelSettings(width=32, layers=1, heads=4, mlp=16)
    assert shape_of("softmax", {}, settings, 50).args["heads"] == 4
    assert shape_of("softmax", {"heads": 8}, settings, 50).args["heads"] == 8


def test_a_mixers_own_convolution_gives_way_to_the_backbones():
    with_conv, without = (ModelSettings(width=32, layers=1, heads=2, mlp=16, conv=conv) for conv in (4, 0))
    assert shape_of("delta_net", {}, with_conv, 50).args["conv"] == 0
    assert "conv" not in shape_of("delta_net", {}, without, 50).args
    assert shape_of("delta_net", {"conv": 3}, with_conv, 50).args["conv"] == 3
    assert "conv" not in shape_of("softmax", {}, with_conv, 50).args


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="haeds"):
        shape_of("softmax", {"haeds": 2}, ModelSettings(width=32, layers=1, heads=2, mlp=16), 50)


def test_groups_hold_every_parameter_once_and_decay_matrices_alone():
    model = build(SMALL, seed=0)
    decayed, plain = param_groups(model, 0.1)
    assert {id(p) for p in decayed["params"]} | {id(p) for p in plain["params"]} == {id(p) for p in model.parameters()}
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert all(p.ndim > 1 for p in decayed["params"])
    assert all(p.ndim == 1 for p in plain["params"])


def test_a_trained_run_is_loaded_from_its_folder(tmp_path: Path):
    model = nudged(build(SMALL, seed=0)).eval()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    record: dict[str, Any] = {"status": "ok", "reason": None, "model": dataclasses.asdict(SMALL)}
    failed = record | {"status": "diverged", "reason": "the loss is nan at step 3"}
    (tmp_path / "run.json").write_text(json.dumps(record))
    loaded = backbone.load(tmp_path)
    assert not loaded.training
    assert torch.equal(loaded(ids()), model(ids()))
    (tmp_path / "run.json").write_text(json.dumps(failed))
    with pytest.raises(ValueError, match="training diverged: the loss is nan at step 3"):
        backbone.load(tmp_path)


class Adapter:
    """What the script of public failure reports asks of a language model."""

    @staticmethod
    def make_lm(vocab: int, dim: int, layers: int, tie: bool = True) -> LM:
        return LM(dataclasses.replace(SMALL, vocab=vocab, width=dim, layers=layers))

    param_groups = staticmethod(param_groups)

    @staticmethod
    def evaluate(model: LM, ids_BT: Tensor) -> float:
        inputs_BT, targets_BT = shift(ids_BT.numpy())
        bits = bits_per_byte(model, [HeldOut(inputs_BT, targets_BT, targets_BT.size)], "cpu")
        assert bits is not None
        return bits


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no failure reports at {SHARED}")
def test_wiring_against_public_failure_reports(script):  # noqa: F811
    script("t04_model_wiring").check(Adapter)
