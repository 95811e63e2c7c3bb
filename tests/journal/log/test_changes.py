"""Which boards have changed, as the drainer learns from notices."""

import asyncio

import pytest

from live.domain.event import make_entry
from live.errors import StoreUnavailableError
from live.journal.log.changes import Changes
from live.store.board.ledger import Ledger
from tests.harness.boards import BOARD, open_ledger, rolling_board
from tests.harness.tasks import stop
from tests.harness.waiting import DEADLINE, eventually


@pytest.mark.one_server
async def test_changed_boards_are_taken_once(any_store: str) -> None:
    """At first, and after a gap in the notices, any board may have changed. With `only`, no other board is followed."""
    async with open_ledger(any_store, BOARD) as ledger:
        client, settings = ledger.state.client, ledger.state.settings
        other = Ledger(client, rolling_board(board="other"), settings)
        changes = Changes(client)
        changes.away["posts"] = StoreUnavailableError("an old reason")
        running = asyncio.create_task(changes.run())

        async def has_begun() -> bool:
            return changes._begun == {"", *changes._followed}

        async def count(one: Ledger) -> set[str] | None:
            await one.writer.add([make_entry("a")])
            await asyncio.wait_for(changes.wait(0, asyncio.get_running_loop().time() + DEADLINE), DEADLINE / 2)
            return changes.take()

        await eventually(has_begun)
        assert changes.away == {}
        assert [changes.take(), changes.take()] == [None, set()]
        changes.follow(["posts"])
        changes.follow(["other"])
        await eventually(has_begun)
        assert changes.take() == {"posts", "other"}, "boards that were just followed do not count as changed"
        assert [await count(ledger), await count(other), changes.take()] == [{"posts"}, {"other"}, set()]
        changes.add(["third"])
        changes.away["other"] = changes.away["third"] = StoreUnavailableError("away")
        changes.follow(["posts"], only=True)
        assert (changes._followed, changes._begun, set(changes.away)) == ({"posts"}, {"", "posts"}, {"third"})
        assert changes.take() == {"third"}
        await other.writer.add([make_entry("a")])
        assert await count(ledger) == {"posts"}
        until = asyncio.get_running_loop().time() + 0.02
        await changes.wait(0.01, until)
        ended = asyncio.get_running_loop().time()
        assert ended > until - 0.005, "the wait ended although nothing has changed"  # uvloop counts milliseconds
        changes.away["posts"] = StoreUnavailableError("away")
        await client.each("CLIENT", "KILL", "TYPE", "pubsub")

        async def is_back() -> bool:
            return "posts" not in changes.away

        await eventually(is_back)
        assert changes.take() is None
        await stop(running)
