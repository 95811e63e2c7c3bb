"""How the journal of a board begins that already has data."""

from typing import Any

import pytest

from live.domain.event import make_entry
from live.store.board.handover import begin_journal, read_entries
from live.store.connection.pipelined import Word
from tests.harness.boards import open_ledger, rolling_board

ID = bytes(range(16))


async def test_a_journal_begins_with_identities_that_are_counted_meanwhile(
    any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first event with an id is counted between the question for buckets and the script."""
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
        ((first,),) = await read_entries(client, [(keys, epoch, "0-0")])
    assert not late
    assert first.head.startswith("adopt")
    assert ID in first.content
