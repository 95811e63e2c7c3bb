"""`live erase` leaves no digest of an actor in the store, in its files, in SQL, and in later backups."""

import asyncio
import secrets
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from sqlalchemy import func, select

import live.journal.log.drainer
import live.journal.log.reader
import live.maintenance.draining
import live.maintenance.erase
import live.maintenance.journal
from live.boards.admin import BoardAdmin
from live.cli.context import Context
from live.cli.personal import _erasing
from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from live.domain.event import Entry, Extra, Identities, IncomingEvent, make_entry
from live.domain.producer import LIKES
from live.domain.window import WindowChoice
from live.errors import SetupError
from live.journal import forgetting
from live.journal.database import Database
from live.journal.log import timelines
from live.journal.log.drainer import Drainer
from live.journal.log.entries import REPLACED, Erase, decompress
from live.journal.log.reader import EntryReader, Follower, contents_of
from live.journal.log.timelines import find_timeline
from live.journal.schema import CHECKPOINT, METADATA, SEGMENT
from live.journal.state.snapshot import Snapshot
from live.journal.state.taken import NOTHING
from live.journal.upkeep.checkpoints import Due, keep, make
from live.maintenance.check import Checker
from live.maintenance.draining import draining, is_settled
from live.maintenance.erase import Erased, Erasing
from live.maintenance.journal import compact, verify
from live.maintenance.recover import Recovery, Wanted
from live.store.board.ledger import Ledger
from live.store.board.manage import erasure
from live.store.board.manage.lifecycle import renew
from live.store.board.state import BoardState
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.embedded import EmbeddedStore
from live.store.connection.loss import LossWatch
from tests.harness.boards import changed
from tests.harness.journaled import Journaled, backed_up, journaled
from tests.harness.mutation import must_be_caught, mutated, replaced
from tests.harness.server import define
from tests.harness.waiting import eventually
from tests.journal.log.test_follower import link_of
from tests.maintenance.test_void import like_of

EVE = "e7e1c0ffee5ca1ab1e0ddba11facade5"  # an actor id, in the form of a visitor's id
MEMBERS = ("a", "b")
CONTEST = make_board(Choices(id="posts", window_choice="forever", votes=Votes()))
DAYS = make_board(Choices(id="posts", window_choice=WindowChoice(calendar="day"), votes=Votes(per_key=1)))
LIKED_DAYS = make_board(
    Choices(id="posts", window_choice=WindowChoice(calendar="day"), votes=Votes(per_key=1), like_button=True)
)
LIKED = make_board(Choices(id="posts", window_choice=WindowChoice(rolling="24h", slot="1h"), like_button=True))


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
    timeline = find_timeline(connection, "posts", board.ledger.state.epoch or "")
    assert timeline is not None
    last = connection.execute(select(SEGMENT.c.id).order_by(SEGMENT.c.id.desc())).first()
    wanted = Due(timeline, last.id)
    keep(connection, wanted, *make(connection, wanted))


def digests_of(board: Journaled, actor: str) -> set[bytes]:
    """Return all digests that are made with the id of an actor."""
    if board.board.votes is None:
        return {like_of(member, actor)[3] or b"" for member in MEMBERS}
    secret = board.ledger.state.secret
    return {digest for member in MEMBERS for digest in voter_digests(secret, actor, member)}


def contents_in_sql(database: Database) -> list[bytes]:
    """All values in all tables, decompressed."""

    def read(connection: Any) -> list[bytes]:
        found = []
        for table in METADATA.sorted_tables:
            for row in connection.execute(select(table)).mappings():
                values = {**row, "data": decompress(row["crc"], row["data"])} if "crc" in row else row
                found += [value if isinstance(value, bytes) else str(value).encode() for value in values.values()]
        return found

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
    wanted = {actor.encode()}
    for digest in digests_of(board, actor):
        wanted |= {digest, digest.hex().encode(), "".join(f"\\x{byte:02x}" for byte in digest).encode()}
    found = set()
    for path in board.folder.rglob("*"):
        if path.is_file() and any(digest in path.read_bytes() for digest in wanted):
            found.add(path.suffix or path.name)
    if any(digest in content for content in contents_in_sql(board.databases[0]) for digest in wanted):
        found.add("SQL")
    return found


def named(data: Snapshot) -> set[bytes]:
    """Return the digests in contents, without replacements."""
    return {digest for digest in data.digests if not digest.startswith(REPLACED)}


async def erase(board: Journaled, actor: str, *, take_back: bool = False, dry: bool = False) -> Erased:
    """Erase an actor as `live erase` does it while no server runs."""
    for database in board.databases:
        await database.aclose()
    database = Database("sqlite", board.folder, board.settings.key_prefix, writes=not dry)
    board.databases[:] = [database]
    if dry:
        work = Erasing(board.client, board.settings, database)
        (one,), _ = await work.erase(actor, [], take_back=take_back, dry=True)
        return one
    async with erasing(board) as work:
        (one,), left = await work.erase(actor, [], take_back=take_back)
    assert left == ""
    return one


@asynccontextmanager
async def erasing(board: Journaled) -> AsyncIterator[Erasing]:
    """Move entries to SQL meanwhile, as the command does."""
    async with draining(board.client, board.settings) as (journal, drainer):
        assert drainer.writes
        yield Erasing(board.client, board.settings, journal, drainer)


async def check(board: Journaled, *, take_back: bool) -> None:
    """Erase `eve`, and check that nothing of her is left anywhere, nor in a later backup.

    `joe` stays, and the journal is sound and equals the store.
    """
    rows, before, old = await board.rows(), await board.contents(), compressed_in_sql(board.databases[0])
    assert await places_of(board, EVE) >= {".aof", "SQL"}, "the actor is not in the journal"
    done = await erase(board, EVE, take_back=take_back)
    assert done.digests > 0 or take_back
    assert min(done.entries, done.checkpoints) > 0
    assert await places_of(board, EVE) == set(), "something of the actor is left"
    assert "SQL" in await places_of(board, "joe")
    assert (await board.contents()).digests & digests_of(board, "joe")
    assert (await board.contents()).digests == named(await board.contents()), "the store has no replacements"
    earlier = await board.contents(stop=lambda head, _: head.time > before.time)
    assert named(earlier) == digests_of(board, "joe") & before.digests
    assert (earlier.slots, len(earlier.digests)) == (before.slots, len(before.digests))
    await sound(board)
    left = [(key, score // 2) for key, score in rows] if take_back else rows
    assert sorted(await board.rows()) == sorted(left)
    assert await board.rows_in_sql() == await board.rows()
    again = await erase(board, EVE, take_back=take_back)
    assert again == Erased(board="posts")
    await has_no_trace_of(board, old)

    held, old = await board.contents(), compressed_in_sql(board.databases[0])
    await asyncio.to_thread(compact, board.databases[0], [], lambda *_: None)
    assert await board.contents() == msgspec.structs.replace(held, taken=NOTHING), "no entry is left to take back"
    assert "SQL" in await places_of(board, "joe")
    await has_no_trace_of(board, old)
    await sound(board)
    await backed_up(board, board.folder / "backup")
    board.databases.append(Database("sqlite", board.folder / "backup", board.settings.key_prefix, writes=False))
    board.databases.reverse()
    assert await places_of(board, EVE) == set(), "a later backup has the actor"
    assert "SQL" in await places_of(board, "joe")


async def has_no_trace_of(board: Journaled, old: set[bytes]) -> None:
    """Check that the files of SQLite have nothing of rows that were dropped or replaced."""
    await asyncio.to_thread(board.databases[0].truncate_log)
    assert gone_from(board, old), "the file still has dropped data"


async def sound(board: Journaled) -> None:
    """Check that every row and the chain of entries is sound."""
    found = await asyncio.to_thread(verify, board.databases[0], lambda *_: None)
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
        await LossWatch(board.client).find()  # a starting server also does this
        await fill(board)
        await board.ledger.writer.add([vote_of("b", EVE)], [("shop", 1)])
        before = await everything(board)
        found = await erase(board, EVE, take_back=True, dry=True)
        assert await everything(board) == before
        assert (found.waiting, found.votes, found.events) == (1, 4, 4)
        assert min(found.entries, found.checkpoints, found.digests) > 0


async def test_a_dry_run_ends_no_journal(folder: Path) -> None:
    """The new definition turns the journal off, but running servers may not know that yet. So the journal stays."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        keys, epoch = board.ledger.state.keys, board.ledger.state.epoch or ""
        board.board = msgspec.structs.replace(board.board, journal="off")
        await erase(board, EVE, take_back=True, dry=True)
        assert await board.client.call(keys.meta, "HEXISTS", keys.meta, "journal")
        assert await board.client.call(keys.journal(epoch), "EXISTS", keys.journal(epoch))


@pytest.mark.mutant
async def test_a_fold_that_ignores_the_entry_is_detected(folder: Path) -> None:
    """The mutant ignores the journal's entry about the erasure, so only the store forgets the actor."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        with must_be_caught("the fold ignores the entry"), replaced(Snapshot, "forget_digests", lambda *_: None):
            await check(board, take_back=False)


@pytest.mark.mutant
@pytest.mark.parametrize("kept", ["segments", "checkpoints", "the entry"])
async def test_a_row_that_is_not_rewritten_is_detected(folder: Path, kept: str) -> None:
    """The mutants leave the digests in some of the rows."""
    exchange, forgotten = forgetting.exchange, forgetting.forgotten

    def careless(data: bytes, digests: Any, begin: bytes = forgetting._TEXT) -> bytes:
        return data if (begin == forgetting._TEXT) == (kept == "segments") else exchange(data, digests, begin)

    wrong = (
        replaced(timelines, "forgotten", lambda entries: (entries, forgotten(entries)[1]))
        if kept == "the entry"
        else replaced(forgetting, "exchange", careless)
    )
    async with machine(folder, CONTEST) as board:
        await fill(board)
        with must_be_caught("rows keep the digests"), wrong:
            await check(board, take_back=False)


async def withdrawn(board: Journaled) -> None:
    """Vote, withdraw the vote, and erase the actor. At no time is anything left of the vote."""
    drainer = await board.drainer()
    await drainer.claim()
    await board.ledger.writer.add([vote_of("a", "joe")], [("shop", 1)])
    for amount in (1, -1):
        await board.ledger.writer.add([make_entry("a", amount, None, None, Extra(EVE))], [("shop", 1)])
        await drainer.sweep()
    before = await board.contents()
    await erase(board, EVE)
    earlier = await board.contents(stop=lambda head, _: head.time > before.time)
    assert earlier.digests == before.digests == digests_of(board, "joe") & before.digests
    assert await board.rows() == await board.rows_in_sql() == [("a", 1)]


async def test_a_vote_and_its_withdrawal_stay_together(folder: Path) -> None:
    """They are in different segments. A replacement is the same everywhere, so that limits of votes can be counted."""
    async with machine(folder, CONTEST) as board:
        await withdrawn(board)


@pytest.mark.mutant
async def test_replacements_that_differ_are_detected(folder: Path) -> None:
    """The mutant chooses another replacement in each row."""

    def differing(data: bytes, digests: Any, begin: bytes = forgetting._TEXT) -> bytes:
        return exchange(data, {digest: REPLACED + secrets.token_bytes(12) for digest in digests}, begin)

    exchange = forgetting.exchange
    async with machine(folder, CONTEST) as board:
        with must_be_caught("a withdrawal misses its vote"), replaced(forgetting, "exchange", differing):
            await withdrawn(board)


@pytest.mark.mutant
async def test_an_entry_that_compacting_drops_is_detected(folder: Path) -> None:
    """The mutant makes the checkpoint before the last segment, and drops that segment too."""

    def too_early(connection: Any, timeline: Any) -> Any:
        last = connection.scalar(select(func.max(SEGMENT.c.id)))
        return contents_of(connection, timeline, until=last - 1)

    async with machine(folder, CONTEST) as board:
        await fill(board)
        with must_be_caught("compaction drops an entry"), replaced(live.maintenance.journal, "contents_of", too_early):
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
    work = Erasing(board.client, board.settings, reader)
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
        assert (await board.contents()).digests == {*votes} == digests_of(board, "joe")


@pytest.mark.mutant
async def test_a_deletion_without_an_entry_is_detected(folder: Path) -> None:
    """The mutant deletes the digests, and does not tell the journal."""
    silent = mutated(erasure.ERASE.source, {"record(board, 'erase', nil, nil, request.entry)": "local _ = 0"})
    wrong = erasure.ERASE.changed(silent)
    async with machine(folder, CONTEST) as board:
        with must_be_caught("the journal has no entry of the deletion"), replaced(erasure, "ERASE", wrong):
            await erased_beside_a_server(board)


async def test_a_like_in_a_period_is_found(folder: Path) -> None:
    """The like's identity contains the period. If it stayed, the visitor could not like the member again."""
    async with machine(folder, LIKED_DAYS) as board:
        drainer = await board.drainer()
        await drainer.claim()
        await board.ledger.writer.add([vote_of("a", "joe")], [("shop", 1)])
        page = await board.ledger.reader.find("a", 0)
        event = IncomingEvent(member="a", actor=EVE, source=EVE, id=f"{page and page.period}\na")
        liked = make_entry("a", 1, None, Identities(LIKES).of(event), Extra(EVE))
        await board.ledger.writer.add([liked], [(LIKES, 1)])
        await drainer.sweep()
        assert liked[3] in (await board.contents()).digests
        await erase(board, EVE)
        assert liked[3] not in (await board.contents()).digests
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
        assert not (await board.contents()).digests & digests_of(board, EVE)


async def test_a_union_with_several_weights_gives_likes_back(folder: Path) -> None:
    """The journal says how many points each like gave."""
    async with machine(folder, changed(LIKED, source=frozenset(), like_button=False, union={"x": 5, "y": 1})) as board:
        drainer = await board.drainer()
        await drainer.claim()
        like = like_of("a", EVE)
        await board.ledger.writer.add(
            [make_entry("a", 5, None, like[3]), make_entry("a", 9)], [(LIKES, 1), ("shop", 1)]
        )
        await drainer.sweep()
        for dry in (True, False):
            found = await erase(board, EVE, take_back=True, dry=dry)
            assert (found.events, found.digests, found.notes) == (1, 1, [])
        assert await board.rows() == [("a", 9)]


async def recovered_as(board: Journaled, name: str) -> Ledger:
    """Recover the board under another id, with a vote of `eve` that only the new board has."""
    await board.databases[0].take()
    other = msgspec.structs.replace(board.board, id=name)
    work = Recovery(board.client, board.settings, board.databases[0], lambda *_: None)
    (done,) = await work.recover(Wanted(board="posts", name=name))
    ledger = Ledger(board.client, other, board.settings)
    await ledger.writer.add([vote_of("c", EVE)], [("shop", 1)])
    assert ledger.state.epoch == done.epoch
    await Drainer(board.client, board.settings, board.databases[0]).sweep()
    return ledger


async def erase_from(board: Journaled, boards: list[str]) -> str:
    """Erase `eve` from some boards, or from all boards. Return what is left to do."""
    await board.databases[0].aclose()
    async with erasing(board) as work:
        _, left = await work.erase(EVE, boards, take_back=False)
    return left


async def test_a_board_that_was_recovered_from_another_one_is_erased_with_it(folder: Path) -> None:
    """The new board continues the journal of the other one, so it has the same rows."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        ledger = await recovered_as(board, "other")
        assert await erase_from(board, ["posts"]) == ""
        assert (await board.contents()).digests == digests_of(board, "joe")
        votes = await board.client.hgetall(ledger.state.keys.table().votes)
        assert {*votes} == digests_of(board, "joe")
        assert contents_of_board(board.databases[0], board, ledger).digests == {*votes}
        assert await places_of(board, EVE) == set()


async def test_the_end_of_an_epoch_that_moves_with_the_entry_is_rewritten(folder: Path) -> None:
    """The entry of the erasure is in the next epoch, and one transaction moves both."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        keys = board.ledger.state.keys
        await board.ledger.writer.add([vote_of("b", EVE)], [("shop", 1)])
        await renew(board.client, keys, "feedface")
        held = await erasure.read_held(board.client, keys)
        assert held is not None
        assert held.epoch == "feedface"
        gone = digests_of(board, EVE)
        entry = msgspec.msgpack.encode(Erase(key=b"key", digests=list(gone)))
        assert await erasure.erase_digests(board.client, keys, held, gone, entry)
        with patch.object(live.journal.log.drainer, "add_segments", side_effect=timelines.add_segments) as adding:
            await Drainer(board.client, board.settings, board.databases[0]).sweep()
        assert [len(call.args[1]) for call in adding.call_args_list] == [2]
        assert "SQL" not in await places_of(board, EVE), "SQL keeps the digests"


def gone_from(board: Journaled, old: set[bytes]) -> bool:
    """Whether no file of SQLite has a piece of old rows."""
    new = compressed_in_sql(board.databases[0])
    gone = [piece for data in old - new for piece in pieces_of(data) if not any(piece in other for other in new)]
    assert gone
    pages = b"".join(path.read_bytes() for path in board.folder.glob(f"{board.databases[0].path.name}*"))
    return not [piece for piece in gone if piece in pages]


async def read_meanwhile(board: Journaled) -> None:
    """Erase `eve` while another process reads the file. Once it has ended, the old rows go by themselves."""
    await fill(board)
    database, old = board.databases[0], compressed_in_sql(board.databases[0])
    await database.aclose()
    async with erasing(board) as work:
        with closing(sqlite3.connect(database.path)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM segment").fetchone() > (0,)
            with patch.object(live.maintenance.erase, "_PATIENCE", 0.5):
                _, left = await work.erase(EVE, [], take_back=False)
            assert "its files still have the old rows" in left, "the command says that nothing is left"
            assert not gone_from(board, old)
        await eventually(lambda: asyncio.sleep(0, gone_from(board, old)))
        assert (await work.erase(EVE, [], take_back=False))[1] == ""


async def test_old_rows_go_when_the_last_reader_has_ended(folder: Path) -> None:
    """SQLite can't empty its log while a reader needs an earlier version of a row."""
    async with machine(folder, CONTEST) as board:
        await read_meanwhile(board)


@pytest.mark.mutant
async def test_a_log_that_stays_full_is_detected(folder: Path) -> None:
    """The mutant ignores that a reader kept the log from being emptied."""

    def careless(self: Database) -> bool:
        truncate(self)
        return True

    truncate = Database.truncate_log
    async with machine(folder, CONTEST) as board:
        with must_be_caught("the command says that nothing is left"), replaced(Database, "truncate_log", careless):
            await read_meanwhile(board)


async def drift_of(board: Journaled, ledger: Ledger) -> list[Any]:
    """Compare what a board holds with its journal, as `live check` does."""
    state = BoardState(board.client, ledger.state.board, board.settings, born=ledger.state.epoch or "")
    await state.open()
    with Database("sqlite", board.folder, board.settings.key_prefix, writes=False) as database:
        follower = Follower(board.client, database, state.board.id, state.epoch or "")
        await follower.begin(lambda *_: None)
        return (await Checker(state, follower, lambda *_: None).check()).drift


async def completed(board: Journaled, name: str, killed_at: str) -> None:
    """Kill an erasure from two boards with the same rows, before it erases from one of them. Then run it again."""
    await fill(board)
    ledger = await recovered_as(board, name)
    await board.databases[0].aclose()

    async def killed(self: Erasing, actor: str, one: Erased, *, dry: bool = False) -> None:
        if one.board == killed_at:
            await is_settled(board.client)
            raise ConnectionResetError
        await whole(self, actor, one, dry=dry)

    whole = Erasing._erase
    async with erasing(board) as work:
        with replaced(Erasing, "_erase", killed), pytest.raises(ConnectionResetError):
            await work.erase(EVE, [], take_back=False)
    assert await board.client.hlen(board.client.system.erasures) == 1
    assert await erase_from(board, []) == ""
    for one in (board.ledger, ledger):
        assert await drift_of(board, one) == [], "the store differs from the journal"
        assert {*await board.client.hgetall(one.state.keys.table().votes)} == digests_of(board, "joe")
        assert contents_of_board(board.databases[0], board, one).digests == digests_of(board, "joe")
    assert await places_of(board, EVE) == set()
    assert not await board.client.exists(board.client.system.erasures)


@pytest.mark.parametrize("name", ["other", "qother"])
async def test_a_killed_erasure_from_boards_with_the_same_rows_is_completed(folder: Path, name: str) -> None:
    """The command erases from the boards in the order of their names."""
    async with machine(folder, CONTEST) as board:
        await completed(board, name, max("posts", name))


@pytest.mark.mutant
async def test_a_new_key_after_a_kill_is_detected(folder: Path) -> None:
    """The mutant makes other replacements when it runs again."""

    async def none(*_: object) -> bytes:
        return b""

    async with machine(folder, CONTEST) as board:
        with must_be_caught("the store differs"), replaced(Erasing, "_find_key", none):
            await completed(board, "qother", "qother")


async def test_a_vote_that_a_killed_erasure_has_divided_is_found(folder: Path) -> None:
    """The vote came while digests were deleted, so only the digest of actor and member is left."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        await board.databases[0].aclose()

        async def late(*given: Any) -> bool:
            await board.ledger.writer.add([vote_of("c", EVE)], [("shop", 1)])
            await erasure.erase_digests(*given)
            await is_settled(board.client)
            raise ConnectionResetError

        async with erasing(board) as work:
            with replaced(live.maintenance.erase, "erase_digests", late), pytest.raises(ConnectionResetError):
                await work.erase(EVE, [], take_back=False)
        left = {*await board.client.hgetall(board.ledger.state.keys.table().votes)}
        assert left == digests_of(board, "joe") | {voter_digests(board.ledger.state.secret, EVE, "c")[1]}
        assert await erase_from(board, []) == ""
        votes = await board.client.hgetall(board.ledger.state.keys.table().votes)
        assert (await board.contents()).digests == {*votes} == digests_of(board, "joe")


async def test_a_deleted_board_that_was_recovered_from_another_one_is_searched(folder: Path) -> None:
    """Only the other board's journal has the secret that keys the digests of the deleted board."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        ledger = await recovered_as(board, "other")
        await BoardAdmin(board.client, board.settings).delete("other", "ann")
        with board.client.high_water.accepting("it was deleted"):
            await LossWatch(board.client).find()
        assert await erase_from(board, []) == ""
        assert named(contents_of_board(board.databases[0], board, ledger)) == digests_of(board, "joe")


async def test_a_deleted_board_is_erased_without_another_journal(folder: Path) -> None:
    """The command rewrites SQL itself. Beside a server, it can't, and says so."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        await BoardAdmin(board.client, board.settings).delete("posts", "ann")
        work = Erasing(board.client, board.settings, board.databases[0])
        _, left = await work.erase(EVE, [], take_back=False)
        assert "stop the servers" in left
        assert "SQL" in await places_of(board, EVE)
        assert await erase_from(board, []) == ""
        assert await places_of(board, EVE) == set()


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
        assert voted.digests & digests_of(board, EVE)
        refused: list[bool] = []

        async def renewed(client: Any, keys: Any, held: Any, *given: Any) -> bool:
            before = held if refused else msgspec.structs.replace(held, epoch="before")
            refused.append(await erasure.erase_digests(client, keys, before, *given))
            return refused[-1]

        with replaced(live.maintenance.erase, "erase_digests", renewed):
            await erase(board, EVE)
        assert refused == [False, True]
        earlier = await board.contents(stop=lambda head, _: head.offset > 1)
        assert named(earlier) == voted.digests - digests_of(board, EVE)


def contents_of_board(database: Database, board: Journaled, ledger: Ledger | None = None) -> Any:
    """The contents that a recovery would write."""
    state = (ledger or board.ledger).state
    epoch = state.epoch or ""

    def read(connection: Any) -> Any:
        timeline = find_timeline(connection, state.board.id, epoch)
        assert timeline is not None
        return contents_of(connection, timeline)

    return database.work(read)


async def later_votes_stay(board: Journaled) -> None:
    """Vote again after an erasure, and erase somebody else later. The new votes stay at every instant."""
    await fill(board)
    await erase(board, EVE)
    await board.ledger.writer.add([vote_of("a", EVE)], [("shop", 1)])
    await (await board.drainer()).sweep()
    voted = await board.contents()
    assert voted.digests & digests_of(board, EVE)
    await erase(board, "joe")
    earlier = await board.contents(stop=lambda head, _: head.time > voted.time)
    assert named(earlier) == voted.digests - digests_of(board, "joe")


async def test_later_votes_of_an_erased_actor_stay(folder: Path) -> None:
    """An actor that votes after an erasure is new."""
    async with machine(folder, DAYS) as board:
        await later_votes_stay(board)


async def test_a_deleted_board_is_erased_too(folder: Path) -> None:
    """Another board's journal says what to erase in SQL."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        await define(board.settings, [msgspec.structs.replace(LIKED, id="other")])
        await BoardAdmin(board.client, board.settings).delete("posts", "ann")
        async with erasing(board) as work:
            found, left = await work.erase(EVE, [], take_back=False)
        assert ([(one.board, one.digests, one.entries > 0) for one in found], left) == (
            [("other", 0, False), ("posts", 0, True)], "",
        )  # fmt: skip
        assert await places_of(board, EVE) == set()


async def followed(board: Journaled) -> None:
    """Follow the journal from before an erasure until after it. The entry is in the store, in SQL, or moves meanwhile.

    Whatever the follower has read before, it then has what the store has.
    """
    await fill(board)
    drainer, database, epoch = await board.drainer(), board.databases[0], board.ledger.state.epoch or ""
    followers = [Follower(board.client, database, "posts", epoch) for _ in range(3)]
    for follower in followers:
        await follower.begin(lambda *_: None)
    keys = board.ledger.state.keys
    held = await erasure.read_held(board.client, keys)
    assert held is not None
    gone = digests_of(board, EVE)
    entry = msgspec.msgpack.encode(Erase(key=b"key", digests=list(gone)))
    await board.ledger.writer.add([vote_of("b", EVE)], [("shop", 1)])
    assert await erasure.erase_digests(board.client, keys, held, gone, entry)
    await board.ledger.writer.add([vote_of("a", EVE)], [("shop", 1)])
    last = await link_of(board)
    votes = {digest: int(count) for digest, count in (await board.client.hgetall(keys.table().votes)).items()}
    before, meanwhile, after = followers
    assert (await before.advance(last)).ranking("").votes == votes
    await meanwhile._read()
    await drainer.sweep()
    for follower in (meanwhile, after):
        assert (await follower.advance(last)).ranking("").votes == votes
    assert (await board.contents()).ranking("").votes == votes


async def test_contents_that_are_followed_lose_the_digests(folder: Path) -> None:
    """Checks and swaps follow the journal. A swap must not give the store digests back."""
    async with machine(folder, CONTEST) as board:
        await followed(board)


@pytest.mark.mutant
async def test_a_follower_that_does_not_read_again_is_detected(folder: Path) -> None:
    """The mutant keeps what it has read before."""

    async def careless(self: Follower, link: str, *_: Any) -> Snapshot:
        return msgspec.structs.replace(self.contents, link=link)

    async with machine(folder, CONTEST) as board:
        with must_be_caught("the follower keeps digests"), replaced(Follower, "_at", careless):
            await followed(board)


async def test_what_was_read_while_rows_changed_is_read_again(folder: Path) -> None:
    """Rows that were read before an erasure have other digests than those that are read after it."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        counts = iter([0, 1, 1, 1])
        with (
            patch.object(live.journal.log.reader, "erasures_in", side_effect=lambda _: next(counts)),
            patch.object(live.journal.log.reader.EntryReader, "begin", side_effect=EntryReader.begin) as begun,
        ):
            await board.contents()
        assert begun.call_count == 2


async def test_an_unknown_board_and_a_drainer_that_is_behind_are_refused(folder: Path) -> None:
    """The command refuses before it erases any digest."""
    async with machine(folder, CONTEST) as board:
        await fill(board)
        work = Erasing(board.client, board.settings, board.databases[0])
        with pytest.raises(SetupError, match="no board `nobody`"):
            await work.erase(EVE, ["nobody"], take_back=False)
        await board.ledger.writer.add([vote_of("a", "joe")], [("shop", 1)])
        with (
            patch.object(live.maintenance.draining, "_PATIENCE", 0.2),
            pytest.raises(SetupError, match="wait in the store"),
        ):
            await work.erase(EVE, [], take_back=False)
