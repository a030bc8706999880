"""What charts of one kind have in common is written once for the site; a page holds what is a chart's own.

`difference` and the `merged` of `templates/assets/charts.js` undo each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def difference(base: Any, whole: Any) -> Any:
    """What to put over `base` to have `whole`: objects and lists of equal length part by part, None for what goes.

    Raises ValueError where `whole` says None and `base` does not, which would be taken for what goes.
    """
    if isinstance(base, list) and isinstance(whole, list) and len(base) == len(whole):
        return difference(dict(enumerate(base)), dict(enumerate(whole)))
    if not (isinstance(base, dict) and isinstance(whole, dict)):
        return whole
    found: dict[Any, Any] = dict.fromkeys(key for key in base if key not in whole)
    for key, value in whole.items():
        if value is None and base.get(key, key) is not None:
            raise ValueError(f"{key} is None, which says that it goes")
        if key not in base or base[key] != value:
            found[key] = difference(base.get(key), value)
    return found


def brief(rows: Sequence[Sequence[str]]) -> str:
    """Comma-separated rows whose last field is always said; another is empty where it is that of the row before."""
    last: Sequence[str] = ()
    lines = []
    for row in rows:
        same = [k < len(last) and last[k] == text for k, text in enumerate(row[:-1])]
        lines.append(",".join("" if is_same else text for is_same, text in zip([*same, False], row, strict=True)))
        last = row
    return "\n".join(lines)
