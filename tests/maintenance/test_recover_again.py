"""`live recover --from journal` when the store is lost again, or right after boards were deleted or made again."""

import time
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import insert

from live.boards.admin import BoardAdmin, Ruling
from live.boards.definitions import read_board, settled
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.errors import SetupError
from live.journal.log.definitions import DefinitionLog
from live.journal.log.drainer import Drainer
from live.journal.log.timelines import open_timelines
from live.journal.schema import DEFINITION
from live.maintenance import recover
from live.maintenance.recover import Recovery, Wanted
from live.store.board.keys import Keys, SystemKeys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import create
from live.store.connection.loss import LossWatch
from live.store.registry.definitions import Definition, DefinitionStore
from tests.harness.journaled import Journaled, Rows, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import define as define_boards
from tests.journal.test_empty_boards import State, defined
from tests.maintenance.test_rules import NOON, board_of, rule
from tests.maintenance.test_set_back import moment

FILE: Final = """
[[board]]
id = "posts"
types = ["like"]
[[board]]
id = "other"
types = ["other"]
[[board]]
id = "all"
union = ["posts", "other"]
"""


async def lose(board: Journaled) -> None:
    """Delete everything in the store."""
    async for name in board.client.names(f"{board.settings.key_prefix}:*"):
        await board.client.delete(name)


def recovery_of(board: Journaled) -> Recovery:
    """Return a recovery of all boards."""
    return Recovery(board.client, board.settings, board.databases[0], lambda *_: None)


async def rows(board: Journaled) -> Rows:
    """The ranking in the store, as a process that has just started reads it."""
    board.ledger = Ledger(board.client, board.board, board.settings)
    return await board.rows()


async def lose_twice(board: Journaled) -> None:
    """Lose the store, recover it, and lose it again before a server has run."""
    drainer = await board.drainer()
    await board.like("a", "b")
    await drainer.sweep()
    before = await board.rows()
    for _ in range(2):
        await lose(board)
        await recovery_of(board).recover(Wanted())
        assert await rows(board) == before


async def test_a_store_that_is_lost_again_is_recovered_again(valkey_url: str, tmp_path: Path) -> None:
    """SQL has the new timeline before the old timeline ends."""
    async with journaled(valkey_url, tmp_path) as board:
        await lose_twice(board)
        assert await recovery_of(board).recover(Wanted()) == [], "a second recovery finds something to do"


async def test_a_recovered_board_keeps_the_time_when_it_was_made(valkey_url: str, tmp_path: Path) -> None:
    """Without this time, nobody could tell whether a union was made later, and lacks what the board counted before."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer, keys = await board.drainer(), board.ledger.state.keys
        await board.like("a")
        await drainer.sweep()

        async def began() -> int:
            return int(await board.client.call(keys.meta, "HGET", keys.meta, "began") or 0)

        before, drained = await began(), time.time_ns() // 1_000_000
        await lose(board)
        await recovery_of(board).recover(Wanted())
        assert before <= await began() <= drained


async def test_a_recovery_of_an_older_board_leaves_the_rest(valkey_url: str, tmp_path: Path) -> None:
    """Unions go on with the recovered board, and an API key that was revoked a moment ago stays revoked."""
    boards = parse_boards(FILE)
    posts, *_ = boards
    async with journaled(valkey_url, tmp_path, posts, is_defined=False) as board:
        await define_boards(board.settings, boards)
        drainer, client, prefix = await board.drainer(), board.client, board.settings.key_prefix
        names = SystemKeys(prefix)
        await client.hset(names.producers, mapping={":version": 1, "kept": "{}", "revoked": "{}"})
        await client.hset(names.items, mapping={"a": "{}", "b": "{}"})
        await client.set(names.items_version, 2)
        await board.like("a")
        of_board = [name async for name in client.names(board.ledger.state.keys.pattern)]
        copy = {name: await client.dump(name) or b"" for name in of_board}
        await board.like("b")
        await drainer.sweep()
        await drainer._definitions.follow()
        before = await board.rows()
        await client.hdel(names.producers, "revoked")
        await client.hset(names.producers, ":version", 2)
        await client.hdel(names.items, "b")
        await client.incr(names.items_version)
        for name, dump in copy.items():
            await client.restore(name, 0, dump, replace=True)
        (done,) = await recovery_of(board).recover(Wanted())
        assert await rows(board) == before
        assert sorted(await client.hkeys(names.producers)) == [b":version", b"kept"], "a revoked API key is back"
        assert await client.hkeys(names.items) == [b"a"], "a removed title is back"
        union = (await DefinitionStore(client).load()).boards["all"]
        assert union.parts["posts"] == done.epoch, "the union lost its part"


async def lose_after_other_rules(board: Journaled, sql_lacks: str) -> None:
    """Lose the store during a change of rules or just after it, when SQL lacks something of the change."""
    old, new = board.board, board_of({"ties": "last"})
    drainer, log = await board.drainer(), DefinitionLog(board.client, board.databases[0])
    await board.ledger.writer.add([make_entry(member, 1, NOON + number) for number, member in enumerate("ab")])
    await drainer.sweep()
    await log.follow()

    async def swap(ruling: Ruling) -> None:
        if sql_lacks == "the end":
            await log.follow()
        await rule(board, ruling.new)
        if sql_lacks != "the swap":
            await drainer.sweep()
            await lose(board)

    await BoardAdmin(board.client, board.settings).rule("posts", {"ties": "last"}, "me", None, swap)
    if sql_lacks == "the swap":
        await log.follow()
        await lose(board)
    recovery = recovery_of(board)
    assert len(await recovery.recover(Wanted(dry=True))) == 1
    await recovery.recover(Wanted())
    held = (await DefinitionStore(board.client).load()).boards["posts"]
    board.board = old if sql_lacks == "the swap" else new
    assert (read_board("posts", held.choices).ties, held.next, held.swap) == (board.board.ties, None, "")
    assert [read_board("posts", one).ties for one in held.earlier] == [new.ties if board.board is old else old.ties]
    assert [member for member, _ in await rows(board)] == (["a", "b"] if board.board is old else ["b", "a"])
    await drainer.sweep()
    assert await board.rows_in_sql() == await board.rows()


LACKS: Final = ("the swap", "the end", "the definition")


@pytest.mark.parametrize("sql_lacks", LACKS)
async def test_a_board_is_recovered_by_the_rules_of_its_entries(
    valkey_url: str, tmp_path: Path, sql_lacks: str
) -> None:
    """Its definition in SQL has the rules after them, the rules before them, or both."""
    async with journaled(valkey_url, tmp_path, board_of({"ties": "first"})) as board:
        await lose_after_other_rules(board, sql_lacks)


@pytest.mark.mutant
@pytest.mark.parametrize("sql_lacks", LACKS)
async def test_a_recovery_by_the_newest_definition_is_detected(valkey_url: str, tmp_path: Path, sql_lacks: str) -> None:
    """The mutant does not compare the rules of the definition with those of the entries."""

    def newest(_name: str, definition: Definition, *_: object) -> Definition:
        return settled(definition, definition.choices)

    async with journaled(valkey_url, tmp_path, board_of({"ties": "first"})) as board:
        with must_be_caught("a board has other rules than its entries"), replaced(recover, "by_rules", newest):
            await lose_after_other_rules(board, sql_lacks)


async def test_a_time_before_other_rules_is_not_recovered(valkey_url: str, tmp_path: Path) -> None:
    """The error says what to do. The board can be recovered as it was at the end."""
    async with journaled(valkey_url, tmp_path, board_of({"ties": "first", "clock": "server"})) as board:
        drainer = await board.drainer()
        await board.like("a", "b")
        at = await moment()
        admin, log = BoardAdmin(board.client, board.settings), DefinitionLog(board.client, board.databases[0])
        await admin.rule("posts", {"ties": "last"}, "me", None, lambda ruling: rule(board, ruling.new))
        await drainer.sweep()
        await log.follow()
        await lose(board)
        with pytest.raises(SetupError, match="'posts' had other rules then: recover it without --at"):
            await recovery_of(board).recover(Wanted(at=at))
        await recovery_of(board).recover(Wanted())
        board.board = board_of({"ties": "last", "clock": "server"})
        assert await rows(board) == [("b", 1), ("a", 1)]


async def test_a_key_that_was_revoked_stays_revoked_in_a_store_that_went_back(valkey_url: str, tmp_path: Path) -> None:
    """The older copy of the store still has the API key, and the journal knows that it was revoked."""
    async with journaled(valkey_url, tmp_path) as board:
        names, client = SystemKeys(board.settings.key_prefix), board.client
        drainer = await board.drainer()
        old: dict[Any, Any] = {":version": 1, "kept": "{}", "revoked": "{}"}
        await client.hset(names.producers, mapping=old)
        await board.like("a")
        await drainer.sweep()
        await drainer._definitions.follow()
        await client.hdel(names.producers, "revoked")
        await client.hset(names.producers, ":version", 2)
        await drainer._definitions.follow()
        await lose(board)
        await client.hset(names.producers, mapping=old)
        await recovery_of(board).recover(Wanted())
        assert sorted(await client.hkeys(names.producers)) == [b":version", b"kept"], "a revoked API key is back"


async def test_a_loss_that_the_journal_cannot_mend_stays(valkey_url: str, tmp_path: Path) -> None:
    """The command does not accept the loss."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        board.client.high_water.active = True
        await LossWatch(board.client).find()  # this remembers the store
        await lose(board)
        facts = board.client.high_water.facts
        with pytest.raises(SetupError, match="nothing to recover, and the store lost data"):
            await recovery_of(board).recover(Wanted())
        assert board.client.high_water.facts == facts


MADE = read_board("made", {"types": ["like"], "window": "forever"})


def row(board: Journaled, epoch: str, *, deleted: bool = False, state: State = "live") -> dict[str, Any]:
    """A row of SQL that defines the board `made`, or says that the definition was deleted."""
    found = defined(board.settings.key_prefix, "made", epoch, state)
    return {**found, "value": None} if deleted else found


async def make(board: Journaled, drainer: Drainer, epoch: str) -> None:
    """Create the board in an epoch. SQL gets its timeline, and no sweep ends an earlier timeline."""
    keys = Keys(board.settings.key_prefix, "made")
    await create(board.client, keys, MADE, epoch, journal=True)
    drainer._timelines.clear()  # a notice of a new board also does this
    await drainer.drain(["made", board.board.id])
    await board.client.delete(keys.meta)


async def define(board: Journaled, *rows: dict[str, Any]) -> None:
    """Add definitions to SQL."""
    await board.databases[0].run(lambda connection: connection.execute(insert(DEFINITION), list(rows)))


async def epochs(board: Journaled) -> list[str]:
    """The epochs of the board `made` that have not ended in SQL."""
    timelines = await board.databases[0].run(open_timelines)
    return [timeline.epoch for timeline in timelines if timeline.board == "made"]


async def delete_and_lose(board: Journaled) -> None:
    """Delete a board, lose the store before the next sweep, and recover the other boards."""
    drainer = await board.drainer()
    await board.like("a")
    await make(board, drainer, "first")
    await define(board, row(board, "first"))
    await define(board, row(board, "first", deleted=True))
    await lose(board)
    try:
        done = await recovery_of(board).recover(Wanted())
    except SetupError as error:
        raise AssertionError(str(error)) from None
    assert [one.board for one in done] == [board.board.id]
    assert await epochs(board) == []


async def test_a_deleted_board_does_not_stop_a_recovery(valkey_url: str, tmp_path: Path) -> None:
    """The deleted board's timeline is open until the next sweep."""
    async with journaled(valkey_url, tmp_path) as board:
        await delete_and_lose(board)


async def test_both_timelines_of_a_board_made_again_end(valkey_url: str, tmp_path: Path) -> None:
    """Only the newer timeline is recovered. If the older one stayed open, the next start would report it as lost."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for epoch in ("first", "second"):
            await make(board, drainer, epoch)
            await define(board, row(board, epoch))
        assert await epochs(board) == ["first", "second"]
        await lose(board)
        done = {one.board: one for one in await recovery_of(board).recover(Wanted())}
        assert await epochs(board) == [done["made"].epoch]


@pytest.mark.parametrize("has_timeline", [True, False])
async def test_a_creation_that_sql_has_half_is_finished(valkey_url: str, tmp_path: Path, *, has_timeline: bool) -> None:
    """The store is lost within a second of the creation: SQL has the definition, but not that the board is live."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        if has_timeline:
            await make(board, drainer, "first")
        await define(board, row(board, "first", state="making"))
        await lose(board)
        (done,) = await recovery_of(board).recover(Wanted(board="made"))
        found = (await DefinitionStore(board.client).load()).boards["made"]
        assert (found.state, found.epoch) == ("live", done.epoch)


async def test_a_deletion_that_sql_has_half_is_not_undone(valkey_url: str, tmp_path: Path) -> None:
    """The store is lost while the board is being deleted."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        await board.like("a")
        await define(board, row(board, "first", state="leaving"))
        await lose(board)
        done = await recovery_of(board).recover(Wanted())
        assert "made" not in [one.board for one in done]
