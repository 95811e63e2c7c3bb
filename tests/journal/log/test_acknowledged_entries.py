"""With `LIVE_JOURNAL_ACK`, an acknowledged event is in SQL."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from live.domain.event import make_entry
from live.errors import StoreUnavailableError
from live.store.board.write.writer import BoardWriter
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.proxy import Proxy, listening

pytestmark = pytest.mark.fault


async def acknowledged_and_lost(board: Journaled) -> None:
    """Count while a drainer runs, and check that SQL has everything that was acknowledged."""
    drainer = await board.drainer()
    running = asyncio.create_task(drainer.run())
    try:
        for _ in range(5):
            await board.like("a", "b")
            assert sum(score for _, score in await board.rows_in_sql()) == board.counted
    finally:
        running.cancel()


async def test_with_ack_an_acknowledged_event_is_in_sql(valkey_url: str, tmp_path: Path) -> None:
    """The event survives the loss of one disk."""
    async with journaled(valkey_url, tmp_path, journal_ack=True) as board:
        await acknowledged_and_lost(board)


async def test_a_missing_wait_for_sql_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """Without the setting, `acknowledged_and_lost` fails."""
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("the answer does not wait for SQL"):
            await acknowledged_and_lost(board)


async def test_while_sql_is_unavailable_the_outcome_is_unknown(valkey_url: str, tmp_path: Path) -> None:
    """The store has the event, and SQL may receive it later."""
    async with journaled(valkey_url, tmp_path, journal_ack=True, write_deadline=1) as board:
        with pytest.raises(StoreUnavailableError) as refused:
            await board.like("a")
        assert refused.value.unknown


class Forgetful(Proxy):
    """A proxy that drops the connection of a client that asks what SQL has."""

    async def request(self, data: bytes) -> bytes | None:
        return None if b"\r\nsafe\r\n" in data else data


@pytest.mark.one_server
async def test_while_the_store_does_not_say_what_sql_has_the_outcome_is_unknown(
    valkey_url: str, tmp_path: Path
) -> None:
    """The event was counted before the store went away, so nobody may send it again as a new event."""
    choices: dict[str, Any] = {"journal_ack": True, "write_deadline": 1}
    async with listening(Forgetful(valkey_url), tmp_path) as proxy, journaled(proxy.url, tmp_path, **choices) as board:
        with pytest.raises(StoreUnavailableError) as refused:
            await board.like("a")
        assert refused.value.unknown
        assert await board.rows() == [("a", 1)]


async def repeats_before_sql_has_it(board: Journaled) -> None:
    """A producer does not know whether an event counted, and sends it again, before and after SQL has it."""
    event = [make_entry("a", 1, None, b"i" * 16)]
    for _ in range(2):
        outcomes = await asyncio.gather(board.ledger.writer.add(event), return_exceptions=True)
        assert [getattr(outcome, "unknown", outcome) for outcome in outcomes] == [True]
    await (await board.drainer()).sweep()
    assert (await board.ledger.writer.add(event)).refused == {0: "duplicate"}
    assert await board.rows_in_sql() == await board.rows() == [("a", 1)]


async def test_with_ack_a_duplicate_waits_for_sql_too(valkey_url: str, tmp_path: Path) -> None:
    """The answer acknowledges the event that was counted before."""
    async with journaled(valkey_url, tmp_path, journal_ack=True, write_deadline=1) as board:
        await repeats_before_sql_has_it(board)


@pytest.mark.mutant
async def test_a_duplicate_that_waits_for_nothing_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant waits only for batches that count something."""
    wait = BoardWriter.is_in_sql

    async def careless(writer: BoardWriter, offset: int | None) -> bool:
        return offset is None or await wait(writer, offset)

    async with journaled(valkey_url, tmp_path, journal_ack=True, write_deadline=1) as board:
        with must_be_caught("a duplicate is answered before SQL has it"), replaced(BoardWriter, "is_in_sql", careless):
            await repeats_before_sql_has_it(board)
