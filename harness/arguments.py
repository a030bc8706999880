"""Types of command-line arguments; argparse says what is wrong with one and exits with 2."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

from harness.config import known_device
from harness.yamlio import shorten


def seed(text: str) -> int:
    """A whole number from 0 to 2³¹ − 1, as `harness.closed.Seed` is in a file."""
    return _whole(text, 0, 2**31 - 1)


def threads(text: str) -> int:
    """A whole number from 1 to 1024."""
    return _whole(text, 1, 1024)


def device_name(text: str) -> str:
    """auto, cpu, cuda or cuda:0."""
    try:
        return known_device(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise ArgumentTypeError(f"{shorten(text)!r} should be a whole number from {least} to {most}")
    return int(text)
