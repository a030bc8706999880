"""The one exception that a user can cause, what a machine can refuse, and how a command ends when it is raised."""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from harness import log
from harness.parent import end_with_workflow

MENDS = {  # what a machine can refuse to any command, and the mend
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the machine",
    errno.EROFS: "make it writable",
    errno.EACCES: "make it accessible",
    errno.EPERM: "make it accessible",
    errno.EIO: "look at the disk",
}


class UserError(Exception):
    """Something the user can mend. The text says what is wrong, where, and the mend; one fault a line."""


def leave(main: Callable[[], int | None]) -> NoReturn:
    """Run a command's `main` and exit: its own code, or 1 with one sentence on stderr.

    The sentence is that of a UserError, or says which file the system refused and why: too long a name, no right, a
    full disk.
    """
    log.begin()
    end_with_workflow()
    try:
        for word in sys.argv[1:]:
            if word.encode(errors="replace").decode() != word:
                raise UserError(f"the argument {word!r} is not UTF-8; write it in UTF-8")
        sys.exit(main() or 0)
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        if error.filename is None and not of_machine(error):
            raise
        mend = f"; {MENDS[error.errno or 0]}, then run this again" if of_machine(error) else ""
        sys.exit(f"{str(error.filename or 'a file')[:200]}: {error.strerror}{mend}")
    except KeyboardInterrupt:
        sys.exit(130)


def of_machine(error: BaseException) -> bool:
    """Whether the machine refused something that it can grant another time: space, open files, access."""
    return isinstance(error, OSError) and error.errno in MENDS


def suggest(name: object, valid: Iterable[str]) -> str:
    """`; did you mean 'heads'?` for the nearest valid name, else `; choose one of a, b`, else nothing."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; choose one of {', '.join(names)}" if 0 < len(names) <= 30 else ""
