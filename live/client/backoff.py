"""When to try again: exponential, with full jitter, so that clients cut off together do not return together.

Source: M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
"""

import random


class Backoff:
    """Pauses in seconds: the n-th is random, up to `base` doubled n times and never more than `longest`."""

    def __init__(self, base: float, longest: float) -> None:
        self._base = base
        self._longest = longest
        self._limit = base

    def next(self) -> float:
        """The pause before the next attempt."""
        pause = random.uniform(0, min(self._limit, self._longest))  # noqa: S311 - spreads load, protects nothing
        self._limit = min(2 * self._limit, self._longest)
        return pause

    def after(self, seconds: float) -> float:
        """The pause when the server has said how long to wait: at least that, plus up to `base`."""
        return seconds + random.uniform(0, min(self._base, self._longest))  # noqa: S311 - the same

    def reset(self) -> None:
        """Start over, once an attempt has worked."""
        self._limit = self._base
