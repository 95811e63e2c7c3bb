"""`live erase` leaves no digest of an actor in the store, in its files, and in what the journal shows."""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from sqlalchemy import func, select

import live.maintenance.compact
import live.maintenance.draining
import live.maintenance.erase
from live.cli.context import Context
from live.cli.personal import _erasing
from live.domain.board import Board, Boards, Journaling
from live.domain.board_file import BoardChoice, VotesChoice, make_board
from live.domain.event import Entry, Extra, Identities, IncomingEvent, make_entry
from live.domain.producer import LIKES
from live.domain.window import WindowChoice
from live.errors import SetupError
from live.journal.database import Database
from live.journal.erasures import ErasedList, Erasures, digests_in, import_list, key_of
from live.journal.log.drainer import Drainer
from live.journal.log.entries import decompress
from live.journal.log.reader import contents_of
from live.journal.log.timelines import find_timeline
from live.journal.schema import CHECKPOINT, ERASED, METADATA, SEGMENT
from live.journal.state import fold
from live.journal.upkeep.checkpoints import Due, keep, make
from live.maintenance import restore
from live.maintenance.compact import compact
from live.maintenance.draining import draining
from live.maintenance.erase import Erased, Erasing
from live.maintenance.rebuild import Rebuilding, Wanted
from live.maintenance.restore import _carry_over
from live.maintenance.status import verify
from live.store.board.ledger import Ledger
from live.store.board.manage import erasure
from live.store.board.manage.lifecycle import delete_keys
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.embedded import EmbeddedStore
from live.store.connection.loss import LossWatch
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, mutated, replaced
from tests.maintenance.test_void import like_of

EVE = "e7e1c0ffee5ca1ab1e0ddba11facade5"  # an actor id, in the form of a visitor's id
MEMBERS = ("a", "b")
CONTEST = make_board(BoardChoice(id="posts", window="forever", votes=VotesChoice()))
DAYS = make_board(BoardChoice(id="posts", window=WindowChoice(calendar="day"), votes=VotesChoice(per_key=1)))
LIKED_DAYS = make_board(
    BoardChoice(id="posts", window=WindowChoice(calendar="day"), votes=VotesChoice(per_key=1), like_button=True)
)
LIKED = make_board(BoardChoice(id="posts", window=WindowChoice(rolling="24h", slot="1h"), like_button=True))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory with a short path, because the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        yield Path(name)


@asynccontextmanager
async def machine(folder: Path, board: Board) -> AsyncIterator[Journaled]:
    """A store whose files are plain text, and a journal, in one data directory."""
    store = EmbeddedStore(folder)
    await asyncio.to_thread(store.start)
    try:
        async with journaled(store.url, folder, board) as made:
            await made.client.config_set("aof-use-rdb-preamble", "no")
            yield made
    finally:
        await asyncio.to_thread(store.stop)


async def fill(board: Journaled) -> None:
    """Add contributions of `eve` and `joe` to segments, to a checkpoint, and to the store."""
    drainer = await board.drainer()
    await drainer.claim()
    for members in ("ab", "a"):
        for actor in (EVE, "joe"):
            if board.board.votes is not None:
                await board.ledger.writer.add([vote_of(member, actor) for member in members], [("shop", len(members))])
            elif members == "ab":
                await board.ledger.writer.add([like_of(member, actor) for member in members], [(LIKES, len(members))])
        await drainer.sweep()
        if members == "ab":
            await asyncio.to_thread(board.databases[0].work, lambda sql: checkpoint(sql, board))


def vote_of(member: str, actor: str) -> Entry:
    """A vote in the form that a producer sends."""
    return make_entry(member, 1, None, None, Extra(actor))


def checkpoint(connection: Any, board: Journaled) -> None:
    """Make a checkpoint after everything in SQL."""
    prefix = board.settings.key_prefix
    timeline = find_timeline(connection, prefix, "posts", board.ledger.state.epoch or "")
    assert timeline is not None
    last = connection.execute(select(SEGMENT.c.id).order_by(SEGMENT.c.id.desc())).first()
    wanted = Due(timeline, last.id)
    keep(connection, wanted, *make(connection, prefix, wanted))


def digests_of(board: Journaled, actor: str) -> set[bytes]:
    """Return all digests that are made with the id of an actor."""
    if board.board.votes is None:
        return {like_of(member, actor)[3] or b"" for member in MEMBERS}
    secret = board.ledger.state.secret
    return {digest for member in MEMBERS for digest in voter_digests(secret, actor, member)}


def contents_in_sql(database: Database) -> list[bytes]:
    """All segments and checkpoints, decompressed."""

    def read(connection: Any) -> list[bytes]:
        rows = [row for table in (SEGMENT, CHECKPOINT) for row in connection.execute(select(table.c.crc, table.c.data))]
        return [decompress(row.crc, row.data) for row in rows]

    return database.work(read)


def compressed_in_sql(database: Database) -> set[bytes]:
    """All segments and checkpoints in their stored form."""

    def read(connection: Any) -> set[bytes]:
        return {row.data for table in (SEGMENT, CHECKPOINT) for row in connection.execute(select(table.c.data))}

    return database.work(read)


def pieces_of(data: bytes) -> list[bytes]:
    """Parts of compressed data, 40 bytes each. SQLite could divide a longer part over several pages of its file."""
    return [data[first : first + 40] for first in range(0, len(data) - 40, 40)]


async def places_of(board: Journaled, actor: str) -> set[str]:
    """Return the places in the data directory and the journal that have an actor or one of its digests."""
    wanted, found = {*digests_of(board, actor), actor.encode()}, set()
    escaped = {"".join(f"\\x{byte:02x}" for byte in digest).encode() for digest in digests_of(board, actor)}
    for path in board.folder.rglob("*"):
        if path.is_file() and any(digest in path.read_bytes() for digest in wanted | escaped):
            found.add(path.suffix or path.name)
    if any(digest in content for content in contents_in_sql(board.databases[0]) for digest in wanted):
        found.add("SQL")
    return found


async def erase(board: Journaled, actor: str, *, take_back: bool = False, dry: bool = False) -> Erased:
    """Erase an actor as `live erase` does it while no server runs."""
    for database in board.databases:
        await database.aclose()
    database = Database("sqlite", board.folder, board.settings.key_prefix, writes=not dry)
    board.databases[:] = [database]
    in_file = Boards([board.board])
    if dry:
        (one,) = await Erasing(board.client, board.settings, in_file, database).preview(actor, [], take_back=take_back)
        return one
    async with erasing(board, in_file) as work:
        (one,), left = await work.erase(actor, [], take_back=take_back)
    assert left == ""
    return one


@asynccontextmanager
async def erasing(board: Journaled, in_file: Boards) -> AsyncIterator[Erasing]:
    """Move entries to SQL meanwhile, as the command does."""
    async with draining(board.client, board.settings) as (journal, drainer):
        assert drainer.writes
        yield Erasing(board.client, board.settings, in_file, journal, drainer)


async def check(board: Journaled, *, take_back: bool) -> None:
    """Erase `eve`, and check that nothing shows her, and that nothing is left of her after a compaction.

    `joe` stays, and the journal is sound and equals the store.
    """
    rows, before = await board.rows(), await board.contents()
    assert await places_of(board, EVE) >= {".aof", "SQL"}, "the actor is not in the journal"
    done = await erase(board, EVE, take_back=take_back)
    assert done.digests > 0 or take_back
    assert min(done.entries, done.checkpoints) > 0
    assert await places_of(board, EVE) <= {"SQL", ".db", ".db-wal"}, "something else than raw entries has the actor"
    assert not digests_in(await board.contents()) & digests_of(board, EVE)
    assert digests_in(await board.contents()) & digests_of(board, "joe")
    assert not digests_in(await board.contents(stop=lambda head, _: head.time > before.time)) & digests_of(board, EVE)
    await sound(board)
    left = [(key, score // 2) for key, score in rows] if take_back else rows
    assert sorted(await board.rows()) == sorted(left)
    assert await board.rows_in_sql() == await board.rows()
    again = await erase(board, EVE, take_back=take_back)
    assert again == Erased(board="posts")

    held, old = await board.contents(), compressed_in_sql(board.databases[0])
    await asyncio.to_thread(compact, board.databases[0], [], lambda *_: None)
    assert await board.contents() == held
    assert await places_of(board, EVE) == set()
    assert "SQL" in await places_of(board, "joe")
    pages = (board.folder / board.databases[0].path.name).read_bytes()
    new = compressed_in_sql(board.databases[0])
    gone = [piece for data in old - new for piece in pieces_of(data) if not any(piece in other for other in new)]
    assert gone
    assert not [piece for piece in gone if piece in pages], "the file still has dropped data"
    await sound(board)


async def sound(board: Journaled) -> None:
    """Check that every row and the chain of entries is sound."""
    found = await asyncio.to_thread(verify, board.databases[0], board.settings.key_prefix, lambda *_: None)
    assert found.sound
    assert [verdict.faults for verdict in found.boards] == [[]]


@pytest.mark.parametrize("take_back", [False, True])
@pytest.mark.parametrize("kind", ["contest", "days", "liked"])
async def test_nothing_is_left_of_an_actor(folder: Path, kind: str, take_back: object) -> None:
    """No file, segment or checkpoint has a digest of the actor. With `take_back`, scores lose the actor's share."""
    async with machine(folder, {"contest": CONTEST, "days": DAYS, "liked": LIKED}[kind]) as board:
        await fill(board)
        assert (await erase(board, EVE, dry=True)).entries > 0
        await check(board, take_back=bool(take_back))


async def everything(board: Journaled) -> tuple[dict[str, object], dict[str, list[tuple[Any, ...]]]]:
    """Every value in the store, and every row in SQL."""
    names = [name async for name in board.client.names("*")]
    store = {name: await board.client.call(name, "DUMP", name) for name in names}
    rows = board.databases[0].work(
        lambda sql: {
            table.name: [tuple(row) for row in sql.execute(table.select())] for table in METADATA.sorted_tables
        }
    )
    return store, rows


async def test_a_dry_run_changes_nothing(folder: Path) -> None:
    """The report includes entries that wait in the store."""
    async with machine(folder, CONTEST) as board:
        await LossWatch(board.client, board.settings.key_prefix).find()  # a starting server also does this
        await fill(board)
        await board.ledger.writer.add([vote_of("b", EVE)], [("shop", 1)])
        before = await everything(board)
        found = await erase(board, EVE, take_back=True, dry=True)
        assert await everything(board) == before
        assert (found.waiting, found.votes, found.amount) == (1, 4, 4)
        assert min(found.entries, found.checkpoints, found.digests) > 0


async def test_a_dry_run_ends_no_journal(folder: Path) -> None:
    """The new definition turns the journal off, but running servers may not know that yet. So the journal stays."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        keys, epoch = board.ledger.state.keys, board.ledger.state.epoch or ""
        board.board = msgspec.structs.replace(board.board, journal=Journaling(level="off"))
        await erase(board, EVE, take_back=True, dry=True)
        assert await board.client.call(keys.meta, "HEXISTS", keys.meta, "journal")
        assert await board.client.call(keys.journal(epoch), "EXISTS", keys.journal(epoch))


@pytest.mark.mutant
async def test_a_fold_that_ignores_the_entry_is_detected(folder: Path) -> None:
    """The mutant ignores the journal's entry about the erasure, so only the store forgets the actor."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        with must_be_caught("the fold ignores the entry"), replaced(fold, "take_out", lambda *_: None):
            await check(board, take_back=False)


@pytest.mark.mutant
async def test_an_earlier_instant_that_shows_the_actor_is_detected(folder: Path) -> None:
    """The mutant folds the journal without the list of erasures."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        with must_be_caught("the past shows the actor"), replaced(Erasures, "clean", lambda *_: None):
            await check(board, take_back=False)


@pytest.mark.mutant
async def test_an_entry_that_compacting_drops_is_detected(folder: Path) -> None:
    """The mutant makes the checkpoint before the last segment, and drops that segment too."""

    def too_early(connection: Any, prefix: str, timeline: Any) -> Any:
        last = connection.scalar(select(func.max(SEGMENT.c.id)))
        return contents_of(connection, prefix, timeline, until=last - 1)

    async with machine(folder, CONTEST) as board:
        await fill(board)
        with must_be_caught("compaction drops an entry"), replaced(live.maintenance.compact, "contents_of", too_early):
            await check(board, take_back=False)


async def erased_beside_a_server(board: Journaled) -> None:
    """Erase `eve` while a server counts her votes and moves entries. Store and journal hold the same afterwards."""
    await fill(board)
    drainer, reader = await board.drainer(), Database("sqlite", board.folder, board.settings.key_prefix, writes=False)
    erased, voted = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        while not erased.is_set():
            await drainer.sweep()
            await asyncio.sleep(0.01)

    async def vote() -> None:
        while not voted.is_set():
            await board.ledger.writer.add([vote_of("c", EVE), vote_of("a", "joe")], [("shop", 2)])
            await asyncio.sleep(0.003)

    serving, voting = asyncio.create_task(serve()), asyncio.create_task(vote())
    work = Erasing(board.client, board.settings, Boards([board.board]), reader)
    asyncio.get_running_loop().call_later(0.2, voted.set)
    try:
        (one,), left = await work.erase(EVE, [], take_back=False)
        erased.set()
        await asyncio.gather(serving, voting)
    finally:
        await reader.aclose()
    assert (one.digests >= 3, left) == (True, "")
    await drainer.sweep()
    votes = await board.client.hgetall(board.ledger.state.keys.table().votes)
    held = (await board.contents()).rankings[""].votes
    assert held == {field: int(count) for field, count in votes.items()}
    secret = board.ledger.state.secret
    (voter, again), *others = (voter_digests(secret, EVE, member) for member in "cab")
    assert not {pair for _, pair in others} & held.keys(), "earlier votes of the actor are left"
    assert held.get(voter) == held.get(again), "a later vote of the actor is incomplete"
    assert await board.rows_in_sql() == await board.rows()


async def test_servers_run_while_an_actor_is_erased(folder: Path) -> None:
    """The store deletes digests and writes their entry in one step.

    The command repeats this until it finds no digest.
    """
    async with machine(folder, CONTEST) as board:
        await erased_beside_a_server(board)


async def test_a_vote_between_the_search_and_the_deletion_is_found(folder: Path) -> None:
    """The vote is for another member. A second search finds its digests and deletes them."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        found: list[Any] = []

        async def late(*given: Any) -> bool:
            if not found:
                await board.ledger.writer.add([vote_of("c", EVE)], [("shop", 1)])
            found.append(given)
            return await erasure.erase_digests(*given)

        with replaced(live.maintenance.erase, "erase_digests", late):
            await erase(board, EVE)
        assert len(found) == 2
        votes = await board.client.hgetall(board.ledger.state.keys.table().votes)
        assert digests_in(await board.contents()) == {*votes} == digests_of(board, "joe")


@pytest.mark.mutant
async def test_a_deletion_without_an_entry_is_detected(folder: Path) -> None:
    """The mutant deletes the digests, and does not tell the journal."""
    silent = mutated(erasure.ERASE.source, {"record(board, 'erase', nil, nil, request.entry)": "local _ = 0"})
    wrong = erasure.ERASE.changed(silent)
    async with machine(folder, CONTEST) as board:
        with must_be_caught("the journal has no entry of the deletion"), replaced(erasure, "ERASE", wrong):
            await erased_beside_a_server(board)


async def restored(board: Journaled, older: Path, target: Path) -> set[bytes]:
    """Restore an older journal with the list of later erasures, and return the digests of its votes."""
    await asyncio.to_thread(target.mkdir)
    shutil.copyfile(older, target / board.databases[0].path.name)
    with Database("sqlite", target, board.settings.key_prefix, writes=True) as database:
        assert database.take_now()
        _carry_over(board.folder, database)
        return digests_in(contents_of_board(database, board))


async def test_an_interrupted_restore_erases_again(folder: Path, tmp_path: Path) -> None:
    """The first attempt only set the journal aside. The second attempt finds nothing to set aside."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        backup, target = tmp_path / "backup", tmp_path / "target"
        aside, name = target / "before-restore-20261122T120000Z-1", board.databases[0].path.name
        for path in (backup, aside):
            path.mkdir(parents=True)
        await asyncio.to_thread(board.databases[0].compact)
        shutil.copyfile(board.databases[0].path, backup / name)
        await erase(board, EVE)
        await asyncio.to_thread(board.databases[0].compact)
        shutil.copyfile(board.databases[0].path, aside / name)
        await board.client.flushall()
        settings = msgspec.structs.replace(board.settings, data_dir=target)
        with Database("sqlite", target, settings.key_prefix, writes=True) as database:
            in_file = Boards([board.board])
            await restore.restore(board.client, settings, in_file, database, backup, lambda *_: None)
        votes = board.ledger.state.keys.table().votes
        assert {*await board.client.hgetall(votes)} == digests_of(board, "joe")


def test_a_list_with_another_key_replaces_none_that_an_earlier_call_set_aside(tmp_path: Path) -> None:
    """The list that an earlier call set aside may be of other boards.

    The list that this call sets aside replaces the list in the backup.
    """
    with Database("sqlite", tmp_path, "live", writes=True) as database:
        assert database.take_now()
        key = database.work(key_of)
        found = []

        def add(sql: Any, rows: ErasedList, replace: object) -> list[bytes]:
            import_list(sql, rows, replace=bool(replace))
            return list(sql.scalars(select(ERASED.c.digest).order_by(ERASED.c.digest)))

        lists = [(key, b"a", False), (key, b"b", False), (b"other", b"c", False), (b"other", b"d", True)]
        for each, name, replace in lists:
            rows = ErasedList(each, [("live", "posts", 1, name)])
            found.append(database.work(partial(add, rows=rows, replace=replace)))
        assert found == [[b"a"], [b"a", b"b"], [b"a", b"b"], [b"d"]]


async def test_a_like_in_a_period_is_found(folder: Path) -> None:
    """The like's identity contains the period. If it stayed, the visitor could not like the member again."""
    async with machine(folder, LIKED_DAYS) as board:
        drainer = await board.drainer()
        await drainer.claim()
        await board.ledger.writer.add([vote_of("a", "joe")], [("shop", 1)])
        page = await board.ledger.reader.find("a", 0)
        event = IncomingEvent(key="a", actor=EVE, source=EVE, id=f"{page and page.period}\na")
        liked = make_entry("a", 1, None, Identities(LIKES).of(event), Extra(EVE))
        await board.ledger.writer.add([liked], [(LIKES, 1)])
        await drainer.sweep()
        assert liked[3] in digests_in(await board.contents())
        await erase(board, EVE)
        assert liked[3] not in digests_in(await board.contents())
        await board.ledger.writer.add([liked], [(LIKES, 1)])
        assert await board.rows() == [("a", 3)]


async def test_an_erasure_without_a_server_ends_while_events_arrive(folder: Path) -> None:
    """A server that starts beside the command counts events at once, and moves them to SQL only after the command."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        for database in board.databases:
            await database.aclose()

        async def count_votes() -> None:
            while True:
                await board.ledger.writer.add([vote_of("a", secrets.token_hex(4))], [("shop", 1)])

        counting = asyncio.create_task(count_votes())
        try:
            with patch.object(live.maintenance.draining, "_PATIENCE", 10):
                async with _erasing(Context(board.settings, as_json=False), dry_run=False) as (_, work):
                    _, left = await work.erase(EVE, [], take_back=False)
            assert left == ""
        finally:
            counting.cancel()
            await asyncio.wait([counting])
        assert counting.cancelled()
        assert not digests_in(await board.contents()) & digests_of(board, EVE)


async def test_a_union_with_several_weights_keeps_its_points(folder: Path) -> None:
    """The journal does not say which board a like came from, so nobody knows how many points it gave."""
    async with machine(folder, msgspec.structs.replace(LIKED, like_button=False, union={"x": 5, "y": 1})) as board:
        drainer = await board.drainer()
        await drainer.claim()
        await board.ledger.writer.add([like_of("a", EVE), make_entry("a", 9)], [(LIKES, 1), ("shop", 1)])
        await drainer.sweep()
        for dry in (True, False):
            found = await erase(board, EVE, take_back=True, dry=dry)
            assert (found.amount, found.digests, ["several weights" in note for note in found.notes]) == (0, 1, [True])
        assert await board.rows() == [("a", 10)]


async def test_a_ranking_of_the_past_compares_no_digests(folder: Path) -> None:
    """Comparing a million digests takes a second for each erasure, and a reading may take only ten seconds."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        await erase(board, EVE)
        rows = await board.rows()
        with patch.object(fold, "hidden", side_effect=AssertionError):
            assert sorted(await board.rows_in_sql(people=False)) == sorted(rows)
            with pytest.raises(AssertionError):
                await board.rows_in_sql()


async def rebuilt_as(board: Journaled, name: str) -> Ledger:
    """Rebuild the board under another id, with a vote of `eve` that only the new board has."""
    await board.databases[0].take()
    other = msgspec.structs.replace(board.board, id=name)
    in_file = Boards([board.board, other])
    work = Rebuilding(board.client, board.settings, in_file, board.databases[0], lambda *_: None)
    (done,) = await work.rebuild(Wanted(board="posts", name=name))
    ledger = Ledger(board.client, other, board.settings)
    await ledger.writer.add([vote_of("c", EVE)], [("shop", 1)])
    assert ledger.state.epoch == done.epoch
    await Drainer(board.client, board.settings, board.databases[0]).sweep()
    return ledger


async def erase_from(board: Journaled, in_file: Boards, boards: list[str]) -> str:
    """Erase `eve` from some boards, or from all boards. Return what is left to do."""
    await board.databases[0].aclose()
    async with erasing(board, in_file) as work:
        _, left = await work.erase(EVE, boards, take_back=False)
    return left


async def test_a_board_that_was_rebuilt_from_another_one_keeps_who_is_erased_only_there(folder: Path) -> None:
    """Both the store and the journal of the rebuilt board still have `eve`."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        ledger = await rebuilt_as(board, "other")
        in_file = Boards([board.board, ledger.state.board])
        assert await erase_from(board, in_file, ["posts"]) == ""
        assert digests_in(await board.contents()) == digests_of(board, "joe")
        votes = await board.client.hgetall(ledger.state.keys.table().votes)
        assert {*votes} > digests_of(board, EVE) | digests_of(board, "joe")
        assert digests_in(contents_of_board(board.databases[0], board, ledger)) == {*votes}


async def test_a_deleted_board_that_was_rebuilt_from_another_one_is_searched(folder: Path) -> None:
    """Only the other board's journal has the secret that keys the digests of the deleted board."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        ledger = await rebuilt_as(board, "other")
        await delete_keys(board.client, ledger.state.keys, ledger.state.epoch or "")
        with board.client.high_water.accepting("it was deleted"):
            await LossWatch(board.client, board.settings.key_prefix).find()
        assert await erase_from(board, Boards([board.board]), []) == ""
        assert digests_in(contents_of_board(board.databases[0], board, ledger)) == digests_of(board, "joe")


async def test_a_list_that_no_journal_takes_is_said(folder: Path) -> None:
    """The only board was deleted, so its journal shows the actor until it is compacted."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        await delete_keys(board.client, board.ledger.state.keys, board.ledger.state.epoch or "")
        assert "live journal --compact" in await erase_from(board, Boards([]), [])


async def test_a_board_that_has_another_epoch_just_then_is_erased(folder: Path) -> None:
    """The actor has taken every vote back, so only the journal still has digests for the list of erasures."""
    async with machine(folder, CONTEST) as board:
        drainer = await board.drainer()
        await drainer.claim()
        for amount in (1, -1):
            entry = make_entry("a", amount, None, None, Extra(EVE))
            await board.ledger.writer.add([entry, vote_of("a", "joe")], [("shop", 2)])
            await drainer.sweep()
        voted = await board.contents(stop=lambda head, _: head.offset > 1)
        assert digests_in(voted) & digests_of(board, EVE)
        refused: list[bool] = []

        async def renewed(client: Any, keys: Any, held: Any, *given: Any) -> bool:
            before = held if refused else msgspec.structs.replace(held, epoch="before")
            refused.append(await erasure.erase_digests(client, keys, before, *given))
            return refused[-1]

        with replaced(live.maintenance.erase, "erase_digests", renewed):
            await erase(board, EVE)
        assert refused == [False, True]
        earlier = await board.contents(stop=lambda head, _: head.offset > 1)
        assert digests_in(earlier) == digests_in(voted) - digests_of(board, EVE)


def contents_of_board(database: Database, board: Journaled, ledger: Ledger | None = None) -> Any:
    """The contents that a rebuild would write."""
    state = (ledger or board.ledger).state
    prefix, epoch = board.settings.key_prefix, state.epoch or ""

    def read(connection: Any) -> Any:
        timeline = find_timeline(connection, prefix, state.board.id, epoch)
        assert timeline is not None
        return contents_of(connection, prefix, timeline)

    return database.work(read)


async def erased_again(board: Journaled, folder: Path, target: Path) -> None:
    """Erase, restore an older journal, and check that `eve` is missing and `joe` is there."""
    await fill(board)
    await asyncio.to_thread(board.databases[0].compact)
    older = folder / "older"
    shutil.copyfile(board.databases[0].path, older)
    await erase(board, EVE)
    older_votes = await restored(board, older, target)
    assert not older_votes & digests_of(board, EVE)
    assert older_votes == digests_of(board, "joe")


async def test_an_older_backup_is_erased_again(folder: Path, tmp_path: Path) -> None:
    """The list of erasures, which has digests of digests, erases the actor from a restored older backup."""
    async with machine(folder, CONTEST) as board:
        await erased_again(board, folder, tmp_path / "restored")


async def test_a_missing_list_of_erasures_is_detected(folder: Path, tmp_path: Path) -> None:
    """The mutant forgets the list, so a backup restores the actor."""
    async with machine(folder, CONTEST) as board:
        with must_be_caught("a rebuild restores the erased actor"), replaced(restore, "list_in", lambda *_: None):
            await erased_again(board, folder, tmp_path / "restored")


async def later_votes_stay(board: Journaled, target: Path) -> None:
    """Vote again after an erasure, and erase somebody else later. The new votes stay at every instant."""
    await fill(board)
    await erase(board, EVE)
    await board.ledger.writer.add([vote_of("a", EVE)], [("shop", 1)])
    await (await board.drainer()).sweep()
    voted = await board.contents()
    assert digests_in(voted) & digests_of(board, EVE)
    await erase(board, "joe")
    earlier = await board.contents(stop=lambda head, _: head.time > voted.time)
    assert digests_in(earlier) == digests_in(voted) - digests_of(board, "joe")
    await asyncio.to_thread(board.databases[0].compact)
    assert await restored(board, board.databases[0].path, target) & digests_of(board, EVE)


async def test_later_votes_of_an_erased_actor_stay(folder: Path, tmp_path: Path) -> None:
    """An actor that votes after an erasure is new, wherever the list is applied."""
    async with machine(folder, DAYS) as board:
        await later_votes_stay(board, tmp_path / "restored")


@pytest.mark.mutant
async def test_a_list_that_erases_what_came_after_is_detected(folder: Path, tmp_path: Path) -> None:
    """The mutant does not compare the times of votes and erasures."""

    def any_time(self: Erasures, fields: Any, _: int) -> set[bytes]:
        return {field for field in fields if self._when(field) >= 0}

    async with machine(folder, DAYS) as board:
        with must_be_caught("what came after an erasure"), replaced(Erasures, "among", any_time):
            await later_votes_stay(board, tmp_path / "restored")


async def test_a_deleted_board_is_on_the_list_too(folder: Path, tmp_path: Path) -> None:
    """An older backup has the deleted board. Another board's journal lists what to erase from that backup."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        await asyncio.to_thread(board.databases[0].compact)
        older = folder / "older"
        shutil.copyfile(board.databases[0].path, older)
        state, other = board.ledger.state, msgspec.structs.replace(LIKED, id="other")
        await Ledger(board.client, other, board.settings).state.open_to_write()
        await delete_keys(board.client, state.keys, state.epoch or "")
        async with erasing(board, Boards([other])) as work:
            found, left = await work.erase(EVE, [], take_back=False)
        assert ([(one.board, one.digests, one.entries > 0) for one in found], left) == (
            [("other", 0, False), ("posts", 0, True)], "",
        )  # fmt: skip
        assert not await restored(board, older, tmp_path / "restored") & digests_of(board, EVE)


async def test_an_unknown_or_frozen_board_and_a_drainer_that_is_behind_are_refused(folder: Path) -> None:
    """The command refuses before it erases any digest."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        work = Erasing(board.client, board.settings, Boards([board.board]), board.databases[0])
        with pytest.raises(SetupError, match="no board `nobody`"):
            await work.erase(EVE, ["nobody"], take_back=False)
        await board.ledger.writer.add([vote_of("a", "joe")], [("shop", 1)])
        with (
            patch.object(live.maintenance.draining, "_PATIENCE", 0.2),
            pytest.raises(SetupError, match="wait in the store"),
        ):
            await work.erase(EVE, [], take_back=False)
        await (await board.drainer()).sweep()
        await board.client.hset(board.ledger.state.keys.meta, "frozen", 1)
        with pytest.raises(SetupError, match="'posts' can't give votes back: it is frozen"):
            await erase(board, EVE, take_back=True)
        assert digests_in(await board.contents()) & digests_of(board, EVE)
