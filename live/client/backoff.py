"""Exponential back-off with full jitter, so that clients that were disconnected together do not return together."""

import random


class Backoff:
    """Pauses in seconds. The n-th pause is random, up to `base` doubled n times and at most `longest`."""

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
        """The pause if the server asks for a number of seconds: at least that, plus up to `base`."""
        return seconds + random.uniform(0, min(self._base, self._longest))  # noqa: S311 - the same

    def reset(self) -> None:
        """Start over, once an attempt has worked."""
        self._limit = self._base
