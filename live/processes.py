"""Processes that do not outlive the one that started them."""

import ctypes
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing can be


def end_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when the thread that started it ends, however it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
