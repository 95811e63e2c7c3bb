"""The baseline of a board: its ranking at the start of the hour. Pages compute movement from it.

The store keeps one baseline for each board, so every viewer sees the same movement.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import structlog

from live.domain.ranking import ranks_of
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.read.requests import BaselineRequest, view_of
from live.store.board.read.single_flight import VersionCache
from live.store.board.rotation import Timetable
from live.store.board.state import MOST_REPLANS, BoardState

log = structlog.get_logger()

RECORDS: Final = 1000  # records in a baseline

_RETRY: Final = 5.0
_AT_ONCE: Final = 8  # baselines in one packet, which blocks the store for some milliseconds
_MINUTE: Final = 60.0
_LONGEST_WAIT: Final = 60.0  # seconds after which a process that shows a baseline asks for a newer one
_FIELDS: Final = ("epoch", "suffix", "time", "records", "ranked", "gained", "prior", "prior_gained")
_LEAST_SPAN: Final = 300_000  # milliseconds; a rate is not measured over a shorter time
_EMPTY_WAIT: Final = 3600.0  # seconds between two checks of a board that has neither records nor events

_decode: Final = msgspec.msgpack.Decoder(list[str]).decode


class Baseline(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The ranks and scores of members at one instant.

    Attributes:
        epoch: the epoch of the board.
        slot: the start of the period that was ranked; None if the board has no ranking for each period.
        time: when the ranking was kept, in milliseconds since 1970.
        ranks: the rank of each of the first members.
        scores: the score of each of these members.
        rank_count: how many members were ranked.
        per_minute: the sum of the amounts that the board counted per minute, on average since the baseline before,
            which is usually an hour older; None if it is not known.
    """

    epoch: str
    slot: int | None
    time: int
    ranks: Mapping[str, int]
    scores: Mapping[str, int]
    rank_count: int
    per_minute: int | None = None


class BoardBaseline:
    """Keep the baseline of one board in the store, and read it."""

    def __init__(self, state: BoardState) -> None:
        self.state = state
        self.time: int | None = None  # when the newest baseline was kept, as this process knows it; in milliseconds
        self.is_empty = True  # whether the newest baseline has no records
        self.per_minute: int | None = None  # the rate of the newest baseline
        self.due = -math.inf  # when the next baseline is due, in seconds of the monotonic clock
        self.checked_at = -math.inf  # when this process last checked, by the same clock

    async def keep(self) -> float:
        """Keep a new baseline if one is due. Return the seconds until the next one is due.

        Raises:
            StoreUnavailableError: the store is unavailable, or its memory is full.
        """
        state = self.state
        await state.open_to_write()
        for _ in range(MOST_REPLANS):
            clock = state.planned()
            table = state.table(clock.current)
            reply = await state.run(
                state.scripts.baseline,
                [table.ranking, table.levels, state.keys.meta, state.keys.baseline],
                BaselineRequest(
                    epoch=state.epoch or "", clock=clock, suffix=table.suffix, view=view_of(state.board), limit=RECORDS
                ),
            )
            if reply[0] == b"ok":
                self.time, self.is_empty = int(reply[1]), not reply[3]
                self.per_minute = self._per_minute(self.time, *reply[4:])
                self.checked_at = time.monotonic()
                wait = int(reply[2]) / 1000
                self.due = self.checked_at + wait
                return wait
            state.update_clock(*reply[1:])
        raise state.moved_too_often()

    async def read(self) -> Baseline | None:
        """Return the baseline in the store, without hidden members; None if the board's epoch has no baseline."""
        state = self.state
        await state.open()
        fields = await state.call("HMGET", state.keys.baseline, *_FIELDS)
        if fields[0] is None or fields[0].decode() != state.epoch:
            return None
        _, suffix, kept_at, records, ranked, *spans = fields
        rows = _decode(records)
        members, scores = rows[::2], [int(float(score)) for score in rows[1::2]]
        ranks = ranks_of(scores, 1, 0, state.board.ranks)
        hidden = await state.call("HMGET", state.keys.hidden, *members) if members else []
        shown = [row[:3] for row in zip(members, ranks, scores, hidden, strict=True) if row[3] is None]
        return Baseline(
            state.fence.shown_epoch,
            int(suffix[1:]) if suffix else None,
            int(kept_at),
            ranks={member: rank for member, rank, _ in shown},
            scores={member: score for member, _, score in shown},
            rank_count=int(ranked),
            per_minute=self._per_minute(int(kept_at), *spans),
        )

    def _per_minute(
        self, kept_at: int, gained: bytes | None, prior: bytes | None, prior_gained: bytes | None
    ) -> int | None:
        if self.state.board.operator != "incr" or gained is None or prior is None or prior_gained is None:
            return None
        if kept_at - int(prior) < _LEAST_SPAN:
            return None
        return round((float(gained) - float(prior_gained)) * 60_000 / (kept_at - int(prior)))


class Baselines:
    """The newest baseline of each board, read once and shared by all requests."""

    def __init__(self) -> None:
        self._reads: VersionCache[Baseline | None] = VersionCache()

    async def of(self, board: BoardBaseline) -> Baseline | None:
        """Return the newest baseline of a board; None if there is none yet."""
        # Another process may have kept a baseline since this process last checked.
        if time.monotonic() >= board.checked_at + _LONGEST_WAIT:
            board.checked_at = time.monotonic()  # this is set first, so that other requests do not check too
            with suppress(StoreUnavailableError, EpochLostError):  # the last known baseline remains
                await board.keep()
        return await self._reads.of(board, board.time, board.read)


class BaselineKeeper:
    """Keep the baselines of all boards of a process, a few at a time.

    A board without records is checked again when an event arrives in this process.
    """

    def __init__(self) -> None:
        self._boards: set[BoardBaseline] = set()
        self._timetable: Timetable[BoardBaseline] = Timetable()

    def add(self, board: BoardBaseline) -> None:
        """Keep the baselines of a board from now on."""
        self._boards.add(board)
        board.state.on_added = partial(self._expect, board)
        self._timetable.set(board, time.monotonic())

    def remove(self, board: BoardBaseline) -> None:
        """Stop keeping the baselines of a board, if it is there."""
        self._boards.discard(board)
        self._timetable.remove(board)

    def recheck(self) -> None:
        """Check all boards now, because a clock was set."""
        for board in self._boards:
            self._timetable.bring_forward(board, time.monotonic())

    async def run(self) -> None:
        """Keep baselines until cancelled. If the store is unavailable, a board is tried again a few seconds later."""
        while True:
            due: list[BoardBaseline] = []
            while len(due) < _AT_ONCE and (board := self._timetable.take()) is not None:
                due.append(board)
            if due:
                await asyncio.gather(*(self._keep(board) for board in due))
            else:
                await self._timetable.wait()

    async def _keep(self, board: BoardBaseline) -> None:
        """Keep the baseline of a board, and note when the next one is due."""
        try:
            wait = await board.keep()
            if board.is_empty:
                wait = _EMPTY_WAIT
        except (StoreUnavailableError, EpochLostError) as error:
            log.debug("no baseline is kept", board=board.state.board.id, reason=str(error))
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
