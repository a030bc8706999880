"""The one exception that a user can cause, and how a command ends when it is raised."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn


class UserError(Exception):
    """Something the user can mend. The text says what is wrong, where, and the mend; one fault a line."""


def leave(main: Callable[[], int | None]) -> NoReturn:
    """Run a command's `main` and exit: its own code, or 1 with one sentence on stderr.

    The sentence is that of a UserError, or says which file the system refused: too long a name, no right, a full disk.
    """
    try:
        for word in sys.argv[1:]:
            if word.encode(errors="replace").decode() != word:
                raise UserError(f"the argument {word!r} is not UTF-8; write it in UTF-8")
        sys.exit(main() or 0)
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        if error.filename is None:
            raise
        sys.exit(f"{str(error.filename)[:200]}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)


def suggest(name: object, valid: Iterable[str]) -> str:
    """`; did you mean 'heads'?` for the nearest valid name, else `; choose one of a, b`, else nothing."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; choose one of {', '.join(names)}" if 0 < len(names) <= 30 else ""
