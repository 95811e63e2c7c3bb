"""A board whose store server is gone waits alone: events, viewers and journals of other boards go on."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.away import away
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught
from tests.harness.server import serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.sse import Stream, streaming
from tests.harness.waiting import eventually

pytestmark = pytest.mark.fault

BOARDS: Final = ("near", "far")


async def like(client: httpx.AsyncClient, board: str, member: str = "a") -> int:
    """Send a like to a board; returns the status."""
    return (await client.post("/v1/events", json={"board": board, "key": member})).status_code


async def shows(stream: Stream, offset: int) -> None:
    """Wait until a viewer has received an offset."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stream.follow(offset), 10)
    assert stream.model.offset >= offset, "the viewer gets nothing"


async def is_drained(store: Any, prefix: str, board: str) -> bool:
    """Return whether the store holds no more entries of a board's journal."""
    streams = [name async for name in store.scan_iter(f"{Keys(prefix, board).channel}:journal:*")]
    return not any([await store.xlen(stream) for stream in streams])


async def one_fails(store: str, folder: Path, *, takes_all: bool = False) -> None:
    """Run a server with two viewed boards, one of which can't be reached for a while."""
    settings = fresh_settings(store, data_dir=folder, journal="sqlite")
    boards = [rolling_board(board=name) for name in BOARDS]
    async with serving(settings, *boards) as client, connect(store, settings) as redis:
        drained = partial(is_drained, redis, settings.key_prefix)
        await until_ready(client)
        async with streaming(client, board="near") as near, streaming(client, board="far"):
            for board in BOARDS:
                assert await like(client, board) == 200
                await eventually(partial(drained, board))
            with away("far", takes_all=takes_all):
                assert await like(client, "far") == 503

                async def names_it() -> list[str]:
                    answer = await client.get("/readyz")
                    assert answer.status_code == 200, answer.text
                    return [one for one in answer.json().get("reasons", []) if "board far takes no events" in one]

                await eventually(names_it)
                for offset in range(2, 7):
                    assert await like(client, "near") == 200
                    await shows(near, offset)
                    await eventually(partial(drained, "near"))
                assert not near.model.stale
            assert await like(client, "far") == 200
            for board in BOARDS:
                await eventually(partial(drained, board))


async def test_one_board_that_fails_holds_up_no_other(valkey_url: str, tmp_path: Path) -> None:
    """When its shard is back, the failed board also goes on, without help."""
    await one_fails(valkey_url, tmp_path)


@pytest.mark.mutant
async def test_an_error_for_all_boards_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, one failed command of a pipeline fails all of its commands."""
    with must_be_caught("one failed command fails all commands"):
        await one_fails(valkey_url, tmp_path, takes_all=True)
