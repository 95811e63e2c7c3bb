"""When a connection is read, and when not."""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Pauses and resumes reading; what was received before the pause is read first."""

    def __init__(self, transport: asyncio.Transport, read_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._read_on = read_on

    def resume_reading(self) -> None:
        """Read on, if nothing else is against it."""
        if self.read_paused:
            self._read_on()

    def resume_transport(self) -> None:
        """Receive again."""
        super().resume_reading()

    def end(self) -> None:
        """Let go of the connection, which is lost, and of whoever waits to write to it."""
        self._read_on = _do_nothing
        self.resume_writing()


def _do_nothing() -> None:
    pass
