"""Processes that do not outlive the one that started them."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing can be


def end_with_parent(parent: int) -> None:
    """Ask the kernel to send this process SIGTERM when the thread that started it ends, however it ends.

    `parent` is the process id of the one that started it: it may have ended before the kernel was asked.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
