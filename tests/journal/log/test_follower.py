"""A follower moves through the entries of a board, in SQL and in the store, and says which lacks an entry."""

from pathlib import Path

import pytest

from live.errors import SetupError
from live.journal.log.drainer import Drainer
from live.journal.log.entries import FIRST
from live.journal.log.reader import Follower, StoreBehindError
from live.maintenance.recover import Wanted
from live.store.board.ledger import Ledger
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import replaced
from tests.maintenance.test_recover_again import lose, recovery_of


async def link_of(board: Journaled) -> str:
    """The link of the last entry that the store made."""
    value = await board.client.hget(board.ledger.state.keys.meta, "journal")
    assert isinstance(value, bytes)
    return value.decode().rpartition(" ")[0]


async def test_a_follower_reads_what_is_in_sql_and_in_the_store(valkey_url: str, tmp_path: Path) -> None:
    """The follower may begin before SQL has an entry.

    It reads an entry once, even if the entry moves to SQL meanwhile.
    """
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a", "a")
        links = [await link_of(board)]
        early, idle = (
            Follower(board.client, board.databases[0], "posts", board.ledger.state.epoch or "") for _ in range(2)
        )
        for follower in (early, idle):
            await follower.begin(lambda *_: None)
            assert follower.contents.link == FIRST
        await early.advance(links[0])
        await drainer.sweep()
        for keys in ("b", "ca"):
            await board.like(*keys)
            links.append(await link_of(board))
        late = Follower(board.client, board.databases[0], "posts", board.ledger.state.epoch or "")
        told: list[tuple[int, int]] = []
        await late.begin(lambda *numbers: told.append(numbers))
        assert late.contents.link == links[0]
        for follower in (early, late):
            for link in links[1:]:
                assert (await follower.advance(link)).link == link
                await drainer.sweep()
        await idle.advance(links[-1])  # this follower reads all entries from SQL
        assert early.contents == late.contents == idle.contents == await board.contents()
        assert told


async def test_a_follower_begins_with_what_the_previous_timeline_holds(valkey_url: str, tmp_path: Path) -> None:
    """A recovery ended before SQL had the first entry of the new timeline. This entry names the previous timeline."""

    async def nothing(*_: object) -> None:
        pass

    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        await lose(board)
        with replaced(Drainer, "drain", nothing):
            await recovery_of(board).recover(Wanted())
        board.ledger = Ledger(board.client, board.board, board.settings)
        await board.like("b")
        epoch = board.ledger.state.epoch or ""
        follower = Follower(board.client, board.databases[0], "posts", epoch)
        await follower.begin(lambda *_: None)
        assert follower.contents.link == FIRST
        contents = await follower.advance(await link_of(board))
        assert {member for slot in contents.slots.values() for member in slot} == {"a", "b"}


async def test_what_the_store_lost_or_the_journal_lacks_is_named(valkey_url: str, tmp_path: Path) -> None:
    """An entry at the same position with another checksum was made by a store that had lost the right entry."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        follower = Follower(board.client, board.databases[0], "posts", board.ledger.state.epoch or "")
        await follower.begin(lambda *_: None)
        position, _, rest = follower.contents.link.partition(" ")
        offset, _, number = position.partition("-")
        assert await follower.advance(follower.contents.link)
        for link in (f"{position} {rest[::-1]}", f"{offset}-{int(number) - 1} {rest}"):
            with pytest.raises(StoreBehindError, match=f"up to entry {position}, and the store continues after"):
                await follower.advance(link)
        with pytest.raises(SetupError, match=f"lacks the entry {offset}-{int(number) + 1}, which") as missing:
            await follower.advance(f"{offset}-{int(number) + 1} {rest}")
        assert not isinstance(missing.value, StoreBehindError)


async def test_an_entry_that_names_another_one_at_the_same_position_shows_a_loss(
    valkey_url: str, tmp_path: Path
) -> None:
    """The store lost an entry that SQL has, and counted another event in its place."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        meta, right = board.ledger.state.keys.meta, await link_of(board)
        held = await board.client.hget(meta, "journal")
        assert isinstance(held, bytes)
        position, _, rest = right.partition(" ")
        await board.client.hset(meta, "journal", held.replace(right.encode(), f"{position} {rest[::-1]}".encode()))
        await board.like("b")
        follower = Follower(board.client, board.databases[0], "posts", board.ledger.state.epoch or "")
        await follower.begin(lambda *_: None)
        with pytest.raises(StoreBehindError, match=f"up to entry {position}, and the store continues after {position}"):
            await follower.advance(await link_of(board))
