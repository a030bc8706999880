"""A job ends with the workflow that started it, killed or not, so that nobody writes into what the next build makes.

The Snakefile names its process in ATTEST_WORKFLOW, and each job replaces the shell that Snakemake starts for it. On
Linux the system then tells the job when the workflow is gone. Elsewhere it goes on, and on the same machine the same
job of the next build waits for it, if it is one of train, tune, noise, study and apply (harness.lock).
A command that is started by hand has no workflow and goes on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

VARIABLE = "ATTEST_WORKFLOW"
PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with_workflow() -> None:
    """SIGTERM for this process when its parent ends, if a workflow started it; at once if that has ended already."""
    workflow = os.environ.get(VARIABLE, "")
    if workflow.isdigit():
        end_with_parent()
        if os.getppid() != int(workflow) and not alive(int(workflow)):
            sys.exit(f"the workflow that started this, process {workflow}, has ended")


def end_with_parent() -> None:
    """SIGTERM for this process when the one that started it ends; nothing where the system has no such signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def alive(pid: int) -> bool:
    """Whether a process of this number runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
