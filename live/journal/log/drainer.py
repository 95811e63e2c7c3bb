"""The drainer: moves the entries of all journals from the store to SQL, in one process at a time.

An entry is trimmed in the store after SQL has committed it. Each commit says which
entry comes before its own entries. SQL refuses the commit if this is not the last entry of the timeline. So a drainer
that is killed at any point, or that runs at the same time as another drainer, loses no entry and stores none twice.

If a journal can't be read from the store, the drainer tries it again separately, and the other journals go on. All
journals go on while only the server with the list of journals is away.

SQL and the store can disagree in two ways. If the store has dropped entries that SQL lacks, the journal begins again
with everything that the board holds. If SQL is ahead, the store has lost data. Then the drainer moves no more entries
of the board until an operator decides. The other journals go on.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import structlog

from live.domain.board import Boards
from live.errors import EpochLostError, JournalError, SetupError, StoreUnavailableError
from live.journal.database import Database
from live.journal.forgetting import clear, uncleared_in
from live.journal.log.changes import Changes
from live.journal.log.definitions import DefinitionLog
from live.journal.log.entries import parse_head
from live.journal.log.health import HealthReport
from live.journal.log.lost_entries import UnwrittenError, write_lost
from live.journal.log.timelines import (
    ConflictError,
    Segment,
    Timeline,
    add_segments,
    begin_again,
    begin_timelines,
    end_timelines,
    following,
    open_timelines,
    segment_of,
    went_back,
)
from live.journal.upkeep.compactor import Compactor
from live.metrics import JOURNAL_BACKLOG, JOURNAL_COMMIT_SECONDS, JOURNAL_ENTRIES, JOURNAL_MISSING, QUEUE_LENGTH
from live.settings import Settings
from live.store.board.journal_stream import (
    MOST_ENTRIES,
    Entry,
    StreamState,
    begin_journal,
    claim_sink,
    forget_journal,
    journals,
    read_entries,
    read_streams,
    trim,
)
from live.store.board.keys import Keys
from live.store.board.reign import MOST_CHECKS, confirm, require_acknowledged, unchecked
from live.store.connection.client import Store, required
from live.store.registry.definitions import DefinitionStore
from live.system.tracing import record_span

log = structlog.get_logger()

_INTERVAL: Final = 0.25  # seconds from one commit to the next
_INTERVAL_OF_ACK: Final = 0.01  # seconds from one commit to the next while producers wait for commits
_SWEEP: Final = 300.0  # seconds between two checks of every journal
_RETRY: Final = 30.0  # seconds before the next attempt after a fault that an operator must repair
_PAUSE: Final = 1.0  # seconds before the next attempt after a failure, and between two checks of the definitions
_PATIENCE: Final = 0.5  # seconds for which one slow server delays the journals on the other servers
_BOARDS: Final = 256  # boards in one transaction
_REPAIRS: Final = 2  # boards whose whole contents are in memory at once
_SMALL: Final = 16 * 1024  # bytes of entries; packing fewer bytes takes less time than starting work in a thread

Name = tuple[str, str]
"""A board and an epoch."""


class Drainer:
    """Move all journals under one prefix of store keys to `database`. `writes` is true while this process does."""

    def __init__(
        self, client: Store, settings: Settings, database: Database, boards: Callable[[], Boards] = lambda: Boards(())
    ) -> None:
        """Drain into a database. `boards` gives the boards as they are defined now."""
        self.writes = False
        self._client = client
        self._compactor = Compactor(settings, database, boards)
        self._interval = _INTERVAL_OF_ACK if settings.journal_ack else _INTERVAL
        self.database = database
        self._timelines: dict[Name, Timeline] = {}
        self._definitions = DefinitionLog(client, database)
        # Journals that were announced, but had no entry and no board at the last sweep.
        self._unknown: set[Name] = set()
        self._behind: set[Name] = set()  # journals of which SQL had more than the store, at the last sweep or since
        self._is_clear = False  # whether no file of SQLite has rows that an erasure has rewritten
        self._recheck = False  # whether the next round sweeps, without waiting for `_SWEEP`
        self._changes = Changes(client)
        self._health = HealthReport(client)
        # The journals that can't be read or trimmed now, with the reasons. Only `_retry_forever` tries them again.
        self._delayed = self._health.delayed
        self._writing = asyncio.Semaphore(_REPAIRS)

    @contextmanager
    def _delaying(self, name: Name) -> Iterator[None]:
        try:
            yield
        except JournalError:
            raise  # the error concerns all journals
        except StoreUnavailableError as error:
            self._delay({name: error})

    def _delay(self, failed: Mapping[Name, StoreUnavailableError]) -> None:
        """Delay journals, and log the reason for the first journal that was not delayed before."""
        new = [(name, error) for name, error in failed.items() if name not in self._delayed]
        if new:
            ((board, epoch), error), others = new[0], len(new) - 1
            log.warning("the journal of a board waits", board=board, epoch=epoch, others=others, reason=str(error))
        self._delayed.update((name, error.public) for name, error in failed.items())

    @contextmanager
    def _going_on(self, work: str) -> Iterator[None]:
        """Go on if the `with` block, whose work is `work`, can't reach data that belongs to no single board."""
        try:
            yield
        except JournalError:
            raise
        except StoreUnavailableError as error:
            if work not in self._health.waits:
                log.warning("the journal waits", work=work, reason=str(error))
            self._health.waits[work] = str(error)
        else:
            self._health.waits.pop(work, None)

    async def run(self) -> None:
        """Drain until cancelled, whenever no other process does."""
        health = self._health
        reporting = asyncio.create_task(health.run())
        try:
            while True:
                try:
                    health.writes = False
                    if await self.take():
                        health.writes = True
                        # Publish this first: checking all boards may take longer than boards wait for SQL.
                        health.sql_away = False
                        await health.publish()
                        await self.work(self._compactor.run)
                    else:
                        health.mark_drained(time.monotonic())  # the process that drains reports the state
                except SetupError as error:
                    self.writes, health.fault = False, str(error)
                    log.error("the journal has stopped", reason=str(error))  # noqa: TRY400 - the reason says all
                    await asyncio.sleep(_RETRY)
                except (StoreUnavailableError, ConflictError) as error:
                    health.fault, health.sql_away = str(error), isinstance(error, JournalError)
                    log.warning("the journal waits", reason=str(error))
                except Exception as error:
                    self.writes, health.fault = False, f"the journal has stopped: {error!r}"
                    log.exception("the journal has stopped")
                    await asyncio.sleep(_RETRY)
                await asyncio.sleep(_PAUSE)
        finally:
            reporting.cancel()

    async def take(self) -> bool:
        """Become the process that drains. Return False while another process does. Raises the errors of `claim`."""
        self.writes = False
        if await self.database.take():
            await self.claim()
            self.writes = True
        return self.writes

    async def claim(self) -> None:
        """Move all journals of the store to this database from now on, if they go into no other database."""
        holder = await claim_sink(self._client, self.database.id)
        if holder != self.database.id:
            raise SetupError(
                f"the journals of this store go into the database {holder}, and this database is {self.database.id}. "
                "Set LIVE_JOURNAL to that database, or move to this database with `live journal --adopt`"
            )

    async def work(self, *others: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Drain, and do other work at once. If one of these tasks ends with an error, end all tasks."""
        self._delayed.clear()
        self._health.waits.clear()
        self._is_clear = False  # another process may have ended before it was done
        works = (
            self._changes.run(),
            self._drain_forever(),
            self._follow_definitions(),
            self._retry_forever(),
            *(other() for other in others),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain_forever(self) -> None:
        changes = self._changes
        swept = float("-inf")
        while True:
            started = time.monotonic()
            boards = changes.take()
            if changes.away:
                self._delay({name: changes.away[name[0]] for name in self._timelines if name[0] in changes.away})
            if boards is None or self._recheck or started >= swept + _SWEEP:
                boards, self._recheck = {board for board, _ in self._timelines}, True
                with self._going_on("list"):
                    if "" in changes.away:
                        raise changes.away[""]
                    await self.claim()  # the store may have been replaced meanwhile
                    self._recheck = False
                    await self.sweep()
                    boards, swept = set(), started
                self._recheck |= "list" in self._health.waits
            if boards:
                await self.drain(boards)
            else:
                await self.database.check_files()  # a commit checks the files, but this round has no commit
            if not self._health.waits:
                self._health.mark_drained(started)
            rest = max(0.0, self._interval - (time.monotonic() - started))
            await changes.wait(rest, time.monotonic() + _PAUSE)

    async def _follow_definitions(self) -> None:
        """Copy definitions and API keys to SQL. No notice says that they have changed."""
        while True:
            with self._going_on("definitions"):
                await self._definitions.follow()
            await asyncio.sleep(_PAUSE)

    async def _retry_forever(self) -> None:
        """Drain the delayed journals, check those of lost boards, and remove rewritten rows."""
        while True:
            await asyncio.sleep(_PAUSE)
            if not self._is_clear:
                await self.clear()
            delayed = list(self._delayed)
            await self._drain(delayed, None)
            if back := {name[0] for name in delayed if name not in self._delayed}:
                # While the server was away, nobody drained its journals or noticed that a board went back.
                self._recheck = True
                self._changes.add(back)
            names = [name for name in self._behind if name in self._timelines]
            with self._going_on("lost boards"):
                for name, stream in zip(names, await read_streams(self._client, names), strict=True):
                    if not isinstance(stream, StoreUnavailableError) and await self._is_over(name, stream):
                        self._recheck = True

    async def sweep(self) -> None:
        """Check every journal: drain it, and end it if its board is gone.

        Raises:
            ConflictError: another process drains.
        """
        known = await self.database.run(open_timelines)
        retried = {name: self._timelines[name] for name in self._delayed if name in self._timelines}
        self._timelines = {(timeline.board, timeline.epoch): timeline for timeline in known} | retried
        listed = [name for name in await journals(self._client) if name not in self._delayed]
        self._behind = set()
        if self._client.servers.promotes:
            self._definitions.forget()
            for first in range(0, len(listed), _BOARDS):
                some = listed[first : first + _BOARDS]
                await self._known_timelines(some)
                await self._confirm(some)
        await self._drain(listed)
        here = self._timelines.keys() - self._delayed.keys()
        streams = await self._streams([name for name in listed if name in here])
        for name, stream in streams.items():  # if SQL has more of a board than the store, its journal stops
            if stream.link and went_back(self._timelines[name], stream.link):
                self._stop(self._timelines[name], stream.link)
            elif stream.ended and await self._is_missing(name):
                self._stop(self._timelines[name], "")
        for name in self._health.lost.keys() - self._behind:
            del self._health.lost[name]
        # A killed drainer may have left entries that SQL has. Producers wait until the store knows that SQL has them.
        left = [self._timelines[name] for name, stream in streams.items() if stream.entries]
        await self._trim([found for found in left if found.size and (found.board, found.epoch) not in self._behind])
        await self._ask_again(streams)
        # End the timelines of deleted boards, once everything is in SQL.
        deleted = [
            name for name, stream in streams.items() if stream.ended and not stream.entries and name not in self._behind
        ]
        ended = [self._timelines[name] for name in deleted if self._timelines[name].size]
        if ended:
            await self.database.run(end_timelines, ended)
        unknown = {name for name in deleted if not self._timelines[name].size}
        for name in [*((timeline.board, timeline.epoch) for timeline in ended), *(unknown & self._unknown)]:
            with self._delaying(name):
                await forget_journal(self._client, self._client.keys_of(name[0]), name[1])
                self._timelines.pop(name, None)
        self._unknown = unknown
        self._changes.follow((board for board, _ in self._timelines), only=True)

    async def drain(self, boards: Iterable[str]) -> None:
        """Move all entries of boards, and of new journals, to SQL. Raises `ConflictError` if another process drains."""
        wanted = set(boards)
        names = [name for name in self._timelines if name[0] in wanted]
        # A name without a timeline is a new board, or the empty name, which stands for the list of all journals.
        if len({board for board, _ in names}) < len(wanted):
            with self._going_on("list"):
                listed = await journals(self._client)
                names = [name for name in listed if name[0] in wanted or name not in self._timelines]
            self._recheck |= "list" in self._health.waits
        await self._drain([name for name in names if name not in self._delayed])

    async def _drain(self, names: list[Name], patience: float | None = _PATIENCE) -> None:
        """Move all entries of journals to SQL. Delay those of a server that takes longer than `patience` seconds."""
        for first in range(0, len(names), _BOARDS):
            left = names[first : first + _BOARDS]
            while left:
                left = await self._move(left, patience)

    async def _move(self, names: list[Name], patience: float | None) -> list[Name]:
        timelines = await self._known_timelines(names)
        found = await read_entries(
            self._client,
            [(self._client.keys_of(timeline.board), timeline.epoch, timeline.drained) for timeline in timelines],
            patience,
        )
        segments: list[Segment] = []
        failed: dict[Name, StoreUnavailableError] = {}
        full: set[Name] = set()  # the journals that may have more entries
        for name, timeline, entries in zip(names, timelines, found, strict=True):
            if isinstance(entries, StoreUnavailableError):
                failed[name] = entries
                continue
            if not entries:
                continue
            self._delayed.pop(name, None)
            with self._delaying(name):
                segment = await self._segment(timeline, entries)
                if segment is not None:
                    segments.append(segment)
                    # If one call reads all entries, newer ones wait for the next round: many small commits cost more.
                    full |= {name} if len(entries) == MOST_ENTRIES else set()
        self._delay(failed)
        # A board also announces a change when a process finds it unchecked, and at a rotation. Neither adds an entry.
        await self._confirm([name for name, entries in zip(names, found, strict=True) if entries == []])
        if not segments:
            return []
        started = time.perf_counter()
        try:
            await self.database.run(add_segments, segments)
        except JournalError:
            self._timelines.clear()  # the commit may have succeeded or not, so the timelines are read again
            raise
        JOURNAL_COMMIT_SECONDS.observe(time.perf_counter() - started)
        record_span("drain", started, boards=len(segments), entries=sum(segment.entries for segment in segments))
        if any(segment.erased for segment in segments):
            await self.clear()
        for segment in segments:
            after = segment.after
            self._timelines[after.board, after.epoch] = after
            JOURNAL_ENTRIES.inc(segment.entries)
        await self._trim([segment.after for segment in segments])
        return [name for name in names if name in full and name not in self._delayed]

    async def clear(self) -> None:
        """Remove rewritten rows from the log of SQLite. If a reader prevents that, `_retry_forever` does it later."""
        self._is_clear = await self.database.in_thread(self._clear_now)

    def _clear_now(self) -> bool:
        erasures = self.database.work(uncleared_in)
        if erasures and self.database.truncate_log():
            self.database.work(clear, erasures)
            erasures = 0
        return not erasures

    async def _confirm(self, names: Iterable[Name]) -> None:
        """Check boards after a failover. A board goes on if it has everything that was acknowledged.

        A delayed journal stays delayed until its board is checked, so that no other task checks or drains it meanwhile.
        """

        async def confirm_one(name: Name) -> None:
            with self._delaying(name):
                if self._client.servers.promotes:
                    await self._confirm_one(name)
                self._delayed.pop(name, None)

        await asyncio.gather(*map(confirm_one, names))  # the calls share packets

    async def _confirm_one(self, name: Name) -> None:
        keys, epoch, offset = self._client.keys_of(name[0]), name[1], ""
        with suppress(EpochLostError):
            for _ in range(MOST_CHECKS):
                if (found := await confirm(self._client, keys, epoch, offset)) is None:
                    return
                timeline = self._timelines[name]
                if found.link and (found.behind or went_back(timeline, found.link)):
                    require_acknowledged(self._client, name[0], epoch, timeline.offset)
                    if not await self._write_lost(timeline):
                        self._stop(timeline, found.link)
                        return
                    offset = ""
                    continue
                require_acknowledged(self._client, name[0], epoch, found.offset)
                offset = str(found.offset)
            raise unchecked(name[0])

    async def _write_lost(self, timeline: Timeline) -> bool:
        """Write into the store what SQL has and the store lost. Return False if that is not possible."""
        board = self._compactor.boards().by_id.get(timeline.board)
        if board is None:
            return False
        started = time.perf_counter()
        try:
            async with self._writing:
                await write_lost(self._client, self.database, timeline, board)
        except UnwrittenError as error:
            log.error("what a failover lost can't be written", board=timeline.board, reason=str(error))  # noqa: TRY400 - the reason says all
            return False
        seconds = round(time.perf_counter() - started, 3)
        log.warning("what a failover lost was written", board=timeline.board, until=timeline.offset, seconds=seconds)
        await self._trim([timeline])
        return True

    async def _trim(self, timelines: Sequence[Timeline]) -> None:
        async def trim_one(timeline: Timeline) -> None:
            with self._delaying((timeline.board, timeline.epoch)):
                keys = self._client.keys_of(timeline.board)
                await trim(self._client, keys, timeline.epoch, timeline.drained, timeline.size)

        await asyncio.gather(*map(trim_one, timelines))  # the calls share packets

    async def _known_timelines(self, names: list[Name]) -> list[Timeline]:
        new = [name for name in names if name not in self._timelines]
        if new:
            with self._going_on("definitions"):  # without its definition, nobody can recover or export a board
                await self._definitions.follow()
            begun = await self.database.run(begin_timelines, new)
            self._timelines |= {(timeline.board, timeline.epoch): timeline for timeline in begun}
            self._changes.follow(board for board, _ in new)
        return [self._timelines[name] for name in names]

    async def _segment(self, timeline: Timeline, entries: list[Entry]) -> Segment | None:
        """Pack the entries that follow a timeline, if any. If the next entry is missing, begin a new timeline."""
        followers, found = following(timeline, entries)
        if found is not None and not followers:
            return await self._begin_again(timeline, entries, found)
        if not followers:
            return None
        if sum(len(entry.content) for entry in followers) < _SMALL:
            return segment_of(timeline, followers)
        return await asyncio.get_running_loop().run_in_executor(None, segment_of, timeline, followers)

    async def _begin_again(self, timeline: Timeline, entries: list[Entry], found: str) -> Segment | None:
        """Begin a new timeline, because entries are missing: first comes an entry with the whole content of the board.

        If the board has another epoch now, end the timeline. If the store lost entries that SQL has, stop the journal.
        """
        keys, name = self._client.keys_of(timeline.board), (timeline.board, timeline.epoch)
        if not entries[0].head.startswith("adopt "):
            (stream,) = required(await read_streams(self._client, [name]))
            if stream.ended and not await self._is_missing(name):
                await self.database.run(end_timelines, [timeline])
                await forget_journal(self._client, keys, timeline.epoch)
                self._timelines.pop(name, None)
                return None
            if stream.ended or went_back(timeline, found):
                self._stop(timeline, "" if stream.ended else found)
                return None
            entries = await self._whole(keys, timeline.epoch, entries)
            if not entries:  # the board has just been deleted
                return None
        expected, found = timeline.link, parse_head(entries[0].head).before
        log.error("entries of a journal are missing", board=timeline.board, expected=expected, found=found)
        JOURNAL_MISSING.inc()
        if timeline.size:
            timeline = await self.database.run(begin_again, timeline)
        return await self._segment(timeline, entries)

    async def _whole(self, keys: Keys, epoch: str, entries: list[Entry]) -> list[Entry]:
        """Return entries of which the first has the whole content of the board. If none waits, ask for one.

        Return none if the board has just been deleted.
        """
        while entries:  # an earlier attempt, whose commit failed, may have asked for an `adopt` entry
            if whole := [index for index, entry in enumerate(entries) if entry.head.startswith("adopt ")]:
                return entries[whole[0] :]
            (entries,) = required(await read_entries(self._client, [(keys, epoch, entries[-1].id)]))
        begun = await begin_journal(self._client, keys, epoch, again=True)
        if not begun:
            return []
        offset, _, number = begun.partition("-")
        after = f"{offset}-{int(number) - 1}"
        (entries,) = required(await read_entries(self._client, [(keys, epoch, after)]))
        return await self._whole(keys, epoch, entries)

    async def _is_missing(self, name: Name) -> bool:
        """Return whether the store should have a board in an epoch: not after a deletion or an accepted loss."""
        board, epoch = name
        defined = (await DefinitionStore(self._client).load()).boards.get(board)
        return defined is not None and defined.state == "live" and defined.epoch == epoch

    async def _is_over(self, name: Name, stream: StreamState) -> bool:
        """Return whether the loss of a board is over: the store has its entries again, or it has a new epoch."""
        if stream.ended:
            return not await self._is_missing(name)
        return bool(stream.link) and not went_back(self._timelines[name], stream.link)

    def _stop(self, timeline: Timeline, found: str) -> None:
        """Stop the journal of a board of which the store lost data. Nothing more is acknowledged on the board.

        `found` is the entry after which the store continues; empty if it does not have the board.
        """
        name = timeline.board, timeline.epoch
        self._behind.add(name)
        if name not in self._health.lost:
            there = f"continues after {found.partition(' ')[0]}" if found else "does not have it"
            reason = (
                f"the journal has board {timeline.board} (epoch {timeline.epoch}) up to entry {timeline.drained}, "
                f"and the store {there}: it lost data"
            )
            log.error("the journal of a board has stopped", reason=reason)
            self._health.lost[name] = reason
            self._client.high_water.lose_boards({timeline.board: reason})

    async def _streams(self, listed: list[Name]) -> dict[Name, StreamState]:
        streams: dict[Name, StreamState] = {}
        failed: dict[Name, StoreUnavailableError] = {}
        for first in range(0, len(listed), _BOARDS):
            names = listed[first : first + _BOARDS]
            for name, stream in zip(names, await read_streams(self._client, names), strict=True):
                if isinstance(stream, StoreUnavailableError):
                    failed[name] = stream
                else:
                    streams[name] = stream
        self._delay(failed)
        JOURNAL_BACKLOG.set(sum(stream.waiting for stream in streams.values()))
        QUEUE_LENGTH.labels("journal").set(sum(stream.entries for stream in streams.values()))
        return streams

    async def _ask_again(self, streams: dict[Name, StreamState]) -> None:
        async def ask_one(name: Name, stream: StreamState) -> None:
            timeline, keys = self._timelines[name], self._client.keys_of(name[0])
            with self._delaying(name):
                if not stream.entries and stream.link and stream.link != timeline.link:
                    log.error(
                        "SQL lacks the last entries of a journal",
                        board=timeline.board,
                        epoch=timeline.epoch,
                        has=timeline.link,
                    )
                    await begin_journal(self._client, keys, timeline.epoch, again=True)

        left = [ask_one(name, stream) for name, stream in streams.items() if name not in self._behind]
        await asyncio.gather(*left)  # the calls share packets
