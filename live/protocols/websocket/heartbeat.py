"""Pings that find out whether a client is still there."""

import asyncio
from collections.abc import Callable
from typing import Final

_INTERVAL: Final = 20.0  # seconds
_CLOSE_TIMEOUT: Final = 5.0  # seconds that a client has for the closing handshake


class Heartbeat:
    """The timer of one socket: first for its pings, later for the end of its closing handshake.

    Call `heard` when anything arrives. `ping` is called once in an interval, `abort` when the client has said nothing
    since the last ping; a client that we don't read is not to blame for its silence.
    """

    __slots__ = ("_abort", "_closing", "_heard", "_is_reading", "_ping", "_timer")

    def __init__(self, ping: Callable[[], None], abort: Callable[[], None], is_reading: Callable[[], bool]) -> None:
        self._ping = ping
        self._abort = abort
        self._is_reading = is_reading
        self._heard = True
        self._closing = False
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._beat)

    def heard(self) -> None:
        """Something arrived from the client."""
        self._heard = True

    def close(self) -> None:
        """The closing handshake begins: end the connection when it takes too long."""
        if not self._closing:
            self._closing = True
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT, self._abort)

    def stop(self) -> None:
        """The connection is closed."""
        self._timer.cancel()

    def _beat(self) -> None:
        if not self._heard and self._is_reading():
            self._abort()
            return
        self._heard = False
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._beat)
        self._ping()
