"""Flow control: when a connection is read."""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Pauses and resumes reading. Bytes received before a pause are read first."""

    def __init__(self, transport: asyncio.Transport, read_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._read_on = read_on

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
