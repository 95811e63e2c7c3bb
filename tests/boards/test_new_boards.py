"""When one process creates a board, the other processes serve it at once.

They get a notice, and before they refuse a request for an unknown board, they ask the store.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.boards import registry
from live.boards.registry import BoardRegistry
from live.store.connection.client import connect as connect_store
from live.store.connection.notices import Notice, listen
from live.store.registry.processes import Processes
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import request

Use = Callable[[httpx.AsyncClient, str], Awaitable[bool]]


async def deaf(_registry: BoardRegistry) -> None:
    """Wait forever, so that the process receives no notice."""
    await asyncio.Event().wait()


async def at_once(_registry: BoardRegistry) -> None:
    """Return at once, without waiting for other processes."""


@asynccontextmanager
async def two_processes(
    store: str, *, hears: bool = False
) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Yield clients of two processes of one server.

    Without `hears`, neither process gets a notice of the other's new boards.
    """
    settings = fresh_settings(store, anonymous_admin=True)
    with ExitStack() as changes:
        if not hears:
            changes.enter_context(patch.object(BoardRegistry, "_follow_notices", deaf))
            changes.enter_context(patch.object(BoardRegistry, "until_known", at_once))
        async with (
            run_server(settings, [rolling_board()]) as one,
            run_server(settings, [rolling_board()]) as other,
            httpx.AsyncClient(base_url=one, timeout=180) as first,
            httpx.AsyncClient(base_url=other, timeout=180) as second,
        ):
            yield first, second


async def counts(client: httpx.AsyncClient, event: dict[str, Any], **headers: str) -> bool:
    """Post an event for a known board and `event` in one body, and return whether both count."""
    answer = await client.post("/v1/events", json=[{"key": "a"}, event], headers=headers)
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["accepted"] == 2)


async def names_board(client: httpx.AsyncClient, board: str) -> bool:
    """Post an event that names the board."""
    return await counts(client, {"key": "a", "board": board})


async def names_type(client: httpx.AsyncClient, board: str) -> bool:
    """Post an event whose type only the new board takes, in a body with an `Idempotency-Key`."""
    return await counts(client, {"key": "a", "type": board}, **{"Idempotency-Key": secrets.token_hex(4)})


async def watches(client: httpx.AsyncClient, board: str) -> bool:
    """Open a WebSocket as a viewer, and return whether a sync arrives."""
    try:
        async with connect(f"{client.base_url}/v1/boards/{board}/live".replace("http", "ws")) as socket:
            return '"sync"' in str(await socket.recv())
    except InvalidStatus:
        return False


def reads(path: str) -> Use:
    """Return a `Use` that gets this path of the new board."""

    async def use(client: httpx.AsyncClient, board: str) -> bool:
        async with client.stream("GET", path.format(board)) as answer:
            return answer.status_code == 200

    return use


async def likes(client: httpx.AsyncClient, board: str) -> bool:
    """Like as a visitor, and return whether the server answers with the redirect that sets the cookie."""
    origin = str(client.base_url).rstrip("/")
    client.cookies.clear()
    answer = await client.post(f"/boards/{board}/likes", data={"key": "a"}, headers={"Origin": origin})
    return answer.status_code == 307


UPGRADE: Final = (
    ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)  # fmt: skip
USES: Final[dict[str, Use]] = {
    "board of an event": names_board,
    "type of an event": names_type,
    "viewer's socket": watches,
    "stream": reads("/v1/boards/{}/stream"),
    "board": reads("/v1/boards/{}"),
    "records": reads("/v1/boards/{}/records?key=a"),
    "page": reads("/boards/{}"),
    "sides": reads("/boards/posts,{}"),
    "frame": reads("/embed/{}"),
    "code": reads("/boards/{}/qr.svg"),
    "table": reads("/boards/{}/records.csv"),
    "like": likes,
}


async def serves_new_boards(one: httpx.AsyncClient, other: httpx.AsyncClient, use: Use) -> None:
    """Create boards in one process, and use each board in the other process right after that."""
    for _ in range(3):
        board = f"b{secrets.token_hex(4)}"
        choices = {"types": [board], "like_button": True}
        assert (await one.put(f"/v1/boards/{board}", json=choices)).status_code == 201
        assert await use(other, board), "the other process does not know the board"


async def test_a_new_board_is_there_in_every_process(valkey_url: str) -> None:
    """Events for the board count, and clients can read and watch it. Boards that change their types work too."""
    async with two_processes(valkey_url) as (one, other):
        for use in USES.values():
            await serves_new_boards(one, other, use)
        assert (await one.put("/v1/boards/late", json={"types": ["early"]})).status_code == 201
        assert await names_board(other, "late")
        assert (await one.patch("/v1/boards/late", json={"types": ["latest"]})).status_code == 200
        assert await names_type(other, "latest")


async def test_a_board_that_does_not_exist_is_refused(valkey_url: str) -> None:
    """Events, reads and viewers of such a board are refused. Valid events of the same body count."""
    async with two_processes(valkey_url) as (_, other):
        answer = (
            await other.post("/v1/events", json=[{"key": "a", "board": "none"}, {"key": ""}, {"key": "a"}])
        ).json()
        assert [(one["index"], one["code"]) for one in answer["rejected"]] == [(0, "board_unknown"), (1, "key_invalid")]
        assert answer["accepted"] == 1
        answer = (await other.post("/v1/events", json={"key": "a", "type": "none"})).json()
        assert [one["code"] for one in answer["rejected"]] == ["type_unknown"]
        for path in ("/v1/boards/none", "/boards/none", "/v1/boards/none/stream", "/v1/boards/none/live"):
            assert (await other.get(path)).status_code == 404, path
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{other.base_url}/v1/boards/none/live".replace("http", "ws"))
        assert refused.value.response.status_code == 404


async def test_a_viewer_that_leaves_while_it_waits_leaves_nothing(valkey_url: str) -> None:
    """The viewer's connection closes, and the process goes on."""
    async with two_processes(valkey_url) as (one, other):
        port = other.base_url.port
        for _ in range(5):
            tried = [asyncio.create_task(asyncio.open_connection("127.0.0.1", port)) for _ in range(10)]
            for task in tried:
                _, writer = await task
                writer.write(request("GET", "/v1/boards/none/live", *UPGRADE))
                writer.close()
        await serves_new_boards(one, other, watches)


async def test_unknown_boards_cost_the_store_little(valkey_url: str) -> None:
    """However many requests name unknown boards, a process asks the store at most ten times a second."""
    asked, refresh = 0, BoardRegistry.refresh

    async def counted(registry: BoardRegistry, **changes: bool) -> None:
        nonlocal asked
        asked += 1
        await refresh(registry, **changes)

    loop = asyncio.get_running_loop()
    settings = fresh_settings(valkey_url)
    with patch.object(BoardRegistry, "refresh", counted):
        async with (
            run_server(settings, [rolling_board()]) as url,
            httpx.AsyncClient(base_url=url, timeout=180) as client,
        ):
            began, asked = loop.time(), 0

            async def flood(number: int) -> None:
                for _ in range(4):
                    await client.post("/v1/events", json={"key": "a", "board": f"none{number}"})
                    await client.get(f"/v1/boards/none{number}")

            await asyncio.gather(*(flood(number) for number in range(40)))
            # The process also reads definitions by itself, about once a second.
            most = 10 * (loop.time() - began) + 2 * (loop.time() - began + 1)
            assert asked <= most
            began, asked = loop.time(), 0
            for _ in range(100):
                await client.post("/v1/events", json={"key": "a"})
                await client.get("/v1/boards/posts")
            assert asked <= loop.time() - began + 2


async def test_a_steady_stream_of_unknown_types_does_not_wait(valkey_url: str) -> None:
    """The process asks at most once a second for the same board or type."""
    events = [{"key": "a", "type": "none"}, {"key": "a", "board": "none"}]
    asked, ask_soon = 0, BoardRegistry.ask_soon

    def counted(registry: BoardRegistry, callback: Any) -> None:
        nonlocal asked
        asked += 1
        ask_soon(registry, callback)

    loop = asyncio.get_running_loop()
    with patch.object(BoardRegistry, "ask_soon", counted):
        async with (
            run_server(fresh_settings(valkey_url), [rolling_board()]) as url,
            httpx.AsyncClient(base_url=url, timeout=180) as client,
        ):
            began = loop.time()
            for _ in range(30):
                answer = (await client.post("/v1/events", json=[{"key": "a"}, *events])).json()
                assert (answer["accepted"], len(answer["rejected"])) == (1, len(events))
            assert asked <= 1 + loop.time() - began, "the process asks the store again and again"


async def test_a_process_that_can_not_ask_does_not_refuse(own_store: StoreProcess) -> None:
    """The board may exist, so the process counts nothing and tells the client to try again."""
    async with two_processes(own_store.url) as (_, other):
        own_store.kill()
        answer = await other.post("/v1/events", json={"key": "a", "board": "none"})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert (await other.get("/v1/boards/none")).status_code == 503
        own_store.start()

        async def is_refused() -> bool:
            return (await other.get("/v1/boards/none")).status_code == 404

        await eventually(is_refused)


async def listen_late(*arguments: Any) -> AsyncIterator[Notice]:
    """Let a process receive each notice a moment late, as if it were busy."""
    async for notice in listen(*arguments):
        await asyncio.sleep(0.1)
        yield notice


async def test_a_change_is_known_everywhere_when_it_is_answered(any_store: str) -> None:
    """Every process gets a notice of the change. The response waits until each process runs the changed boards."""
    with patch.object(registry, "listen", listen_late):
        async with two_processes(any_store, hears=True) as (first, second):
            for number in range(8):
                made = await first.put(f"/v1/boards/b{number}", json={"types": [f"t{number}"]})
                assert made.status_code == 201, made.text
                listed = (await second.get("/v1/boards")).json()["boards"]
                assert f"b{number}" in {board["board"] for board in listed}
                changed = await first.patch(f"/v1/boards/b{number}", json={"title": "Changed"})
                assert changed.status_code == 200, changed.text
                shown = (await second.get(f"/v1/boards/b{number}")).json()
                assert shown["title"] == "Changed"


async def test_a_process_that_hangs_delays_a_change_only_for_a_moment(any_store: str) -> None:
    """The hanging process reports nothing, so the response soon stops waiting for it."""
    settings = fresh_settings(any_store, anonymous_admin=True)
    client = connect_store(any_store, settings)
    hanging = Processes(client)
    await hanging.all_run("1")
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url, timeout=180) as http:
        made = await http.put("/v1/boards/made", json={"types": ["kiss"]})
        assert made.status_code == 201, made.text
    await client.aclose()
