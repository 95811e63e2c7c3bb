"""Reading a board: consecutive records at one instant."""

from collections.abc import Callable, Sequence
from itertools import count as count_from
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET

from live.domain.board import Board
from live.domain.ranking import Page, Record, position, ranks_of
from live.domain.window import Periods
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.requests import PlannedClock, ReadRequest, View, view_of
from live.store.board.state import MOST_REPLANS, Life
from live.store.connection.client import Store, store_errors
from live.store.connection.scripts import Script, text

HIGH: Final = 40  # bits below the higher part of a sum of scores
Mode = Literal["rank", "after", "before", "around", "score"]
_R = TypeVar("_R", bound=msgspec.Struct)

TAG: Final = 8  # bytes before the key in a name, where ties go by time


def total_of(text: bytes) -> int:
    """The sum of all scores as scripts give it: a number, or one and `+` and another in units of 2^40."""
    low, _, high = text.partition(b"+")
    return int(low) + (int(high or 0) << HIGH)


class Question(msgspec.Struct, frozen=True):
    """What a script that reads is to read: the period that starts at `slot`, and as in `ReadRequest`."""

    slot: int | None
    keys: list[str]
    clock: PlannedClock | None
    suffix: str
    view: View

    def read(self, mode: Mode, number: int, name: str | bytes, limit: int) -> ReadRequest:
        """A request for consecutive records."""
        return ReadRequest(
            clock=self.clock,
            suffix=self.suffix,
            view=self.view,
            mode=mode,
            number=number,
            name=name if isinstance(name, str) else text(name),
            limit=limit,
        )


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

    async def _read(self, mode: Mode, number: int, name: str | bytes, limit: int, period: int | None) -> Page:
        def request(question: Question) -> ReadRequest:
            return question.read(mode, number, name, limit)

        reply, board, slot = await self._ask(self._scripts.read, request, period)
        return self._page(reply, board, slot)

    async def _ask(
        self, script: Script[_R], request: Callable[["Question"], _R], period: int | None
    ) -> tuple[list[Any], Board, int | None]:
        """Run a script that reads, with the request that is made of a question.

        Gives its answer, the board that it was asked for, and where the period starts that was read.
        """
        await self.open()
        for _ in range(MOST_REPLANS):
            board = self.board  # one value for the question and its answer, for it may be changed meanwhile
            question = self._question(period)
            known = self._known()
            async with store_errors():
                reply = await script(self._client, question.keys, request(question))
            if self._is_answered(reply, known):
                return reply, board, question.slot
        raise StoreUnavailableError(f"the clock of board {self.board.id} moved {MOST_REPLANS} times in a row")

    def _question(self, period: int | None) -> "Question":
        """What is to be read: the current period, or the one that starts at `period`."""
        board, clock = self.board, self._planned()
        slot = clock.current if period is None else period
        table = self._table(slot)
        return Question(
            slot=slot,
            keys=[*table.order, self.keys.meta, self.keys.entrants if board.votes else table.metadata],
            clock=clock if board.window.tables and period is None else None,
            suffix=table.suffix,
            view=view_of(board),
        )

    def _is_answered(self, reply: list[Any], known: int) -> bool:
        """Whether a script has read; if not, the board's clock is another than was thought, which is known now.

        `known` is the highest offset that was known before the store was asked.

        Raises:
            EpochLostError: the store lost the board.
        """
        if reply[0] == b"replan":
            self._hear(*reply[1:])
            return False
        if reply[0].decode() != self.epoch:
            raise self._lost([b"epoch", reply[0]])
        self._see(reply[1], known)
        return True

    def _page(self, reply: list[Any], board: Board, period: int | None) -> Page:
        """The page of an answer about a board as it was when it was asked for."""
        _, offset, count, total, start, rank, rows, metadata, registered = reply
        names, scores = rows[::2], [int(float(score)) for score in rows[1::2]]
        skip = 0 if board.tags == "key" else TAG
        first = int(start or 0)
        records = (
            tuple(map(Record, [name[skip:].decode() for name in names], scores, count_from(first + 1)))
            if board.bare and board.ranks == "ordinal"
            else _described(board, names, scores, metadata, first, int(rank or 0))
        )
        return Page(
            epoch=self.epoch or "",
            offset=int(offset),
            rank_count=int(count),
            total_score=total_of(total) if board.score is None else None,
            start=first,
            records=records,
            names=tuple(names),
            entrants=None if board.votes is None else registered,
            slot=period if board.window.tables else None,
            period=_period_name(board, period),
        )


async def read_positions(client: Store, boards: Sequence[Reading]) -> list[tuple[str, int]]:
    """Where boards stand, epoch and offset of each, at the price of one call.

    Raises:
        StoreUnavailableError: the store is away.
    """
    async with store_errors():
        replies = await client.line.calls([("HMGET", board.keys.meta, "epoch", "offset") for board in boards])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
    return [((epoch or b"").decode(), int(offset or 0)) for epoch, offset in replies]


async def read_tops(client: Store, wanted: Sequence[tuple[Reading, int]]) -> list[Page | Exception]:
    """Read the first so many records of several boards, at the price of one call; errors are given back as values."""
    asked = [board.board for board, _ in wanted]
    questions = [board._question(None) for board, _ in wanted]  # noqa: SLF001
    known = [board._known() for board, _ in wanted]  # noqa: SLF001
    commands = [
        board._scripts.read.command(question.keys, question.read("rank", 0, "", size))  # noqa: SLF001
        for (board, size), question in zip(wanted, questions, strict=True)
    ]
    try:
        async with store_errors():
            replies = await client.line.calls(commands)
    except StoreUnavailableError as error:
        return [error] * len(wanted)
    return [
        await _understood(board, size, held, question.slot, reply, offset)
        for (board, size), held, question, reply, offset in zip(wanted, asked, questions, replies, known, strict=True)
    ]


async def _understood(
    board: Reading,
    size: int,
    asked: Board,
    slot: int | None,
    reply: Any,  # noqa: ANN401
    known: int,
) -> Page | Exception:
    """The page of a reply; what does not go smoothly is read once more, by itself."""
    try:
        if isinstance(reply, list) and board.epoch is not None and board._is_answered(reply, known):  # noqa: SLF001
            return board._page(reply, asked, slot)  # noqa: SLF001
        return await board.read(size)
    except (StoreUnavailableError, EpochLostError) as error:
        return error


def _described(
    board: Board, names: list[bytes], scores: list[int], metadata: list[bytes | None], first: int, rank: int
) -> tuple[Record, ...]:
    """Records with all that may be said of them."""
    skip = 0 if board.tags == "key" else TAG
    ranks = ranks_of(scores, rank, first, board.ranks)
    described = metadata or [None] * len(names)
    return tuple(
        Record(
            name[skip:].decode(),
            score,
            rank,
            UNSET if board.score is None else board.score.unpack(score),
            UNSET if text is None else msgspec.Raw(text),
            position(rank, place),
        )
        for place, (name, score, rank, text) in enumerate(zip(names, scores, ranks, described, strict=True), first + 1)
    )


def _period_name(board: Board, start: int | None) -> str | None:
    window = board.window
    if start is None or not isinstance(window, Periods) or not window.tables:
        return None
    return window.calendar.at(start).name
