"""The demo: exactly one of all processes generates the likes."""

import asyncio
import os
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from live import demo
from live.demo import BOARDS, POSTS, make_history
from live.domain.board_file import load_boards
from live.process.serve import _count_boards
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.ingest import make_key
from tests.harness.producers import bearer
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.workers import children


@pytest.mark.slow
async def test_an_empty_board_begins_with_a_day_of_likes(valkey_url: str) -> None:
    """Each past hour of the window has the likes of `make_history`, and has them once. One member is checked."""
    async with (
        run_server(fresh_settings(valkey_url, demo=True, workers=1), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):

        async def full() -> Any:
            found = (await client.get(f"/v1/boards/posts/records/{quote(POSTS[0])}/slots")).json()
            scores = [score for record in found.get("records", ()) for score in record["scores"]]
            return (found["slots"], scores) if sum(map(bool, scores)) >= 23 else None

        slots, scores = await eventually(full)
    sent = {at: amount for post, amount, at, *_ in make_history(time.time()) if post == POSTS[0] and at is not None}
    counted = {
        round(datetime.fromisoformat(slot["start"]).timestamp() * 1000) + 1_800_000: value
        for slot, value in zip(slots, scores, strict=True)
    }
    past = sorted(sent.keys() & counted.keys())[:-1]  # later likes may have come in the last hour
    assert len(past) >= 22
    assert {at: sent[at] for at in past} == {at: counted[at] for at in past}


@pytest.mark.slow
async def test_boards_of_several_kinds_are_fed(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards may also be private. The union has the sum of its parts, and a contest that is over begins again."""
    monkeypatch.setattr(demo, "_VOTING", timedelta(seconds=2))
    monkeypatch.setattr(demo, "_RESULT", timedelta(seconds=1))
    settings = fresh_settings(valkey_url, demo=True, workers=1, visibility="private")
    headers = dict([bearer(await make_key(settings, "reader", verbs=("read",)))])
    async with (
        run_server(settings, list(load_boards(None).by_id.values())) as url,
        httpx.AsyncClient(base_url=url, headers=headers) as client,
    ):

        async def board(name: str) -> Any:
            return (await client.get(f"/v1/boards/{name}")).json()

        async def fed() -> Any:
            found = [await board(name) for name in ("posts", "photos", "everything", "climbs", demo.CONTEST)]
            return found if all(one.get("records") for one in found) else None

        found = await eventually(fed)
        assert set(found[3]["records"][0]["fields"]) == {"metres", "minutes"}
        epoch = found[4]["epoch"]

        async def summed() -> bool:
            posts, photos, both = [(await board(name))["total_score"] for name in ("posts", "photos", "everything")]
            # The boards are read one after another, and events arrive meanwhile.
            return bool(abs(posts + photos - both) < 50 < posts)

        await eventually(summed)

        async def again() -> bool:
            return bool((await board(demo.CONTEST)).get("epoch", epoch) != epoch)

        await eventually(again)


@pytest.mark.slow
async def test_one_of_all_workers_generates_likes(valkey_url: str, tmp_path: Path) -> None:
    """Two servers have three workers each. When the worker that sends likes is killed, another one takes over."""
    settings = fresh_settings(valkey_url, workers=3, demo=True)
    servers = [ServerProcess(settings, tmp_path) for _ in range(2)]
    store: Any = connect(valkey_url, settings)
    keys = Keys(settings.key_prefix, "posts")

    async def counted(least: int) -> bool:
        return int(await store.hget(keys.meta, "offset") or 0) >= least

    async def writers() -> list[bytes]:
        return list(await store.hkeys(keys.writers))

    try:
        for server in servers:
            server.start()
        await eventually(lambda: counted(15))
        (first,) = await writers()
        for server in servers:
            assert server.process is not None
            for worker in children(server.process.pid):
                if len(await writers()) == 1:
                    os.kill(worker, signal.SIGKILL)
                    await asyncio.sleep(0.1)
        before = int(await store.hget(keys.meta, "offset"))
        await eventually(lambda: counted(before + 15))
        found = await writers()
        assert first in found
        assert len(found) == 2
    finally:
        for server in servers:
            server.stop()
        await store.aclose()


async def test_the_start_line_counts_the_boards_of_the_demo(valkey_url: str) -> None:
    """With the demo, the line counts its boards too. Without the demo, it counts only the default board."""
    settings = fresh_settings(valkey_url, demo=True)
    assert await _count_boards(settings) == len(BOARDS) + 1
    assert await _count_boards(msgspec.structs.replace(settings, demo=False)) == 0
