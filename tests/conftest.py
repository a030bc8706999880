"""Fixtures of the whole suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.proofs.properties import unwritten_memory_is_nan

SHARED = Path(__file__).parents[1].parent / "shared"  # reference vectors and failure reports, where a checkout has them


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small tensors gain nothing from more threads, and results depend on their number."""
    torch.set_num_threads(1)


@pytest.fixture
def exact() -> Iterator[None]:
    """Deterministic kernels, and NaN wherever memory is read before it is written."""
    with unwritten_memory_is_nan():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes longest goes first, so that two workers end together."""
    items.sort(key=lambda item: item.path.name != "test_workflow.py")
