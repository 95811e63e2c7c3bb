"""Deleting a board deletes all store keys of the board and no other store keys, for any id, even after a crash."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from live.boards.admin import BoardAdmin
from live.boards.definitions import read_board
from live.domain.board import Board
from live.domain.choices import BOARD_ID
from live.domain.event import Extra, make_entry
from live.domain.producer import Scope
from live.errors import StoreUnavailableError
from live.settings import LONGEST
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage import lifecycle
from live.store.board.manage.lifecycle import create, delete_keys, expire
from live.store.connection.client import Store, connect
from live.store.connection.scripts import Script
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.presence import Presence
from live.store.registry.producers import ProducerStore
from tests.harness.boards import changed
from tests.harness.settings import fresh_settings

HOUR: Final = 3_600_000
EPOCH: Final = "00c0ffee"
# Together, boards of these kinds have every store key that a board can have.
KINDS: Final[list[dict[str, Any]]] = [
    {"ties": "first", "ranks": "dense"},
    {"window": {"sliding": "3h"}},
    {"window": {"calendar": "hour", "keep": 900}, "clock": "event", "ties": "last"},
    {"window": "forever", "votes": {"per_actor": 9, "registered": True}},
    {"window": {"calendar": "day"}, "operator": "best", "cap": 5},
]
IDS: Final = st.one_of(
    st.sampled_from(["boards", "producers", "once", "rate", "definitions", "trail", "slot", "gone", "meta"]),
    st.from_regex(re.compile(BOARD_ID.pattern, re.ASCII), fullmatch=True),
)


class Prefix:
    """A prefix of store keys with boards and system keys."""

    def __init__(self, store: str) -> None:
        self.settings = fresh_settings(store, dedupe_window=3600)
        self.client: Store = connect(store, self.settings)
        self.board_admin = BoardAdmin(self.client, self.settings)

    async def fill(self, board: Board, epoch: str = EPOCH) -> Keys:
        """Create a board with data in each of its store keys."""
        keys = Keys(self.settings.key_prefix, board.id)
        if await create(self.client, keys, board, epoch) is not None:
            return keys
        ledger = Ledger(self.client, board, self.settings, born=epoch)
        extra = Extra(metadata=b'{"a":1}', actor="ann")
        if board.votes is not None:
            await ledger.moderation.enter("k1", b"{}")
        times = [1_700_000_000_000 + hour * HOUR for hour in range(12)] if board.clock == "event" else [None]
        for number, time in enumerate(times):
            entries = [make_entry(f"k{i}", i, time, bytes([number, i] * 8)) for i in range(1, 4)]
            await ledger.writer.add([(*entry[:4], extra) for entry in entries])
        await ledger.moderation.hide("k2", hidden=True)
        await ledger.baseline.keep()
        await Presence(self.client).report({board.id: 1})
        await self.client.sadd(keys.seen(int(await self.client.hget(keys.meta, "bucket") or 0) - 3600), "old")
        return keys

    async def everything(self) -> dict[bytes, bytes | None]:
        """Every store key of the prefix, with its content."""
        found = [key.encode() async for key in self.client.names(f"{self.settings.key_prefix}:*")]
        return {key: await self.client.dump(key) for key in found}


@asynccontextmanager
async def prefix(store: str) -> AsyncIterator[Prefix]:
    """A prefix for one test."""
    made = Prefix(store)
    try:
        yield made
    finally:
        await made.client.aclose()


def near(board: str) -> list[str]:
    """Ids that could be confused with this id: ids that begin or end like it, and names of system keys."""
    found = {board[:-1], f"{board}0", f"{board}-slot", f"a{board}", "boards", "producers", "once", "rate"} - {board}
    return [name for name in sorted(found) if BOARD_ID.fullmatch(name)]


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(board=IDS, kind=st.integers(0, len(KINDS) - 1))
@example(board="boards", kind=0)
@example(board="producers", kind=2)
def test_only_the_board_of_that_id_is_deleted(valkey_url: str, board: str, kind: int) -> None:
    """Definitions, audit log, producers and boards with similar ids are unchanged, byte for byte."""

    async def attempt() -> None:
        async with prefix(valkey_url) as made:
            await ProducerStore(made.client).add("shop", Scope())
            await made.board_admin.put("other", {"title": "Other"}, "ann")
            for name in near(board):
                await made.fill(read_board(name, KINDS[(kind + 1) % len(KINDS)]))
            before = await made.everything()
            keys = await made.fill(read_board(board, KINDS[kind]))
            assert await made.everything() != before
            await delete_keys(made.client, keys, EPOCH)
            assert await made.everything() == before

    asyncio.run(attempt())


async def test_a_board_called_boards_can_be_created_and_deleted(any_store: str) -> None:
    """Other boards, the audit log and the API keys stay."""
    async with prefix(any_store) as made:
        producers = ProducerStore(made.client)
        await producers.add("shop", Scope())
        await made.board_admin.put("other", {"title": "Other"}, "ann")
        for name in ("boards", "producers"):
            await made.board_admin.put(name, {"types": ["kiss"]}, "ann")
            await made.board_admin.delete(name, "ann")
        assert list((await made.board_admin.definitions.load()).boards) == ["other"]
        entries = await AuditTrail(made.client).last(9)
        assert [entry.what for entry in entries] == ["deleted", "created"] * 2 + ["created"]
        assert list((await producers.load()).records) == ["shop"]


@pytest.mark.parametrize("kind", range(len(KINDS)))
async def test_another_process_finishes_a_deletion(any_store: str, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that began the deletion may crash after any step."""
    monkeypatch.setattr(lifecycle, "_SLOTS_A_STEP", 2)
    monkeypatch.setattr(lifecycle, "_KEYS_A_STEP", 40)
    step = lifecycle._delete_step
    for most in range(1, 50):
        async with prefix(any_store) as made:
            keys = await made.fill(read_board("b", KINDS[kind]))
            done = 0

            async def die(*arguments: Any, most: int = most, **choices: Any) -> list[str] | None:
                nonlocal done
                if done == most:
                    raise StoreUnavailableError("this process is dead")
                done += 1
                return await step(*arguments, **choices)

            with monkeypatch.context() as patch:
                patch.setattr(lifecycle, "_delete_step", die)
                try:
                    await delete_keys(made.client, keys, EPOCH)
                except StoreUnavailableError:
                    assert await made.everything() != {}
                else:
                    assert await made.everything() == {}
                    return
            await delete_keys(made.client, keys, EPOCH)
            assert await made.everything() == {}
    pytest.fail("the deletion never ended")


async def test_the_renamed_state_is_deleted_last(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash, the next process needs it to find all store keys."""
    run = Script.__call__
    async with prefix(valkey_url) as made:
        keys = await made.fill(read_board("b", KINDS[0]))
        await made.client.call(keys.entrants, "HSET", keys.entrants, *[str(number) for number in range(2000)])

        async def checked(script: Script[Any], *arguments: Any) -> list[Any]:
            reply = await run(script, *arguments)
            left = await made.everything()
            assert not left or keys.gone.encode() in left
            return reply

        monkeypatch.setattr(Script, "__call__", checked)
        await delete_keys(made.client, keys, EPOCH)
        assert await made.everything() == {}


async def test_an_expired_board_leaves_nothing(any_store: str) -> None:
    """A deletion finds the store keys that are left of an expired board."""
    async with prefix(any_store) as made:
        board = changed(read_board("b", KINDS[2]), idle_ttl="1s")
        keys = await made.fill(board)
        assert await expire(made.client, keys, EPOCH, -1) is None
        assert await made.everything() != {}
        await delete_keys(made.client, keys, EPOCH)
        assert await made.everything() == {}


def test_a_deletion_finds_every_bucket_of_identities() -> None:
    """The newest bucket may be ahead of the clock.

    The oldest bucket is the oldest that the longest dedupe window can need.
    """
    now, span = 1_700_000_000, 3600
    newest = now // span * span
    named = list(lifecycle._buckets(span, newest, now))
    assert named[-1] == newest
    assert named[0] <= now - LONGEST - 4 * span
    ahead = newest + 30 * LONGEST // span * span
    named = list(lifecycle._buckets(span, ahead, now))
    assert {newest, ahead, ahead - LONGEST // span * span} <= set(named)
    assert len(named) == len(set(named))
