"""Follows the journal of one board while it grows: what the board held after each entry, one after another."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from live.errors import SetupError
from live.journal.contents import Contents
from live.journal.database import Database
from live.journal.entries import Head, position_of
from live.journal.fold import apply
from live.journal.lives import Life, find_life
from live.journal.reading import Progress, contents_of, entries_after, newest_segment

_POLL: Final = 0.05  # seconds between two checks for new entries
_PATIENCE: Final = 30.0  # seconds without a new entry, after which nobody seems to move entries to SQL


class Follower:
    """The contents of a board after an entry, which move on from entry to entry as SQL receives them."""

    def __init__(self, database: Database, prefix: str, board: str, epoch: str) -> None:
        self.contents = Contents()
        self._database = database
        self._prefix = prefix
        self._name = (board, epoch)
        self._life: Life | None = None
        self._segment = 0
        self._ahead: deque[tuple[Head, bytes]] = deque()  # entries that are read, and not applied yet

    async def begin(self, progress: Progress) -> None:
        """Read everything that SQL has. Calls `progress` with the number of entries so far, and of all.

        Raises:
            SetupError: SQL does not know the board, or the journal is damaged.
            StoreUnavailableError: the database is unavailable.
        """
        await self._wait(self._find)
        life = self._life
        assert life is not None, "it was found"  # noqa: S101
        self._segment = await self._database.run(lambda connection: newest_segment(connection, life))
        read = partial(contents_of, prefix=self._prefix, life=life, until=self._segment, progress=progress)
        self.contents = await self._database.run(read)

    async def advance(self, link: str) -> Contents:
        """What the board held after the entry with a link. Links must be in the order of the journal.

        Raises:
            SetupError: SQL does not receive the entry, or has others in its place.
            StoreUnavailableError: the database is unavailable.
        """
        wanted = position_of(link)
        while self.contents.link != link:
            await self._wait(self._read)
            head, body = self._ahead[0]
            follows = head.before == self.contents.link or head.kind == "adopt"
            if position_of(head.id) > wanted or not follows:
                raise SetupError(
                    f"the journal of board {self._name[0]} lacks the entry {link!r}, which the store has: "
                    "it has a gap, or belongs to another store. See `live journal status`, and run the command again"
                )
            self._ahead.popleft()
            apply(self.contents, head, body)
        return self.contents

    async def _wait(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Check repeatedly, until there is something.

        Raises:
            SetupError: that takes too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while not await check():
            if loop.time() > deadline:
                raise SetupError(
                    f"the journal of board {self._name[0]} has received nothing for {_PATIENCE:g} s, and entries wait "
                    "in the store: see the log of the server, and `live journal status`"
                )
            await asyncio.sleep(_POLL)

    async def _find(self) -> bool:
        """Whether SQL has an entry of the board."""
        self._life = await self._database.run(lambda connection: find_life(connection, self._prefix, *self._name))
        return self._life is not None and self._life.size > 0

    async def _read(self) -> bool:
        """Whether there is an entry that was not applied. Reads new ones."""
        life = self._life
        if not self._ahead and life is not None:
            after = self._segment
            self._segment, entries = await self._database.run(lambda connection: entries_after(connection, life, after))
            self._ahead.extend(entries)
        return bool(self._ahead)
