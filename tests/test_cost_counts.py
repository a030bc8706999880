"""FLOPs counted a second time: by a counter of our own from the shapes of every product, and by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import impls
from harness import cost, tasks
from harness.config import Profile, load_profile
from harness.model import Shape, build, shape_of
from harness.runs import resolve
from harness.spec import load_files
from harness.tasks import ModelSettings

D, M, H, L, W, V, T = 64, 128, 2, 2, 4, 256, 96
K = D // H
SETTINGS = ModelSettings(width=D, layers=L, heads=H, mlp=M)
BLOCK = 64  # rows of scores at a time, and no keys behind the last of them (impls.ops)


class Products(TorchDispatchMode):
    """Multiplications and additions of all matrix products and convolutions, from their shapes alone."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.strange: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket._qualified_op_name.partition("::")[2]
        out = func(*args, **(kwargs or {}))
        if name in ("mm", "bmm", "mv", "dot"):
            self.flops += 2 * args[0].numel() * (args[1].shape[-1] if name in ("mm", "bmm") else 1)
        elif name in ("addmm", "baddbmm", "addbmm", "addmv"):
            self.flops += 2 * args[1].numel() * (args[2].shape[-1] if name != "addmv" else 1)
        elif name == "convolution":
            self.flops += 2 * out.numel() * math.prod(args[1].shape[1:])
        elif any(word in name for word in ("matmul", "attention", "einsum", "linear", "outer", "conv")):
            self.strange.add(name)
        return out


def shape(impl: str) -> Shape:
    return shape_of(impl, {}, SETTINGS, vocab=V)


@pytest.mark.parametrize("impl", impls.names())
def test_two_counters_agree_on_every_mechanism(impl: str):
    """One from torch on the meta device, one above on real numbers: within 1 %, with no kind of product left out."""
    ids_BT = torch.randint(V, (1, T), generator=torch.Generator().manual_seed(0))
    model = build(shape(impl), seed=0).eval()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Products() as products:
        model(ids_BT)
    assert not products.strange
    assert cost.flops_per_token(shape(impl), T) == pytest.approx(products.flops / T, rel=0.01)


def projections(impl: str) -> int:
    """A multiply-add for each weight of the mixer that multiplies a token's vector."""
    mixer = impls.build(impl, D, shape(impl).args)
    return 2 * sum(p.numel() for name, p in mixer.named_parameters() if p.ndim == 2 and name.endswith("weight"))


def keys(rows: int) -> float:
    """Keys that a row of scores has on average where scores are made `rows` rows at a time."""
    ends = [min(start + rows, T) for start in range(0, T, rows)]
    return sum((end - start) * end for start, end in zip(range(0, T, rows), ends, strict=True)) / T


def chunked(chunk: int, width: int = K) -> float:
    """A scan of a K x V state: scores in a chunk, their values, what the chunk writes, what its tokens read."""
    return H * (2 * chunk * width + 2 * chunk * K + 2 * width * K + 2 * width * K)


SCORES = (
    "affine_scaled", "cog_attention", "entmax", "gpsa", "lssar", "normalized_attention", "relu_attention",
    "sa_softmax", "sigmoid", "softmax_plus_one", "softpick", "zonkey",
)  # fmt: skip
WHOLE = 2 * 2 * D * T  # scores and weighted values, all keys
BLOCKS = 2 * 2 * D * keys(BLOCK)
BY_HAND = {  # of one layer and token, beside the projections
    "softmax": WHOLE,
    "recurrent_softmax": WHOLE,
    "sink_bias": WHOLE,
    "parallax": 3 * 2 * D * keys(BLOCK),  # a second query has scores of its own
    **dict.fromkeys(SCORES, BLOCKS),
    "linear_attention": chunked(32),
    "mala": chunked(32),
    "gla": chunked(32),
    "dsf_normalized_attention": chunked(32),
    "retnet": 2 * chunked(32),
}


@pytest.mark.parametrize("impl", sorted(BY_HAND))
def test_the_count_of_a_mechanism_is_that_made_by_hand(impl: str):
    layer = 2 * 3 * D * M + 2 * D * W + projections(impl) + BY_HAND[impl]
    assert cost.flops_per_token(shape(impl), T) == pytest.approx(L * layer + 2 * D * V, rel=0.01)


def vocabulary(profile: Profile, task: str) -> int:
    return profile.data.vocab if task == "lm" else tasks.load(task).VOCAB


def test_every_run_of_every_paper_has_the_parameters_of_the_reference_within_one_percent():
    profile = load_profile("laptop")
    files = sorted(Path("papers").glob("*.yaml"))
    runs = [run for run in resolve(load_files(files), profile).values() if run.kind == "mechanism"]
    outside = []
    for run in runs:
        for task, settings in run.tasks.items():
            wanted = shape_of(run.impl, run.args_at(task), settings.model, vocabulary(profile, task))
            matched = cost.match(wanted, settings.model.heads)
            if not matched.within_budget:
                outside.append((run.id, task, matched.parameters, matched.reference_parameters))
    assert len(runs) > 20
    assert not outside


@pytest.mark.parametrize("impl", ["softmax", "sigmoid", "linear_attention"])
def test_training_costs_a_forward_and_twice_as_much_backward(impl: str):
    """Two products backward for each forward, but for the convolution's few and the first layer's input."""
    forward = cost.flops_per_token(shape(impl), T)
    assert cost.training_flops(shape(impl), T) == pytest.approx(3 * forward, rel=0.12)


def test_decoding_counts_one_token_against_all_keys_or_one_state():
    layer = 2 * 3 * D * M + 2 * D * W
    softmax = L * (layer + projections("softmax") + 2 * 2 * D * (T + 1)) + 2 * D * V
    assert cost.decoding_flops(shape("softmax"), T) == pytest.approx(softmax, rel=0.01)
    flat = [cost.decoding_flops(shape("linear_attention"), length) for length in (T, 2 * T)]
    assert flat[0] == flat[1]


def test_a_mechanism_that_meta_cannot_run_is_counted_with_numbers(monkeypatch):
    wanted = cost.measure(shape("softmax"), 32)
    real = torch.nn.Module.to

    def to(self, device):
        if device == "meta":
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        return real(self, device)

    monkeypatch.setattr(torch.nn.Module, "to", to)
    assert cost.measure(shape("softmax"), 32) == wanted
