"""The one exception that a user can cause, and how a command ends when it is raised."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn


class UserError(Exception):
    """Something the user can mend. The text says what is wrong, where, and the mend; one fault a line."""


def leave(main: Callable[[], int | None]) -> NoReturn:
    """Run a command's `main` and exit: its own code, or 1 with the sentence of a UserError on stderr."""
    try:
        sys.exit(main() or 0)
    except UserError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def suggest(name: object, valid: Iterable[str]) -> str:
    """`; did you mean 'heads'?` for the nearest valid name, else `; choose one of a, b`, else nothing."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; choose one of {', '.join(names)}" if 0 < len(names) <= 30 else ""
