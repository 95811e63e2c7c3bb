"""Ask other processes about the past of boards, because folding a journal here would delay viewers."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Final, TypeVar

from live.domain.board import Board
from live.errors import JournalBehindError, JournalError, ProblemError
from live.journal.database import identity
from live.journal.log.entries import position_of
from live.journal.past.queries import TooLongError
from live.journal.past.worker import Ticket, begin_worker, drained, run_limited
from live.settings import Settings
from live.system.processes import CHILDREN
from live.system.resources import PAST_AT_ONCE, Turns

_R = TypeVar("_R")

_PATIENCE: Final = 2.0  # seconds to wait until SQL has everything that the store has
_POLL: Final = 0.05
_ENDED: Final = "the process that reads the journal has ended"


class Past:
    """Read the past of boards in other processes, which start when they are needed.

    Clients take turns, with one query each, so that none uses all processes. A query ends when its client leaves.
    """

    def __init__(self, settings: Settings, turns: Turns) -> None:
        self._settings = settings
        self._pool: ProcessPoolExecutor | None = None
        self._id = ""
        self._turns = turns
        self._places = list(range(PAST_AT_ONCE))  # the indexes of `_wanted` that no query uses
        # In shared memory: the numbers of the queries that are still wanted. The processes watch these numbers.
        self._wanted = CHILDREN.RawArray("q", PAST_AT_ONCE)
        self._number = 0

    async def wait(self, client: str, board: Board, epoch: str, link: str, at: int) -> None:
        """Wait for a client until SQL has everything up to `link`, the last entry in the store.

        On a board with the server's clock, wait only until SQL has everything before `at` (milliseconds since 1970).

        Raises:
            JournalBehindError: SQL still lacks some of these entries after `_PATIENCE` seconds.
        """
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        last = position_of(link)
        while True:
            offset, time = await self.run(client, drained, board.id, epoch)
            if offset >= last or (board.clock == "server" and time >= at * 1000):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise JournalBehindError(f"board {board.id}: the journal in SQL is behind the store")
            await asyncio.sleep(_POLL)

    async def is_of(self, client: str, sink: str) -> bool:
        """Return whether `sink`, the id of the database for the store's journals, is the id of this database."""
        if not self._id:
            self._id = await self.run(client, identity)
        return self._id == sink

    async def run(self, client: str, work: Callable[..., _R], *given: object) -> _R:
        """Do work for a client, which is a network, in another process, as `Database.work` does it."""
        await self._turns.enter(client)
        place = self._places.pop()
        self._number = number = self._wanted[place] = self._number + 1
        query = partial(run_limited, Ticket(place, number), work, *given)
        if self._pool is None:
            shared = self._settings, self._wanted
            self._pool = ProcessPoolExecutor(PAST_AT_ONCE, CHILDREN, begin_worker, shared)
        pool = self._pool

        def finish(running: "asyncio.Future[_R]") -> None:
            if not running.cancelled():
                running.exception()  # this marks the error as seen, because the client may have disconnected
            self._release(client, place)

        try:
            running = asyncio.wrap_future(pool.submit(query))
            running.add_done_callback(finish)
        except BaseException as error:
            self._release(client, place)
            self._pool = None
            if isinstance(error, BrokenProcessPool):  # the processes ended while there was no query
                raise JournalError(_ENDED) from error
            raise
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if self._wanted[place] == number:  # otherwise the query has ended
                self._wanted[place] = 0  # when the process notices this, it ends the query
            raise
        # The process may have run out of memory; the next query starts other processes.
        except BrokenProcessPool as error:
            if self._pool is pool:
                self._pool = None
            raise JournalError(_ENDED) from error
        except TooLongError as error:
            raise ProblemError("past_too_large", str(error)) from None

    def _release(self, client: str, place: int) -> None:
        self._places.append(place)
        self._turns.leave(client)

    async def aclose(self) -> None:
        """End the queries and the other processes, and wait until they have ended.

        If `multiprocessing` started this process, it would otherwise wait for the other processes at its own end, and
        nothing would end them.
        """
        if self._pool is not None:
            self._wanted[:] = [0] * PAST_AT_ONCE
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
