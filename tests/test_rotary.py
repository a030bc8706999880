"""Rotary positions against complex numbers: a pair (i, i + K/2) is one of them, turned by e^(i·angle)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from impls.rotary import rope


def turned(x_BHTK: Tensor, start: int) -> Tensor:
    half = x_BHTK.shape[-1] // 2
    z_BHTF = torch.complex(x_BHTK[..., :half].double(), x_BHTK[..., half:].double())
    for t in range(x_BHTK.shape[-2]):
        for i in range(half):
            z_BHTF[..., t, i] *= torch.exp(torch.tensor(1j * (start + t) * 10_000.0 ** (-i / half)))
    return torch.cat([z_BHTF.real, z_BHTF.imag], dim=-1)


@pytest.mark.parametrize(
    ("shape", "start"), [((2, 3, 5, 4), 0), ((1, 2, 1, 6), 70), ((2, 2, 3, 4, 2), 1), ((1, 1, 0, 2), 0)]
)
def test_pairs_turn_by_their_position(shape: tuple[int, ...], start: int):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(rope(x, start), turned(x, start).float(), atol=1e-5, rtol=1e-5)
    across = x.transpose(-3, -2).contiguous().transpose(-3, -2)  # laid out as a projection lays heads out
    assert torch.equal(rope(across, start), rope(x, start))
    assert rope(x.bfloat16(), start).dtype == torch.bfloat16


def test_a_product_depends_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near, far = ((rope(q, start + 3) * rope(k, start)).sum() for start in (0, 90))
    torch.testing.assert_close(near, far)


def test_derivatives_of_any_kind_are_right():
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: rope(x, 3), x, check_forward_ad=True)
    assert gradgradcheck(lambda x: rope(x, 3), x)


def test_odd_heads_are_refused():
    with pytest.raises(ValueError, match="an even head width, got K=5"):
        rope(torch.zeros(1, 1, 2, 5))
