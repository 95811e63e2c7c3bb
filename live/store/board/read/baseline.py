"""The baseline of a board: its ranking of an hour ago, or at the end of the last day or week.

Pages compute movement from it. The store takes marks of the ranking every five minutes, or at the end of each day or
week. Each process finds the same baseline among them, so every viewer sees the same movement.
"""

import asyncio
import hashlib
import math
import struct
import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from live.domain.board import Board
from live.domain.ranking import Ranks, ranks_of
from live.domain.window import calendar_of
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.read.reader import BoardReader
from live.store.board.read.single_flight import VersionCache
from live.store.board.requests import BaselineRequest, view_of
from live.store.board.rotation import Timetable
from live.store.board.state import MOST_REPLANS, BoardState

log = structlog.get_logger()

RECORDS: Final = 1000  # records of a mark with their members and scores, and members whose digests one call adds
MOST: Final = 10_000  # members of a mark
_SHORT: Final = 4  # bytes of a digest
_TIE: Final = 1  # the bit of a digest that says whether the score equals the score before it
_RANK_BITS: Final = 32
_RETRY: Final = 5.0
_AT_ONCE: Final = 8  # marks in one packet, which blocks the store for some milliseconds
_MINUTE: Final = 60.0
_LONGEST_WAIT: Final = 60.0  # seconds after which a process that shows a baseline asks for a newer one
_FIELDS: Final = ("epoch", "suffix", "marks", "since", "at", "gained")
_LEAST_SPAN: Final = 300_000  # milliseconds; a rate is not measured over a shorter time
_EMPTY_WAIT: Final = 3600.0  # seconds between two checks of a board that has neither records nor events
_TOP_SERVES: Final = 1.0  # seconds for which the members that are now first are remembered

_decode: Final = msgspec.msgpack.Decoder(list[str]).decode


class Mark(msgspec.Struct, frozen=True):
    """What the store knows of a mark. Times are in milliseconds."""

    id: str
    ranked: int
    known: int
    gained: str


_decode_marks: Final = msgspec.msgpack.Decoder(list[Mark]).decode


class DeepRanks:
    """The ranks of members after the first records. It takes eight bytes for each member.

    A member that is not in the mark seems to be in it with a probability of one to 200,000.
    """

    def __init__(self, scores: Sequence[int], deep: bytes, ranks: Ranks) -> None:
        """Take the scores of the first records, and the digests of the members after them."""
        digests = struct.unpack(f">{len(deep) // _SHORT}I", deep)
        all_scores = list(scores)
        for digest in digests:  # only whether neighbours are equal matters
            all_scores.append(all_scores[-1] + (0 if digest & _TIE else 1))
        found = ranks_of(all_scores, 1, 0, ranks)[len(scores) :]
        self._ranks: array[int] = array(
            "Q", sorted((digest | _TIE) << _RANK_BITS | rank for digest, rank in zip(digests, found, strict=True))
        )

    def __len__(self) -> int:
        return len(self._ranks)

    def get(self, member: str) -> int | None:
        """Return the rank of a member, or None."""
        digest = int.from_bytes(hashlib.sha1(member.encode(), usedforsecurity=False).digest()[:_SHORT]) | _TIE
        place = bisect_left(self._ranks, digest << _RANK_BITS)
        if place == len(self._ranks) or self._ranks[place] >> _RANK_BITS != digest:
            return None
        return self._ranks[place] & ((1 << _RANK_BITS) - 1)


class Baseline(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The ranks and scores of members at one instant."""

    epoch: str
    slot: int | None  # the start of the period that was ranked; None if the board has no ranking for each period
    time: int  # the time of the ranking, in milliseconds since 1970
    ranks: Mapping[str, int | None]  # the rank of each of the first members; None means that a member had no record
    scores: Mapping[str, int]  # the score of each of the first members
    deep: DeepRanks  # the ranks of more members
    rank_count: int  # how many members were ranked
    is_complete: bool  # whether `ranks` and `deep` have every member that was ranked
    # The sum of the amounts that the board has counted per minute since then, on average; None if it is not known.
    per_minute: int | None = None

    def rank_of(self, member: str, otherwise: int | None) -> int | None:
        """Return the rank of a member; None if it had no record, and `otherwise` if nobody knows whether it had one."""
        rank = self.ranks.get(member) or self.deep.get(member)
        return rank if rank or self.is_complete else otherwise


class BoardBaseline:
    """Take the marks of one board, and find and read its baseline."""

    def __init__(self, state: BoardState) -> None:
        self.state = state
        self.version: tuple[bytes, ...] | None = None  # of the newest baseline, as this process knows it
        self.per_minute: int | None = None  # the rate of the newest baseline
        self.due = -math.inf  # when the next look is due, in seconds of the monotonic clock
        self.checked_at = -math.inf  # when this process last checked, by the same clock
        self._span = (0, 0)  # start and end of the day or week at whose start movement begins, in milliseconds

    @property
    def is_empty(self) -> bool:
        """Whether there is no baseline, as this process knows."""
        return self.version is None

    async def keep(self) -> float:
        """Take a mark if one is due. Return the seconds until the next look is due."""
        await self.state.open_to_write()
        for _ in range(MOST_REPLANS):
            reply = await self._look(None)
            if reply[0] == b"ok":
                _, since, wait, mark, known, span, gain, more = reply
                while more and reply[0] == b"ok":
                    reply = await self._look(more.decode())
                    more = reply[-1]
                if reply[0] == b"ok":
                    since, mark, known = reply[1], reply[3], reply[4]
                self.version = (since, mark, b"%d" % known) if mark else None
                self.per_minute = _per_minute(self.state.board, int(span), float(gain))
                self.checked_at = time.monotonic()
                self.due = self.checked_at + int(wait) / 1000
                return int(wait) / 1000
            if reply[0] == b"moved":
                board = self.state.board
                period = calendar_of(board.window, board.baseline).at(int(reply[1]) // 1000)
                self._span = (period.start * 1000, period.end * 1000)
        raise self.state.moved_too_often()

    async def _look(self, mark: str | None) -> list[Any]:
        state = self.state
        clock = state.planned()
        table = state.table(clock.current)
        begun, ends = (None, None) if state.board.baseline == "hour" else self._span
        request = BaselineRequest(
            epoch=state.epoch or "",
            ruled=state.ruled,
            view=view_of(state.board, table.suffix, clock),
            limit=RECORDS,
            most=MOST,
            begun=begun,
            ends=ends,
            mark=mark,
        )
        keys = [table.ranking, table.levels, state.keys.meta, state.keys.baseline]
        return await state.run(state.scripts.baseline, keys, request)

    async def read(self) -> Baseline | None:
        """Return the baseline in the store, without hidden members; None if the board's epoch has no baseline."""
        state = self.state
        await state.open()
        for _ in range(MOST_REPLANS):
            epoch, suffix, marks, since, at, gained = await state.call("HMGET", state.keys.baseline, *_FIELDS)
            if epoch is None or epoch.decode() != state.epoch:
                return None
            mark = _decode_marks(marks)[0]
            records, deep = await state.call("HMGET", state.keys.baseline, f"rows:{mark.id}", f"deep:{mark.id}")
            if records is not None:  # otherwise, a newer mark has replaced this one meanwhile
                break
        else:
            return None
        rows = _decode(records)
        members, scores = rows[::2], [int(float(score)) for score in rows[1::2]]
        ranks = ranks_of(scores, 1, 0, state.board.ranks)
        hidden = await state.call("HMGET", state.keys.hidden, *members) if members else []
        shown = [row[:3] for row in zip(members, ranks, scores, hidden, strict=True) if row[3] is None]
        return Baseline(
            state.fence.shown_epoch,
            int(suffix[1:]) if suffix else None,
            int(since),
            ranks={member: rank for member, rank, _ in shown},
            scores={member: score for member, _, score in shown},
            deep=DeepRanks(scores, deep or b"", state.board.ranks),
            rank_count=mark.ranked,
            is_complete=mark.known >= mark.ranked,
            per_minute=_per_minute(state.board, int(at) - int(since), float(gained) - float(mark.gained)),
        )


def _per_minute(board: Board, span: int, gain: float) -> int | None:
    """Return the average of a minute, from a time in milliseconds and what the board counted in it."""
    return round(gain * 60_000 / span) if board.operator == "incr" and span >= _LEAST_SPAN else None


class Baselines:
    """The newest baseline of each board, read once and shared by all requests."""

    def __init__(self) -> None:
        self._reads: VersionCache[Baseline | None] = VersionCache()
        self._tops: VersionCache[Baseline] = VersionCache()

    async def of(self, board: BoardBaseline) -> Baseline | None:
        """Return the newest baseline of a board; None if there is none yet."""
        # Another process may have taken a mark since this process last checked.
        if time.monotonic() >= board.checked_at + _LONGEST_WAIT:
            board.checked_at = time.monotonic()  # this is set first, so that other requests do not check too
            with suppress(StoreUnavailableError, EpochLostError):  # the last known baseline remains
                await board.keep()
        return await self._reads.of(board, board.version, board.read)

    async def with_top(self, board: BoardBaseline, reader: BoardReader) -> Baseline | None:
        """Return the newest baseline with the ranks of the members that are first now.

        A member that has come from far below is not among the first members of the baseline.
        """
        baseline = await self.of(board)
        if baseline is None or not baseline.deep:
            return baseline
        version = (baseline, int(time.monotonic() / _TOP_SERVES))
        return await self._tops.of(board, version, lambda: _with_top(baseline, reader))


async def _with_top(baseline: Baseline, reader: BoardReader) -> Baseline:
    found = {record.member: baseline.rank_of(record.member, 0) for record in (await reader.read(RECORDS)).records}
    known = {member: rank for member, rank in found.items() if rank != 0}
    return msgspec.structs.replace(baseline, ranks={**known, **baseline.ranks})


class BaselineKeeper:
    """Take the marks of all boards of a process, a few at a time.

    A board without records is checked again when an event arrives in this process.
    """

    def __init__(self) -> None:
        self._boards: set[BoardBaseline] = set()
        self._timetable: Timetable[BoardBaseline] = Timetable()

    def add(self, board: BoardBaseline) -> None:
        """Take the marks of a board from now on."""
        self._boards.add(board)
        board.state.on_added = partial(self._expect, board)
        self._timetable.set(board, time.monotonic())

    def remove(self, board: BoardBaseline) -> None:
        """Stop taking the marks of a board, if it is there."""
        self._boards.discard(board)
        self._timetable.remove(board)

    def recheck(self) -> None:
        """Check all boards now, because a clock was set."""
        for board in self._boards:
            self._timetable.bring_forward(board, time.monotonic())

    async def run(self) -> None:
        """Take marks until cancelled. If the store is unavailable, a board is tried again a few seconds later."""
        while True:
            due: list[BoardBaseline] = []
            while len(due) < _AT_ONCE and (board := self._timetable.take()) is not None:
                due.append(board)
            if due:
                await asyncio.gather(*(self._keep(board) for board in due))
            else:
                await self._timetable.wait()

    async def _keep(self, board: BoardBaseline) -> None:
        try:
            wait = await board.keep()
            if board.is_empty:
                wait = _EMPTY_WAIT
        except (StoreUnavailableError, EpochLostError) as error:
            log.debug("no mark of a ranking is taken", board=board.state.board.id, reason=str(error))
            wait = _RETRY
        except SetupError as error:  # another server has made the board with other choices
            log.error("a board can't be used", board=board.state.board.id, reason=str(error))  # noqa: TRY400
            wait = _EMPTY_WAIT
        if board in self._boards:
            self._timetable.set(board, time.monotonic() + wait)

    def _expect(self, board: BoardBaseline, moved: bool) -> None:  # noqa: FBT001 - a callback
        """Check a board at the next full minute, if it had no records, or if a period may have begun."""
        if math.isfinite(board.due) and (board.is_empty or moved):
            late = max(0, time.monotonic() - board.due)
            self._timetable.bring_forward(board, board.due + math.ceil(late / _MINUTE) * _MINUTE)
