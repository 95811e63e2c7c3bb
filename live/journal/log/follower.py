"""Follows the journal of one board while it grows: what the board held after each entry, one after another."""

from collections import deque
from functools import partial
from itertools import chain

from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.entries import FIRST, Head, parse_head, position_of
from live.journal.log.reader import Progress, contents_of, contents_of_parent, entries_after, newest_segment
from live.journal.log.timelines import START, Timeline, find_life
from live.journal.state.fold import apply
from live.journal.state.snapshot import Snapshot
from live.store.board.handover import read_entries
from live.store.board.keys import Keys
from live.store.connection.client import Store


class StoreBehindError(SetupError):
    """SQL has more of a board than the store: the store lost data."""


class Follower:
    """The contents of a board after an entry, which move on from entry to entry.

    Entries come from SQL, and from the store while SQL lacks them. Whoever drains may go on meanwhile.
    """

    def __init__(self, client: Store, database: Database, prefix: str, board: str, epoch: str) -> None:
        self.contents = Snapshot(link=FIRST)
        self._client = client
        self._database = database
        self._prefix = prefix
        self._name = (board, epoch)
        self._life: Timeline | None = None
        self._segment = 0
        self._ahead: deque[tuple[Head, bytes]] = deque()  # entries that are read, and not applied yet
        self._last = (0, 0)  # the position of the last entry that was read

    async def begin(self, progress: Progress) -> None:
        """Read everything that SQL has. Calls `progress` with the number of entries so far, and of all.

        Raises:
            SetupError: the journal is damaged.
            StoreUnavailableError: the database is unavailable.
        """
        await self._find()
        life = self._life
        if life is None:
            return
        self._segment = await self._database.run(lambda connection: newest_segment(connection, life))
        read = partial(contents_of, prefix=self._prefix, life=life, until=self._segment, progress=progress)
        self.contents = await self._database.run(read)
        self._last = position_of(self.contents.link)

    async def advance(self, link: str) -> Snapshot:
        """What the board held after the entry with a link. Links must be in the order of the journal.

        Raises:
            StoreBehindError: SQL has more, or other entries in their place.
            SetupError: the journal lacks the entry.
            StoreUnavailableError: the store or the database is unavailable.
        """
        while self.contents.link != link:
            if position_of(self.contents.link) >= position_of(link):
                raise self._behind(link)
            if not self._ahead:
                await self._read()
            if not self._ahead:
                raise self._missing(link)
            await self._apply(*self._ahead.popleft())
        return self.contents

    async def _apply(self, head: Head, body: bytes) -> None:
        """Apply the next entry."""
        board, epoch = self._name
        if head.kind == "renew" and self.contents.link == FIRST:
            parent = partial(
                contents_of_parent,
                prefix=self._prefix,
                life=Timeline(0, board, epoch),
                epoch=body.decode(),
                link=head.before,
            )
            self.contents = await self._database.run(parent)
        elif head.kind != "adopt" and head.before != self.contents.link:
            if position_of(head.before) <= position_of(self.contents.link):
                raise self._behind(head.before)
            raise self._missing(head.before)
        apply(self.contents, head, body)

    def _behind(self, link: str) -> StoreBehindError:
        return StoreBehindError(
            f"the journal has board {self._name[0]} up to entry {self.contents.link.partition(' ')[0]}, and the store "
            f"continues after {link.partition(' ')[0]}: it lost data"
        )

    def _missing(self, link: str) -> SetupError:
        return SetupError(
            f"the journal of board {self._name[0]} lacks the entry {link.partition(' ')[0]}, which the store names: "
            "see the log of the server, and `live journal status`"
        )

    async def _find(self) -> None:
        """Find the life in SQL, which lacks it until its first entry is there."""
        life = await self._database.run(lambda connection: find_life(connection, self._prefix, *self._name))
        self._life = life if life is not None and life.size else None

    async def _read(self) -> None:
        """Read what follows. An entry that the drainer trims meanwhile has reached SQL before."""
        waiting = await self._waiting()
        if self._life is None:
            await self._find()
        stored: list[tuple[Head, bytes]] = []
        if self._life is not None:
            life, after = self._life, self._segment
            self._segment, stored = await self._database.run(lambda connection: entries_after(connection, life, after))
        for head, body in chain(stored, waiting):
            if position_of(head.id) > self._last:
                self._ahead.append((head, body))
                self._last = position_of(head.id)

    async def _waiting(self) -> list[tuple[Head, bytes]]:
        """The next entries in the store."""
        board, epoch = self._name
        after = "-".join(map(str, self._last)) if self._last > (0, 0) else START
        (entries,) = await read_entries(self._client, [(Keys(self._prefix, board), epoch, after)])
        return [(parse_head(entry.head), entry.content) for entry in entries]
