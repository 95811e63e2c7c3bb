"""SIGHUP: the server reads the boards file again. If the file can't be used, the server goes on with the old boards."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from live.domain.board import Boards
from live.errors import SetupError, StoreUnavailableError

READY_WITHIN: Final = 30.0  # seconds that a new worker or application has before a reload gives up

log = structlog.get_logger()


class Reload:
    """The reloads of a server, one after another."""

    def __init__(self, read: Callable[[], Awaitable[Boards]]) -> None:
        """Take the function `read`, which reads the boards file and checks its boards."""
        self._read = read
        self._wanted = asyncio.Event()

    def remember(self) -> None:
        """Remember a SIGHUP that arrives before `listen`. Otherwise it would end the process."""
        signal.signal(signal.SIGHUP, lambda _signal, _frame: self._wanted.set())

    def listen(self) -> None:
        """Reload on SIGHUP from now on."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._wanted.set)

    async def run(self, replace: Callable[[Boards], Awaitable[None]]) -> None:
        """On each SIGHUP, let `replace` put the boards of the file in the place of the old boards."""
        number = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            number += 1
            log.info("reading the boards file again", reload=number)
            # The log drops repeated lines. The number makes each of these lines different.
            kept = f"reload {number} failed, so the old boards stay"
            try:
                await replace(await self._read())
            except (SetupError, StoreUnavailableError) as error:
                log.error(kept, reason=str(error))  # noqa: TRY400 - a mistake of the user, not ours
            except Exception:
                log.exception(kept)
