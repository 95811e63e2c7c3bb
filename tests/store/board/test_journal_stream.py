"""The journal of a board that already has data: how it begins and ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from live.domain.event import make_entry
from live.store.board.journal_stream import begin_journal, journals, read_entries, read_streams
from live.store.connection.client import required
from live.store.connection.pipelined import Word
from tests.harness.boards import open_ledger, rolling_board

ID = bytes(range(16))


async def test_a_journal_begins_with_identities_that_are_counted_meanwhile(
    any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event with an id counts after the process asks for buckets, and before the script begins the journal."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([make_entry("a")])
        client, keys, epoch = ledger.state.client, ledger.state.keys, ledger.state.epoch or ""
        call, late = client.call, [make_entry("a", 1, None, ID)]

        async def slow_call(key: str, *words: Word) -> Any:
            reply = await call(key, *words)
            if words[0] == "ZRANGE" and late:
                await ledger.writer.add([late.pop()])
            return reply

        monkeypatch.setattr(client, "call", slow_call)
        await begin_journal(client, keys, epoch)
        ((first,),) = required(await read_entries(client, [(keys, epoch, "0-0")]))
    assert not late
    assert first.head.startswith("adopt")
    assert ID in first.content


async def test_a_journal_that_begins_again_twice_has_one_such_entry(any_store: str) -> None:
    """The journal begins twice if the reply to the first request is lost, or if SQL refuses the entries that follow."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        client, keys = ledger.state.client, ledger.state.keys
        await ledger.writer.add([make_entry("a")])
        epoch = ledger.state.epoch or ""
        names = [await begin_journal(client, keys, epoch, again=True) for _ in range(3)]
        (entries,) = required(await read_entries(client, [(keys, epoch, "0-0")]))
        assert names == [entries[-1].id] * 3
        await ledger.writer.add([make_entry("b")])
        assert await begin_journal(client, keys, epoch, again=True) != names[0]
        assert [entry.head.split(" ")[0] for entry in entries[-1:]] == ["adopt"]


async def test_a_journal_begins_although_identities_change_faster_than_they_are_found(
    any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During each walk over the store, an event with an id begins another bucket."""
    walks = 0
    async with open_ledger(any_store, rolling_board(), dedupe_window=1.0) as ledger:
        client, keys = ledger.state.client, ledger.state.keys
        identities = [bytes([number]) * 16 for number in range(6)]
        await ledger.writer.add([make_entry("a", 1, None, identities.pop())])
        epoch = ledger.state.epoch or ""

        names = client.names

        async def slow_names(pattern: str) -> AsyncIterator[str]:
            nonlocal walks
            walks += 1
            async for name in names(pattern):
                yield name
            await asyncio.sleep(1.5)
            if identities:
                await ledger.writer.add([make_entry("a", 1, None, identities.pop())])

        monkeypatch.setattr(client, "names", slow_names)
        await begin_journal(client, keys, epoch, again=True)
        (entries,) = required(await read_entries(client, [(keys, epoch, "0-0")]))
    assert walks == 1
    assert bytes([4]) * 16 in entries[-1].content, "the journal lacks the identity that was counted during the walk"


async def test_a_board_that_turns_its_journal_off_has_none_once_it_is_open(valkey_url: str) -> None:
    """Entries that wait are dropped, and later events are in no journal."""
    async with open_ledger(valkey_url, rolling_board(), journal="sqlite") as before:
        await before.writer.add([make_entry("a")])
        client, prefix = before.state.client, before.state.settings.key_prefix
        names = [("posts", before.state.epoch or "")]
        assert [stream.entries for stream in required(await read_streams(client, names))] == [2]
        board = replace(rolling_board(), journal="off")
        async with open_ledger(valkey_url, board, journal="sqlite", key_prefix=prefix) as after:
            await after.state.open()
            assert await journals(client) == []
            await after.writer.add([make_entry("a")])
        (stream,) = required(await read_streams(client, names))
        assert (stream.entries, stream.link) == (0, "")


async def test_what_the_store_holds_of_journals_is_read_at_once(valkey_url: str) -> None:
    """The journal of an epoch has ended if the board has another epoch, and the data of the old epoch is deleted."""
    async with open_ledger(valkey_url, rolling_board(), journal="sqlite") as ledger:
        for _ in range(2):
            await ledger.writer.add([make_entry("a")])
        state = ledger.state
        names = [("posts", state.epoch or ""), ("posts", "0badbad0"), ("none", "0badbad0")]
        here, other, none = required(await read_streams(state.client, names))
        assert (here.ended, here.entries > 1, here.waiting > 0, here.link != "") == (False, True, True, True)
        assert other == none == (True, 0, 0, "")
        await state.client.hset(state.keys.gone, "epoch", "0badbad0")
        assert [stream.ended for stream in required(await read_streams(state.client, names))] == [
            False,
            False,
            True,
        ]
