"""Reading a board: consecutive records at one instant."""

from typing import Any, Final

import msgspec
from msgspec import UNSET

from live.errors import StoreUnavailableError
from live.ranking import Page, Record, position, ranks_of
from live.store.client import store_errors
from live.store.life import MOST_REPLANS, Life
from live.store.line import Word
from live.window import Periods

TAG: Final = 8  # bytes before the key in a name, where ties go by time


class Reading(Life):
    """A board that is read."""

    async def read(
        self,
        limit: int,
        *,
        start: int = 0,
        after: tuple[int, bytes] | None = None,
        before: tuple[int, bytes] | None = None,
        period: int | None = None,
    ) -> Page:
        """Read `limit` records from `start`, or those that follow or precede a position (`Page.first`, `Page.last`).

        `period` is the start of one, on a board that has a ranking for each; None for the current one.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        if after is not None:
            return await self._read("after", after[0], after[1], limit, period)
        if before is not None:
            return await self._read("before", before[0], before[1], limit, period)
        return await self._read("rank", start, "", limit, period)

    async def find(self, key: str, around: int, *, period: int | None = None) -> Page | None:
        """Read a key's record with `around` neighbours on each side; None when the key is not on the board.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        page = await self._read("around", around, key, 0, period)
        return page if page.records else None

    async def read_score(self, score: int, limit: int, *, period: int | None = None) -> Page:
        """Read `limit` records around the place that a score would have.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        return await self._read("score", score, "", limit, period)

    async def position(self) -> tuple[str, int]:
        """The epoch of the board, and its offset: where it stands.

        Raises:
            StoreUnavailableError: the store is away.
        """
        async with store_errors():
            epoch, offset = await self._client.line.call("HMGET", self.keys.meta, "epoch", "offset")
        return (epoch or b"").decode(), int(offset or 0)

    async def current(self) -> int | None:
        """The start of the newest period; None before the first event of an event clock.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        return (await self.read(1)).slot

    async def entrant(self, key: str) -> bytes | None:
        """The metadata with which a key is registered for a contest, as JSON; None when it is not.

        Raises:
            StoreUnavailableError: the store is away.
        """
        if self.board.votes is None:
            return None
        async with store_errors():
            found: bytes | None = await self._client.line.call("HGET", self.keys.entrants, key)
        return found

    async def _read(self, mode: str, number: int, name: str | bytes, limit: int, period: int | None) -> Page:
        await self.open()
        board = self.board
        for _ in range(MOST_REPLANS):
            slot, current, till = self._current()
            if not board.window.tables or period is not None:
                current, till = "any", ""
            table = self._table(slot if period is None else period)
            arguments: list[Word] = [board.clock, current, till, table.suffix, board.tags, board.reading, board.ranks]
            arguments += [mode, number, name, limit, "1" if board.described else ""]
            async with store_errors():
                reply = await self._scripts.read(
                    self._client,
                    [*table.order, self.keys.meta, self.keys.entrants if board.votes else table.metadata],
                    arguments,
                )
            if reply[0] == b"replan":
                self._hear(*reply[1:])
                continue
            if reply[0].decode() != self.epoch:
                raise self._lost([b"epoch", reply[0]])
            return self._page(reply, slot if period is None else period)
        raise StoreUnavailableError(f"the clock of board {board.id} moved {MOST_REPLANS} times in a row")

    def _page(self, reply: list[Any], period: int | None) -> Page:
        _, offset, count, total, start, rank, rows, metadata, registered = reply
        board = self.board
        names, scores = rows[::2], [int(float(score)) for score in rows[1::2]]
        skip = 0 if board.tags == "key" else TAG
        first = int(start or 0)
        ranks = ranks_of(scores, int(rank or 0), first, board.ranks)
        described = metadata or [None] * len(names)
        records = tuple(
            Record(
                name[skip:].decode(),
                score,
                rank,
                UNSET if board.score is None else board.score.unpack(score),
                UNSET if text is None else msgspec.Raw(text),
                position(rank, place),
            )
            for place, (name, score, rank, text) in enumerate(
                zip(names, scores, ranks, described, strict=True), first + 1
            )
        )
        return Page(
            epoch=self.epoch or "",
            offset=int(offset),
            rank_count=int(count),
            total_score=int(total) if board.score is None else None,
            start=first,
            records=records,
            names=tuple(names),
            entrants=None if board.votes is None else registered,
            slot=period if board.window.tables else None,
            period=self._period_name(period),
        )

    def _period_name(self, start: int | None) -> str | None:
        window = self.board.window
        if start is None or not isinstance(window, Periods) or not window.tables:
            return None
        return window.calendar.at(start).name
