"""Flow control: when a connection is read."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl


class WithBody(Protocol):
    """A request with a body: `size` bytes of it were admitted, or `wanted` bytes wait."""

    size: int
    wanted: int


class Flow(FlowControl):
    """Pauses and resumes reading. Bytes received before a pause are read first.

    `held` is the number of bytes of bodies that were admitted and are not answered, `waits` the request whose body
    waits. `is_counted` says whether the budget for bodies knows of them.
    """

    def __init__(self, transport: asyncio.Transport, read_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._read_on = read_on
        self.held = 0
        self.waits: WithBody | None = None
        self.is_counted = False

    def resume_reading(self) -> None:
        """Resume reading, if it was paused."""
        if self.read_paused:
            self._read_on()

    def resume_transport(self) -> None:
        """Receive from the transport again."""
        super().resume_reading()

    def end(self) -> None:
        """Release the connection, which is lost, and every task that waits to write to it."""
        self._read_on = _do_nothing
        self.resume_writing()


def _do_nothing() -> None:
    pass
