"""How the cost of a call grows with its input."""

import math
import time
from collections.abc import Callable
from typing import Final

_ROUNDS: Final = 10
_MOST: Final = 9.0  # four times the input takes 4 times as long if the cost is linear, and 16 times if it is quadratic


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Return whether four times `size` takes about four times as long.

    Other work on the machine can slow down any round. So the quickest round of each size counts.
    """
    small = large = math.inf
    for _ in range(_ROUNDS):
        small, large = min(small, _seconds(work, size)), min(large, _seconds(work, 4 * size))
        if large < _MOST * small:
            return True
    return False


def _seconds(work: Callable[[int], object], size: int) -> float:
    started = time.process_time()
    work(size)
    return time.process_time() - started
