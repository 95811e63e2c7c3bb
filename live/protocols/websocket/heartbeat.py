"""Pings that detect dead clients."""

import asyncio
from collections.abc import Callable
from typing import Final

_INTERVAL: Final = 20.0  # seconds
_CLOSE_TIMEOUT: Final = 5.0  # seconds that a client has for the closing handshake


class Heartbeat:
    """The timer of one socket: first for pings, then for the closing handshake.

    Call `received` when data arrives. The heartbeat calls `ping` once per interval, and `abort` if nothing arrived
    since the last ping. A client is not dead while we do not read from it.
    """

    __slots__ = ("_abort", "_closing", "_is_alive", "_is_reading", "_ping", "_timer")

    def __init__(self, ping: Callable[[], None], abort: Callable[[], None], is_reading: Callable[[], bool]) -> None:
        self._ping = ping
        self._abort = abort
        self._is_reading = is_reading
        self._is_alive = True
        self._closing = False
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._beat)

    def received(self) -> None:
        """Data arrived from the client."""
        self._is_alive = True

    def close(self) -> None:
        """Start the timeout of the closing handshake."""
        if not self._closing:
            self._closing = True
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT, self._abort)

    def stop(self) -> None:
        """Cancel the timer: the connection is closed."""
        self._timer.cancel()

    def _beat(self) -> None:
        if not self._is_alive and self._is_reading():
            self._abort()
            return
        self._is_alive = False
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._beat)
        self._ping()
