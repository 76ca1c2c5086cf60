"""The tie between a service and the `octavo up` that started it: where the parent dies, so does the child."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

PARENT_ENV = "OCTAVO_PARENT_PID"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def tie_to_parent(env: Mapping[str, str]) -> None:
    """Have the kernel end this process when the one named by `OCTAVO_PARENT_PID` ends; at once if it has already.

    Without the variable, or on a system without this call, nothing happens.  The signal is sent when the parent's
    *thread* ends that started us, so parents start services from their main thread.
    """
    parent = env.get(PARENT_ENV, "")
    if not parent.isdigit() or sys.platform != "linux":
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies, so that none is left unseen."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(call: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(call, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
