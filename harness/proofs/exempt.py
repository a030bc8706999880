"""Properties that a mechanism need not have, by mechanism and property, each with its reason.

A property that holds all the same is a failed proof: what is no longer needed must go.
"""

from __future__ import annotations

EXEMPT: dict[tuple[str, str], str] = {}
