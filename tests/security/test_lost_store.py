"""A store that lost data: no process acknowledges anything on the lost boards until an operator accepts the loss."""

import os
import shutil
import signal
from pathlib import Path
from typing import Final

import msgspec
import pytest

from live.store.board.keys import Keys, SystemKeys
from live.store.connection.client import connect
from tests.harness.lost_store import ATTEMPTS, HAMMER, Attempt, Servers, hammer, http, servers
from tests.harness.producer import post
from tests.harness.server import ServerProcess
from tests.harness.store import valkey
from tests.harness.waiting import eventually

WAVES: Final = 4

pytestmark = [pytest.mark.security, pytest.mark.fault]


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no_keys"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_an_emptied_store_is_not_taken_for_a_new_one(
    tmp_path: Path, workers: int, effort: int, *, keyed: bool
) -> None:
    """The running process, a new worker, and a server that starts later notice that the store was emptied."""
    with servers(tmp_path, workers, keyed=keyed) as made:
        await made.begin()
        await made.flush()
        assert await hammer(made.server.url, made.headers, HAMMER * effort) == []
        if keyed:
            assert await hammer(made.server.url, {}, HAMMER / 2) == []
            await made.lost_on_every_route()
        if workers > 1:
            killed = made.children()[0]
            os.kill(killed, signal.SIGKILL)

            async def replaced() -> bool:
                return len(made.children()) == workers and killed not in made.children()

            await eventually(replaced)
            assert await hammer(made.server.url, {}, HAMMER * effort) == []
        assert "data was lost" in made.server.log()
        made.server.stop()

        said = made.refused()
        assert "has no identity" in said
        assert "posts (epoch" in said
        assert "live recover --from store" in said
        await expect_empty(made)

        made.server.recover_from_store()
        made.server.start()
        async with http(made.server.url) as client:
            answer = await client.post("/v1/events", json={"key": "k"})
            assert answer.status_code == (401 if keyed else 200)
            assert (await client.get("/readyz")).status_code == 200
        made.server.stop()
        made.server.start()  # the loss is accepted once and for all


async def expect_empty(made: Servers) -> None:
    """Check that the store has only store keys that expire: rates and live processes."""
    client = connect(made.store.url, made.settings)
    found = [key async for key in client.scan_iter(count=1000)]
    await client.aclose()
    assert [key for key in found if not any(tag in key for tag in (b"{rate:", b"{:processes}"))] == []


async def test_a_server_that_forgets_the_store_is_caught(tmp_path: Path) -> None:
    """The test above fails if the servers lose their file of facts about the store."""
    with servers(tmp_path, 1, keyed=True) as made:
        await made.begin()
        await made.flush()
        made.server.stop()
        shutil.rmtree(made.settings.data_dir)
        made.server.start()
        with pytest.raises(AssertionError, match="accepted"):
            assert await hammer(made.server.url, {}, HAMMER) == []


async def test_a_foreign_store_is_refused(tmp_path: Path) -> None:
    """A server that is pointed to another store reports this and changes nothing in that store."""
    with servers(tmp_path, 1, keyed=False) as made:
        await made.begin()
        made.server.stop()
        (tmp_path / "other").mkdir()
        other = valkey(tmp_path / "other")
        other.start()
        try:
            settings = msgspec.structs.replace(made.settings, store=other.url)
            client = connect(other.url, settings)
            await client.set(SystemKeys(settings.key_prefix).store, "somebody-else")
            made.server = ServerProcess(settings, tmp_path)
            assert "has the identity somebody-else" in made.refused()
            assert await client.dbsize() == 1
            await client.aclose()
            made.server = ServerProcess(made.settings, tmp_path)
            made.server.start()  # with the right store, everything works as before
        finally:
            other.kill()


async def test_boards_that_lost_their_state_stop_alone(tmp_path: Path) -> None:
    """A board and a part of a union lose only their states. A deletion by another process is not a loss."""
    with servers(tmp_path, 2, keyed=True) as made:
        await made.begin()
        async with http(made.server.url, made.headers) as client:
            assert (await client.put("/v1/boards/gone", json={"types": ["kiss"]})).status_code == 201
            assert (await client.delete("/v1/boards/gone")).status_code == 204
            for _ in range(20):
                assert (await client.post("/v1/events", json={"key": "k", "type": "kiss"})).status_code == 200
            part, union = {"types": ["hug"], "window": "forever"}, {"union": ["part", "other"], "window": "forever"}
            for name, choices in (("part", part), ("other", {**part, "types": ["wave"]}), ("sum", union)):
                made_one = await client.put(f"/v1/boards/{name}", json=choices)
                assert made_one.status_code == 201, made_one.text
            await post(client, {"key": "k", "type": "hug"})
            before = (await client.get("/v1/boards/sum")).json()
        store = connect(made.store.url, made.settings)
        for board in ("contest", "part"):
            await store.delete(Keys(made.settings.key_prefix, board).meta)
        await store.aclose()
        await lost_alone(made)
        made.server.stop()
        made.server.start()
        await lost_alone(made)
        made.server.stop()
        assert "board contest is defined with epoch" in made.server.log()
        assert "live recover --from store" in made.server.log()

        made.server.recover_from_store()
        made.server.start()
        async with http(made.server.url, made.headers) as client:
            contest, posts = await client.get("/v1/boards/contest"), await client.get("/v1/boards/posts")
            assert (contest.status_code, contest.json()["rank_count"]) == (200, 0)
            assert posts.json()["rank_count"] == 1
            answer = await post(client, {"key": "k", "type": "hug"})
            assert answer["offsets"].keys() == {"part", "sum"}  # the union has its part again
            parts, whole = [(await client.get(f"/v1/boards/{name}")).json() for name in ("part", "sum")]
            waved = 2 * WAVES
            assert parts["total_score"] == 1
            assert whole["total_score"] == before["total_score"] + waved + 1, "the union lost events"
            assert whole["epoch"] == before["epoch"]


async def lost_alone(made: Servers) -> None:
    """Wait until every worker refuses all requests for the lost boards. Other boards take events."""
    lost = [attempt for attempt in ATTEMPTS if "/boards/contest" in attempt.path]
    lost.append(Attempt("POST", "/v1/events", json={"key": "j", "type": "vote", "actor": "a"}))

    async def refused() -> bool:
        async with http(made.server.url, made.headers) as client:
            answers = [await attempt(client) for attempt in lost for _ in range(2)]
            return {(answer.status_code, answer.json().get("code")) for answer in answers} == {(503, "epoch_lost")}

    await eventually(refused)
    async with http(made.server.url, made.headers) as client:
        for _ in range(WAVES):
            assert (await client.post("/v1/events", json={"key": "k"})).status_code == 200
            assert (await client.get("/v1/boards/posts")).status_code == 200
            assert (await client.get("/v1/boards/contest")).json()["code"] == "epoch_lost"
            answer = await post(client, {"key": "k", "type": "wave"})
            assert answer["offsets"].keys() == {"other", "sum"}
        ready = await client.get("/readyz")
        assert ready.status_code == 200
        assert any("board contest takes no events" in reason for reason in ready.json()["reasons"])
