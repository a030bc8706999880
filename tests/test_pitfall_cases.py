"""Every published failure of attention layers that `shared/pitfalls` lists: the tests that would see it here, or why it
cannot occur."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from harness.proofs.properties import PROPERTIES
from impls import kernels, ops
from impls.rewired import Window
from impls.softmax import Mixer as Softmax
from tests.conftest import SHARED

LIST = SHARED / "pitfalls" / "pitfalls.md"
TESTS = Path(__file__).parent

SCRIPTS = "test_pitfalls.py::test_mixer_avoids_the_pitfall"
SCANS = "test_identities.py::test_scan_equals_its_loop"
BUG = "test_bugs.py::test_planted_bug_is_caught"
FIRST_AXIS = "kernels of ours are off unless asked for, and lay sequences, heads and tiles along axis 0 of their grid"
KERNELS = "test_kernels_score_map.py::test_a_kernel_is_its_torch_form_forward_and_backward"
SCAN_KERNELS = "test_kernels_delta_chunk.py::test_a_kernel_is_the_recurrence_forward_and_backward"
CHOSEN = "test_kernels_score_map.py::test_a_kernel_takes_over_where_it_can_and_nowhere_else"
NO_GROUPS = "no mechanism has fewer key heads than query heads, and no head is repeated; kernels take such heads"
NO_MASK = "a mixer takes no mask: rows of a batch have one length, and documents are cut by `packed`"
SEES_ITSELF = "a query of a causal mixer sees at least itself, and no mask can take that away"

# by case: tests as `file::function`, properties that are proved as `proof:name`, else the reason in words
CASES: dict[str, tuple[str, ...]] = {
    "A01": ("proof:lengths", SCRIPTS),
    "A02": ("proof:lengths", SCRIPTS, SCANS),
    "A03": (SCANS, SCRIPTS, SCAN_KERNELS),
    "A05": ("test_pitfall_cases.py::test_a_row_longer_than_65536_ends_right",),
    "A06": ("proof:decoding", BUG, "test_pitfalls.py::test_delta_scan_avoids_its_pitfalls"),
    "A14": ("proof:pure", SCRIPTS, "proof:decoding"),
    "A15": ("proof:recurrence", BUG, SCRIPTS),
    "A17": (NO_MASK, "proof:packed_documents", SCRIPTS),
    "A18": ("proof:packed_documents", SCRIPTS),
    "A19": ("proof:packed_documents",),
    "A20": (SCANS, "test_identities.py::test_a_reset_forgets", "test_pitfalls.py::test_delta_scan_avoids_its_pitfalls"),
    "A21": (NO_MASK, SCRIPTS, "test_evaluate.py::test_picks_do_not_depend_on_the_batch"),
    "A22": (NO_MASK, SCRIPTS, "test_evaluate.py::test_picks_do_not_depend_on_the_batch"),
    "A23": (
        "test_identities.py::test_gate_of_one_is_no_gate",
        "test_pitfalls.py::test_delta_scan_avoids_its_pitfalls",
    ),
    "A24": ("test_identities.py::test_unit_keys_keep_the_state_bounded", "proof:extreme_inputs", BUG),
    "A25": (SCANS, "proof:extreme_inputs", SCRIPTS),
    "A26": ("test_identities.py::test_state_is_float32_whatever_comes_in", "proof:bfloat16"),
    "A27": ("test_pitfall_cases.py::test_a_row_longer_than_65536_ends_right",),
    "A28": ("proof:forms", "proof:bfloat16", SCANS),
    "A29": (SCANS, "test_identities.py::test_float32_stays_near_float64_over_2000_steps"),
    "A30": (
        "proof:extreme_inputs",
        "test_prove.py::test_an_operator_that_divides_by_its_decay_is_seen_at_the_ends_of_its_inputs",
    ),
    "A33": (FIRST_AXIS, "test_pitfall_cases.py::test_programs_of_a_kernel_lie_along_the_first_axis"),
    "A34": ("proof:equation", "every operator takes [B,H,T,K], and its equations are tried with T unlike H"),
    "A35": ("proof:pure", KERNELS, "test_pitfall_cases.py::test_a_head_of_any_width_gives_the_same_bits_twice"),
    "A36": (
        "a head too wide for a kernel is left to torch",
        "test_pitfall_cases.py::test_wide_heads_are_left_to_torch",
    ),
    "A37": ("tiles that were measured are kept on disk, so that later runs add up alike", "proof:pure", SCRIPTS),
    "A38": (SCRIPTS, "proof:lengths"),
    "A40": (NO_GROUPS, KERNELS),
    "B05": ("proof:causal_by_prefix", SCRIPTS),
    "B06": (
        "proof:decoding",
        "test_identities_recurrent.py::test_nats_l_routes_alike_in_training_and_evaluation",
        "test_identities_recurrent.py::test_hola_ranks_by_what_the_state_was_told",
    ),
    "B07": ("proof:causal_by_prefix", BUG, SCRIPTS),
    "B08": ("test_pitfalls.py::test_softpick_avoids_its_pitfalls", BUG),
    "B09": ("test_pitfalls.py::test_softpick_avoids_its_pitfalls", "proof:extreme_inputs"),
    "B10": ("test_pitfalls.py::test_softpick_avoids_its_pitfalls", "test_identities.py::test_softpick_rows"),
    "B11": (
        "test_identities_scores.py::test_the_one_in_the_denominator_shrinks_with_the_row_maximum",
        "test_pitfalls.py::test_normalisers_have_their_golden_values",
    ),
    "B12": (SEES_ITSELF, "test_pitfalls.py::test_normalisers_have_their_golden_values"),
    "B13": (
        "test_identities_scores.py::test_sparsemax_has_the_same_gradient_in_every_head",
        "test_pitfalls.py::test_normalisers_have_their_golden_values",
    ),
    "B14": ("test_identities_scores.py::test_entmax_golden_values", "proof:extreme_inputs"),
    "B16": ("proof:extreme_inputs", SCRIPTS),
    "B17": (BUG, SCRIPTS, "proof:causal_by_prefix"),
    "B18": (SEES_ITSELF, "test_identities_scores.py::test_existence_of_one_and_zero_is_a_hard_cut"),
    "B19": (SEES_ITSELF, "test_identities_scores.py::test_a_uniform_row_is_a_zero_row_with_a_finite_gradient"),
    "B20": (NO_MASK, SCRIPTS),
    "B22": ("test_pitfall_cases.py::test_a_window_of_two_holds_two_keys",),
    "B23": (
        "test_pitfall_cases.py::test_a_window_of_two_holds_two_keys",
        "test_method_layerboost.py::test_impossible_shares_are_refused",
    ),
    "B24": (NO_GROUPS, KERNELS),
    "B25": (NO_GROUPS, "proof:lengths"),
    "B29": ("test_identities.py::test_linear_attention_averages", "proof:equation"),
    "B30": ("proof:extreme_inputs", SCRIPTS),
    "B35": ("differential attention is not among the mechanisms", "proof:live_gradients", "proof:equation"),
    "B38": (NO_MASK, SCRIPTS),
}


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("case", CASES)
def test_what_a_case_names_exists(case: str):
    for item in CASES[case]:
        file, _, function = item.partition("::")
        if function:
            assert function in functions(file), item
        elif item.startswith("proof:"):
            assert item.removeprefix("proof:") in {property.name for property in PROPERTIES}, item
        else:
            assert " " in item, item


def test_every_listed_case_is_answered():
    if not LIST.is_file():
        pytest.skip(f"no list of failures at {LIST}")
    listed = re.findall(r"^\| ([AB]\d\d) \|", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(CASES) == sorted(listed)


def test_programs_of_a_kernel_lie_along_the_first_axis(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("triton")
    from impls.kernels import score_launch
    from impls.kernels.score_apply import parts_of

    launched = []
    monkeypatch.setattr(score_launch, "interpreted", lambda: True)
    monkeypatch.setattr(score_launch, "run", lambda kernel, grid, **told: launched.append(grid(told)))
    score_launch.launch(None, score_launch.Tiles((), ()), "M", heads=70_000, length=33)
    assert launched == [(3 * 70_000, 1)], "three tiles of 16 rows for each head"
    assert all(parts_of(heads, 2**20) <= 65_535 for heads in (1, 7, 4096))


def test_wide_heads_are_left_to_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ATTEST_KERNELS", "1")
    given = {"is_cuda": True, "dtype": torch.float32, "numel": lambda: 1024}
    narrow, wide = (SimpleNamespace(shape=(1, 1, 4, width), **given) for width in (256, 257))
    assert kernels.usable(narrow)  # pyright: ignore[reportArgumentType]
    assert not kernels.usable(wide)  # pyright: ignore[reportArgumentType]


def test_a_window_of_two_holds_two_keys():
    """Equal scores average the values that are seen; the window of a layer that was trained without."""
    window = Window(Softmax(4, Softmax.Config(heads=1, rope=False)), 2)
    zeros, v = torch.zeros(1, 1, 4, 4), torch.arange(1.0, 5).view(1, 1, 4, 1)
    assert_close(window.mix(zeros, zeros, v).flatten(), torch.tensor([1.0, 1.5, 2.5, 3.5]))
    for rows in (1, 3):  # some at a time
        window.rows = rows
        assert_close(window.mix(zeros, zeros, v).flatten(), torch.tensor([1.0, 1.5, 2.5, 3.5]))


def test_a_row_longer_than_65536_ends_right():
    """One head of one channel that adds up ones without and with decay; the last chunk holds one token."""
    T = 2**16 + 1
    one = torch.ones(1, 1, T, 1)
    y, S = ops.decay_scan(one, one, one)
    assert_close(y[0, 0, :, 0], torch.arange(1.0, T + 1))
    assert S.item() == T
    g = torch.full((1, 1, T), 0.5).log()
    y, _ = ops.decay_scan(one, one, one, g)
    assert_close(y[0, 0, 40:, 0], torch.full((T - 40,), 2.0))
    y, _ = ops.delta_scan(one, one, one, 0.5 * one)
    assert_close(y[0, 0, 40:, 0], torch.ones(T - 40))


@pytest.mark.parametrize("K", [1, 3, 72])
def test_a_head_of_any_width_gives_the_same_bits_twice(K: int):
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 70, K, generator=draw) for _ in range(3))
    k, g = ops.unit(k), -torch.rand(1, 2, 70, K, generator=draw)
    first, S = ops.delta_scan(q, k, v, 0.5 * k, g)
    again, S_again = ops.delta_scan(q, k, v, 0.5 * k, g)
    assert torch.equal(first, again)
    assert torch.equal(S, S_again)
    wide = ops.delta_scan(q.double(), k.double(), v.double(), 0.5 * k.double(), g.double())[0]
    assert_close(first.double(), wide, rtol=1e-4, atol=1e-4)
