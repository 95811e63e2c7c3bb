"""Read the journal of a board step by step, from a time on.

This runs in the process that `live.boards.players` starts.
"""

import time
from collections import deque
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.domain.ranking import Page
from live.journal.log.entries import Head, read_entries_of
from live.journal.log.reader import EntryReader, before, checkpoint_before, oldest_checkpoint
from live.journal.log.timelines import Timeline, timelines_of
from live.journal.past.coverage import reaches_of, since_of, timeline_at
from live.journal.past.queries import NoPastError
from live.journal.schema import SEGMENT
from live.journal.state.snapshot import pack, unpack
from live.journal.state.top import RunningTop

_SLICE: Final = 0.05  # seconds that one call may take, so that other replays get their turn
_MOST_PAGES: Final = 16  # maximum pages in one call
_SEGMENTS: Final = 4  # segments in one read
_CHECKPOINT: Final = "checkpoint"  # the kind of a made-up entry that replaces the deleted entries of a timeline


class Player:
    """One replay of a board, which has reached the time `now` (milliseconds since 1970 by the clock of the store)."""

    def __init__(self, connection: Connection, prefix: str, board: Board, at: int, top: RunningTop) -> None:
        """Begin at a time, or at the first later time that the journal covers.

        Raises:
            NoPastError: the journal does not cover the board.
            SetupError: the journal is damaged.
        """
        self._prefix = prefix
        self._board = board
        self._top = top
        self._entries: deque[tuple[Head, bytes]] = deque()
        self.now, timeline = _beginning(connection, prefix, board, at)
        data, self._segment = checkpoint_before(connection, timeline, before(self.now))
        self._reading = EntryReader(prefix, timeline, data, people=False)
        self._has_begun = False

    def play(self, connection: Connection, until: int, stride: int) -> list[tuple[int, Page]]:
        """Return the first records at every `stride` milliseconds up to a time. Leave out steps without a change.

        Each call takes a bounded time, and moves `now` to the last step that it has finished.

        Raises:
            SetupError: the journal is damaged.
        """
        deadline = time.monotonic() + _SLICE
        found: list[tuple[int, Page]] = []
        while len(found) < _MOST_PAGES and self.now + stride * self._has_begun <= until:
            tick = self.now + stride * self._has_begun
            while (self._entries or self._load(connection)) and self._entries[0][0].time < tick * 1000:
                head, body = self._entries.popleft()
                if head.kind == _CHECKPOINT:
                    self._reading = EntryReader(self._prefix, self._reading.timeline, unpack(body), people=False)
                else:
                    self._reading.apply(connection, head, body)
                if self._reading.is_known:
                    data = self._reading.contents
                    data.seen.clear()  # the identities of events take much space, and no record depends on them
                    self._top.follow(head, body, data)
                if time.monotonic() > deadline:
                    return found
            self.now, self._has_begun = tick, True
            if self._reading.is_known and self._top.is_due(self._reading.contents, tick):
                found.append((tick, self._top.page(self._reading.contents, self._reading.timeline.epoch, tick)))
            if time.monotonic() > deadline:
                break
        return found

    def _load(self, connection: Connection) -> bool:
        """Read the next entries, if necessary from the next timeline. Return False if there are no entries yet."""
        timeline = self._reading.timeline
        where = (SEGMENT.c.life == timeline.id, SEGMENT.c.id > self._segment)
        columns = (SEGMENT.c.id, SEGMENT.c.crc, SEGMENT.c.data)
        rows = connection.execute(select(*columns).where(*where).order_by(SEGMENT.c.id).limit(_SEGMENTS)).all()
        for row in rows:
            self._segment = row.id
            self._entries.extend(read_entries_of(row))
        if rows:
            return True
        later = [
            each
            for each in timelines_of(connection, self._prefix, self._board.id)
            if each.id > timeline.id and each.size
        ]
        if not later:
            return False
        timeline, held = later[0], oldest_checkpoint(connection, later[0])
        self._reading.timeline, self._segment = timeline, 0
        if held is None:
            return self._load(connection)
        data, self._segment = held  # the entries before the checkpoint were deleted
        self._entries.append((Head(_CHECKPOINT, 0, "", data.time, data.link, ""), pack(data)))
        return True


def _beginning(connection: Connection, prefix: str, board: Board, at: int) -> tuple[int, Timeline]:
    """Return when to begin, and in which timeline: at `at`, or at the first later time that the journal covers."""
    reaches = reaches_of(connection, prefix, msgspec.structs.replace(board, clock="server"), None)
    at = max(at, since_of(reaches) or at)
    while True:
        try:
            timeline = timeline_at(reaches, at)
        except NoPastError as error:
            if error.since is None or error.since <= at:
                raise
            at = error.since
            continue
        if timeline is None:
            raise NoPastError
        return at, timeline
