"""The drainer moves every entry to SQL exactly once, wherever it is killed, even beside another drainer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

import live.journal.log.drainer
from live.boards.admin import BoardAdmin
from live.domain.event import make_entry
from live.domain.producer import Scope
from live.errors import JournalBehindError, JournalError, SetupError, StoreUnavailableError
from live.journal.log.definitions import latest
from live.journal.log.drainer import Drainer
from live.journal.log.timelines import ConflictError, add_segments, following
from live.journal.past.coverage import reaches_of, timeline_at
from live.journal.past.queries import NoPastError
from live.journal.schema import LIFE
from live.journal.upkeep.compactor import Compactor
from live.maintenance.journal import compact
from live.metrics import JOURNAL_LAG, REGISTRY
from live.store.board.journal_stream import ADOPT, MOST_ENTRIES, begin_journal, journals, read_entries, trim
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import delete_keys
from live.store.board.requests import AdoptRequest
from live.store.connection.client import required
from live.store.connection.scripts import Script
from live.store.registry.journals import is_sql_away
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.harness.tasks import stop
from tests.harness.waiting import DEADLINE, eventually

pytestmark = pytest.mark.fault


class KilledError(Exception):
    """The drainer is killed here."""


def dying(work: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """A function that kills the drainer, before or after a call of `work`."""

    async def die(*arguments: Any, **named: Any) -> Any:
        if after:
            await work(*arguments, **named)
        raise KilledError

    return die


async def drain_with_deaths(board: Journaled) -> None:
    """Drain between likes, and kill each drainer except the last at a different place."""
    gaps: list[tuple[str, Callable[..., Any], bool]] = [
        ("read_entries", read_entries, False),
        ("read_entries", read_entries, True),
        ("trim", trim, False),
        ("trim", trim, True),
    ]
    for name, work, after in gaps:
        await board.like("a", "b", "a")
        await board.like("c")
        with suppress(KilledError), replaced(live.journal.log.drainer, name, dying(work, after=after)):
            await (await board.drainer()).sweep()
    await (await board.drainer()).sweep()
    await board.must_agree()


async def test_a_drainer_may_be_killed_anywhere(valkey_url: str, tmp_path: Path, effort: int) -> None:
    """The drainer is killed before and after it reads, commits and trims."""
    async with journaled(valkey_url, tmp_path) as board:
        for _ in range(3 * effort):
            await drain_with_deaths(board)


async def test_what_is_moved_is_in_the_metrics(valkey_url: str, tmp_path: Path) -> None:
    """The metrics count moved entries and commits. A sweep without entries does not commit."""

    def figures() -> list[float]:
        names = ("live_journal_entries_total", "live_journal_commit_seconds_count")
        return [REGISTRY.get_sample_value(name) or 0 for name in names]

    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for keys in ("a", "bc", "d"):
            await board.like(*keys)
        before = figures()
        await drainer.sweep()
        waiting = await board.waiting()
        await drainer.sweep()
        moved, commits = (after - earlier for after, earlier in zip(figures(), before, strict=True))
        assert (waiting, moved, commits) == (0, 4, 1)  # the first entry records that the board begins


async def test_trimming_before_the_commit_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant loses entries that it has not stored when it is killed."""

    async def read_and_trim(client: Any, wanted: Any, *_: Any) -> Any:
        found = required(await read_entries(client, wanted))
        for (keys, epoch, _), entries in zip(wanted, found, strict=True):
            if entries:
                await trim(client, keys, epoch, entries[-1].id, 0)
        return found

    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        with must_be_caught("entries are trimmed before the commit"):
            with suppress(KilledError), replaced(live.journal.log.drainer, "read_entries", read_and_trim):
                drainer = await board.drainer()
                with replaced(live.journal.log.drainer, "add_segments", lambda *_: (_ for _ in ()).throw(KilledError)):
                    await drainer.sweep()
            await (await board.drainer()).sweep()
            await board.must_agree()


async def begin_again(board: Journaled, adopt: Script[AdoptRequest] = ADOPT) -> None:
    """Let the journal of a quiet board begin again while a drainer runs."""
    await board.like("a")
    drainer = await board.drainer()
    draining = asyncio.create_task(drainer.run())
    state = board.ledger.state

    async def follows() -> bool:
        return board.board.id in drainer._changes._begun and not drainer._changes._changed

    async def nothing_waits() -> bool:
        return await board.waiting() == 0

    try:
        await eventually(follows)
        for _ in range(2):  # the second of these rounds begins without a change
            before = drainer._health._drained

            async def has_ended(before: float = before) -> bool:
                return drainer._health._drained > before

            await eventually(has_ended)
        assert await board.waiting() == 0
        await begin_journal(board.client, state.keys, state.epoch or "", again=True, adopt=adopt)
        await eventually(nothing_waits)
    finally:
        await stop(draining)


async def test_the_new_beginning_of_a_quiet_board_moves_to_sql(valkey_url: str, tmp_path: Path) -> None:
    """No event has to come, and no sweep."""
    async with journaled(valkey_url, tmp_path) as board:
        await begin_again(board)


@pytest.mark.mutant
async def test_a_new_beginning_that_nobody_announces_is_noticed(valkey_url: str, tmp_path: Path) -> None:
    """The script announces it on another channel."""
    right = "channel, board.epoch .. ':' .. place"
    wrong = ADOPT.changed(mutated(ADOPT.source, {right: right.replace("channel", "'nobody'")}))
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("no notice"):
            await begin_again(board, compiled(valkey_url, wrong))


async def both(board: Journaled) -> None:
    """Two drainers read the same entries before either commits; then both continue."""
    first, second = await board.drainer(), await board.drainer()
    for drainer in (first, second):
        await drainer.sweep()
    for _ in range(5):
        await board.like("a", "b")
        results = await asyncio.gather(first.drain(["posts"]), second.drain(["posts"]), return_exceptions=True)
        assert all(result is None or isinstance(result, ConflictError) for result in results)
        for drainer in (first, second):
            await drainer.sweep()
    await board.must_agree()


async def test_one_of_two_drainers_stores_each_entry(valkey_url: str, tmp_path: Path) -> None:
    """SQL refuses an entry that the other drainer has already stored."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await both(board)


async def test_a_missing_comparison_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant's commit does not name the previous entry, so it is not refused."""

    def careless(connection: Any, pieces: Any) -> None:
        for piece in pieces:
            with suppress(ConflictError):
                add_segments(connection, [piece])
                continue
            row = connection.execute(select(LIFE).where(LIFE.c.id == piece.timeline.id)).mappings().one()
            add_segments(connection, [_moved(piece, row["drained"], row["link"])])

    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        with must_be_caught("no compare-and-set"), replaced(live.journal.log.drainer, "add_segments", careless):
            await both(board)


def _moved(piece: Any, drained: str, link: str) -> Any:
    from msgspec.structs import replace  # noqa: PLC0415

    return replace(piece, timeline=replace(piece.timeline, drained=drained, link=link))


async def test_a_second_database_is_refused_until_it_is_adopted(valkey_url: str, tmp_path: Path) -> None:
    """All journals of a store go into one database."""
    (tmp_path / "other").mkdir()
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        await (await board.drainer()).claim()
        with pytest.raises(SetupError, match="live journal --adopt"):
            await (await board.drainer(tmp_path / "other")).claim()


async def test_after_missing_entries_a_new_timeline_begins(valkey_url: str, tmp_path: Path) -> None:
    """An operator trims the stream. SQL has the whole board again, and refuses the times between."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a", "b")
        drainer = await board.drainer()
        await drainer.sweep()
        await _trimmed_by_a_stranger(board)
        counted = REGISTRY.get_sample_value("live_journal_missing_total") or 0
        for _ in range(3):
            await drainer.sweep()
        await board.must_agree()
        await board.like("c")
        await drainer.sweep()
        await board.must_agree()
        assert await board.begun_again() == 1
        assert REGISTRY.get_sample_value("live_journal_missing_total") == counted + 1
        epoch = board.ledger.state.epoch
        new, old = await board.databases[0].run(partial(reaches_of, board=board.board, epoch=epoch))
        assert new.began < new.entries
        assert (old.timeline.epoch, timeline_at([new, old], new.began - 1)) == (epoch, old.timeline)
        assert timeline_at([new, old], new.entries) == new.timeline
        with pytest.raises(NoPastError) as refused:
            timeline_at([new, old], new.entries - 1)
        assert refused.value.since == new.entries
        await board.databases[0].in_thread(board.databases[0].take_now)
        done = await board.databases[0].in_thread(lambda: compact(board.databases[0], [], lambda *_: None))
        assert [(one.epoch, one.entries > 0, one.fault) for one in done] == [(epoch, True, "")] * 2
        await board.must_agree()


async def test_a_missing_check_of_the_previous_entry_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, the ranking in SQL lacks the trimmed entries."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a", "b")
        drainer = await board.drainer()
        await drainer.sweep()
        await _trimmed_by_a_stranger(board)
        with (
            must_be_caught("the drainer does not check the entry before"),
            replaced(live.journal.log.drainer, "following", lambda _, entries: (list(entries), None)),
        ):
            for _ in range(3):
                await drainer.sweep()
            await board.must_agree()


async def _trimmed_by_a_stranger(board: Journaled) -> None:
    await board.like("a")
    await board.like("b")
    state = board.ledger.state
    await board.client.xtrim(state.journal, maxlen=1, approximate=False)


async def test_a_deleted_board_is_drained_and_can_be_created_again(valkey_url: str, tmp_path: Path) -> None:
    """The stream of entries outlives the board. Once it is in SQL, the drainer stops following the board."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a", "b")
        board.client.high_water.active = False
        await BoardAdmin(board.client, board.settings).delete("posts", "a test")
        again = Ledger(board.client, board.board, board.settings)
        await again.writer.add([make_entry("new", 1, None, None)])
        drainer = await board.drainer()
        await drainer.sweep()
        assert await board.rows_in_sql() == [("a", 1), ("b", 1)]
        board.ledger = again
        assert await board.rows_in_sql() == [("new", 1)]
        await drainer.sweep()
        assert await journals(board.client) == [("posts", again.state.epoch)]
        later = await board.drainer()
        await later.sweep()
        assert later._changes._followed == {"posts"}
        await delete_keys(board.client, again.state.keys, again.state.epoch or "")
        for _ in range(2):
            await later.sweep()
        assert later._changes._followed == set()


async def test_batches_beyond_the_backlog_are_refused(valkey_url: str, tmp_path: Path) -> None:
    """No event of such a batch counts. After the journal has moved to SQL, events count again."""
    async with journaled(valkey_url, tmp_path, journal_backlog=3000) as board:
        while board.counted < 200:
            try:
                await board.like("a", "b")
            except JournalBehindError:
                break
        assert 0 < board.counted < 200
        before = board.counted
        assert await board.rows() == [("a", before // 2), ("b", before // 2)]
        await (await board.drainer()).sweep()
        await board.like("a")
        await (await board.drainer()).sweep()
        await board.must_agree()


async def test_a_board_with_data_joins_the_journal(valkey_url: str, tmp_path: Path) -> None:
    """The journal also has everything that was counted before it was turned on."""
    async with journaled(valkey_url, tmp_path, journal="off") as board:
        await board.like("a", "b", "a")
        board.settings = Journaled(valkey_url, tmp_path, board.board, key_prefix=board.settings.key_prefix).settings
        board.ledger = Ledger(board.client, board.board, board.settings)
        await board.like("b")
        await (await board.drainer()).sweep()
        await board.must_agree()


def test_each_entry_names_the_previous_one() -> None:
    """A link to another entry means that entries are missing, or were stored before."""
    from live.journal.log.timelines import Timeline  # noqa: PLC0415
    from live.store.board.journal_stream import Entry  # noqa: PLC0415

    timeline = Timeline(1, "posts", "e", "4-0", "4-0 9 w 1", 10)
    good = Entry("5-0", "add 20 5-0 10 w 2 4-0 9 w 1", b"")
    other = Entry("6-0", "add 30 6-0 11 w 3 4-0 9 w 1", b"")
    assert following(timeline, [good]) == ([good], None)
    assert following(timeline, [good, other]) == ([good], "4-0 9 w 1")
    assert following(timeline, [other]) == ([other], None)


async def test_the_lag_grows_while_sql_is_unavailable(valkey_url: str, tmp_path: Path) -> None:
    """When SQL is back, the lag is small again."""

    def lag() -> float:
        return REGISTRY.get_sample_value("live_journal_lag_seconds") or 0.0

    async def is_behind() -> bool:
        return lag() > 1

    async def is_even() -> bool:
        return lag() < 1

    JOURNAL_LAG.set(0)  # an earlier test may have left a lag
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        running = asyncio.create_task(drainer.run())
        try:
            with replaced(live.journal.log.drainer, "add_segments", _refuse):
                await board.like("a")
                await eventually(is_behind)
            await eventually(is_even)
            await eventually(lambda: _is_drained(board))
        finally:
            running.cancel()


def _refuse(*_: Any) -> None:
    raise OperationalError("", {}, Exception("the disk is full"))


async def _is_drained(board: Journaled) -> bool:
    return await board.rows_in_sql() == await board.rows()


async def test_known_boards_are_drained_without_the_list_of_journals(valkey_url: str, tmp_path: Path) -> None:
    """The list is read only for a new board. If it can't be read, the known boards go on, and a sweep follows."""

    async def unavailable(*_: object) -> list[tuple[str, str]]:
        raise StoreUnavailableError("the server with the list is away")

    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        await board.like("b")
        with replaced(live.journal.log.drainer, "journals", unavailable):
            await drainer.drain({"posts"})
            assert (drainer._health.waits, drainer._recheck) == ({}, False)
            await board.must_agree()
            await board.like("c")
            await drainer.drain({"posts", "other"})
            assert drainer._health.waits == {"list": "the server with the list is away"}
            assert drainer._recheck
            await board.must_agree()
        other = Ledger(board.client, rolling_board(board="other"), board.settings)
        await other.writer.add([make_entry("x")])
        await drainer.drain({"other"})
        assert drainer._health.waits == {}
        assert {name[0] for name in drainer._timelines} == {"posts", "other"}


async def test_a_drainer_copies_definitions_while_it_runs(valkey_url: str, tmp_path: Path) -> None:
    """No notice says that definitions have changed, so the drainer compares them again and again."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        running = asyncio.create_task(drainer.run())

        async def copied() -> set[str]:
            found = await board.databases[0].run(lambda sql: latest(sql, "producers"))
            return set(found)

        for number, producer in enumerate(("one", "two"), 1):
            await ProducerStore(board.client).add(producer, Scope())

            async def has_all(count: int = number) -> bool:
                return len(await copied()) == count

            await eventually(has_all)
        assert await copied() == {"one", "two"}
        await stop(running)


async def test_a_journal_that_begins_during_a_sweep_is_not_begun_again(valkey_url: str, tmp_path: Path) -> None:
    """The first entry comes between the sweep's drain and its search for waiting entries."""
    async with journaled(valkey_url, tmp_path, is_defined=False) as board:
        drainer = await board.drainer()
        state = board.ledger.state
        right = live.journal.log.drainer.Drainer._streams

        async def late(*_: Any) -> Any:
            await board.like("a")
            name = (board.board.id, state.epoch or "")
            await drainer._known_timelines([name])
            return await right(drainer, [name])

        with replaced(live.journal.log.drainer.Drainer, "_streams", late):
            await drainer.sweep()
        assert await board.waiting() == 2, "the journal has more or less than its beginning and the like"
        await drainer.sweep()
        await board.must_agree()


async def test_a_drainer_says_that_sql_answers_before_it_reads_the_store(valkey_url: str, tmp_path: Path) -> None:
    """After a failover, boards wait only briefly for the report that SQL answers, and a first sweep may take longer.

    A process that waits for another drainer reports no fault.
    """
    async with journaled(valkey_url, tmp_path) as board:
        drainer, other = await board.drainer(), await board.drainer()
        drainer._health.sql_away = True
        other._health.fault, other.writes = "an old fault", True
        begun, held = asyncio.Event(), asyncio.Event()

        async def work(_drainer: Drainer, *_: object) -> None:
            begun.set()
            await held.wait()

        async def is_waiting() -> bool:
            return (other._health.fault, other.writes) == ("", False)

        with replaced(Drainer, "work", work):
            running = [asyncio.create_task(drainer.run())]
            await asyncio.wait_for(begun.wait(), DEADLINE)
            assert not await is_sql_away(board.client)
            assert drainer.writes
            running.append(asyncio.create_task(other.run()))
            await eventually(is_waiting)
            for task in running:
                await stop(task)


async def test_an_error_beside_the_drainer_is_visible(valkey_url: str, tmp_path: Path) -> None:
    """The compactor ends with an error that nobody expects."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()

        async def surprise(*_: object) -> None:
            raise RuntimeError("a surprise")

        async def is_reported() -> bool:
            return "a surprise" in drainer._health.fault and not drainer.writes

        with replaced(Compactor, "run", surprise):
            running = asyncio.create_task(drainer.run())
            try:
                await eventually(is_reported)
            finally:
                running.cancel()


async def test_a_sweep_trims_all_journals_at_once(valkey_url: str, tmp_path: Path) -> None:
    """The drainer trims the journals concurrently.

    To trim them one after another would take seconds for thousands of busy boards.
    """
    together, most = 0, 0

    async def kept(*_: Any) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        together -= 1

    async with journaled(valkey_url, tmp_path) as board:
        other = Ledger(board.client, rolling_board(board="other"), board.settings)
        await other.state.open()
        await board.like("a")
        await other.writer.add([make_entry("a", 1, None)])
        drainer = await board.drainer()
        with replaced(live.journal.log.drainer, "trim", kept):
            await drainer.sweep()
            most = 0
            await drainer.sweep()  # SQL has all entries, and the store has them still
        assert most == 2
        await drainer.sweep()
        assert await board.waiting() == 0


async def after_failed_commits(board: Journaled) -> None:
    """Let SQL refuse some commits after a gap. More entries wait than one call reads."""
    await board.like("a")
    drainer = await board.drainer()
    await drainer.sweep()
    await _trimmed_by_a_stranger(board)
    for _ in range(2 * MOST_ENTRIES):
        await board.like("b")

    def refuse(*_: object) -> None:
        raise JournalError("the journal's database fails")

    for _ in range(4):
        await board.like("c")
        with replaced(live.journal.log.drainer, "add_segments", refuse), suppress(JournalError):
            await drainer.drain([board.board.id])
    entries: Any = await board.client.xrange(board.ledger.state.journal)
    assert sum(fields[b"h"].startswith(b"adopt") for _, fields in entries) == 1, "the whole board was added again"
    for _ in range(2):
        await drainer.sweep()
    await board.must_agree()


async def test_failed_commits_add_the_whole_board_once(valkey_url: str, tmp_path: Path) -> None:
    """The entry with the whole board waits behind other entries, and the drainer finds it there."""
    async with journaled(valkey_url, tmp_path) as board:
        await after_failed_commits(board)


@pytest.mark.mutant
async def test_whole_boards_that_are_added_again_are_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant does not look behind the first entries, and adds the board again.

    The mutant's store fills while SQL is down.
    """
    right = read_entries

    async def first_only(client: Any, wanted: Any, *_: Any) -> Any:
        found = required(await right(client, wanted))
        return [
            [] if kept and kept[0].head.startswith("add ") and await is_behind(kept[0].id) else kept for kept in found
        ]

    async with journaled(valkey_url, tmp_path) as board:

        async def is_behind(entry: str) -> bool:
            first: Any = await board.client.xrange(board.ledger.state.journal, count=1)
            return bool(first[0][0].decode() != entry)

        with must_be_caught("entries are read again"), replaced(live.journal.log.drainer, "read_entries", first_only):
            await after_failed_commits(board)
