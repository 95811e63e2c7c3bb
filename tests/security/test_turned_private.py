"""When a board becomes private, each process ends the connections of viewers who may not read the board."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import httpx
import pytest
from websockets.frames import Close, Opcode

from live.errors import BOARD_DELETED
from live.fanout import frames
from live.fanout.hub import Hub
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.admin import Administrator, fields_of
from tests.harness.ingest import make_key
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.producers import bearer
from tests.harness.raw_socket import HANDSHAKE, RawSocket
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.wire import CLOSE, connected, request

pytestmark = pytest.mark.security

_PATIENCE: Final = 30.0  # seconds; the test measures how soon a change takes effect, and asserts only this limit
DEFLATES: Final = ("Sec-WebSocket-Extensions", "permessage-deflate")


class Town(NamedTuple):
    """Two servers on one store, and the API keys of the owner and of a reader of the board `june`."""

    urls: tuple[str, str]
    settings: Settings
    owner: tuple[str, str]
    reader: tuple[str, str]

    async def change(self, **choices: Any) -> None:
        """Change the board, through the first server."""
        async with httpx.AsyncClient(base_url=self.urls[0], headers=dict([self.owner]), timeout=_PATIENCE) as client:
            changed = await client.patch("/v1/boards/june", json=choices)
            assert changed.status_code == 200, changed.text

    async def post(self, *events: dict[str, Any]) -> None:
        """Post events as the owner."""
        async with httpx.AsyncClient(base_url=self.urls[0], headers=dict([self.owner]), timeout=_PATIENCE) as client:
            await post(client, *events)


@asynccontextmanager
async def town(store: str) -> AsyncIterator[Town]:
    """The servers, with the public boards `june` and `july`."""
    settings = fresh_settings(store, conflation_interval=0.02, journal="sqlite")
    owner = bearer(await make_key(settings, "owner", verbs=("admin", "post")))
    reader = bearer(await make_key(settings, "reader", verbs=("read",), boards=("ju*",)))
    async with run_server(settings, []) as one, run_server(settings, []) as two:
        at = Town((one, two), settings, owner, reader)
        async with httpx.AsyncClient(base_url=one, headers=dict([owner]), timeout=_PATIENCE) as client:
            for board in ("june", "july"):
                made = await client.put(f"/v1/boards/{board}", json={"types": [board], "window": "forever"})
                assert made.status_code == 201, made.text
        await at.post({"key": "a", "board": "june"})
        yield at


@asynccontextmanager
async def viewer(url: str, *fields: tuple[str, str], board: str = "june", query: str = "") -> AsyncIterator[RawSocket]:
    """A socket that has received a message about a board."""
    async with connected(url) as wire:
        await wire.send(request("GET", f"/v1/boards/{board}/live{query}", *HANDSHAKE, *fields))
        head = await wire.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        socket = RawSocket(wire)
        while (await socket.receive())[0] is not Opcode.TEXT:
            pass
        yield socket


async def end_of(socket: RawSocket) -> tuple[int, float, list[bytes]]:
    """Return the close code of a socket, when the close frame came, and the messages before this frame."""
    seen: list[bytes] = []
    while True:
        code, body = await socket.receive()
        if code is Opcode.CLOSE:
            return Close.parse(body).code, time.monotonic(), seen
        if code is Opcode.TEXT:
            seen.append(body)


async def check_the_end(store: str, count: int, patience: float = _PATIENCE) -> float:
    """Turn a board private while sockets and streams watch it.

    Return after how many seconds the last socket was closed.
    """
    async with town(store) as at, AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(viewer(url)) for url in at.urls for _ in range(count)]
        kept = [await stack.enter_async_context(viewer(url, at.reader)) for url in at.urls]
        streams = []
        for url in at.urls:
            stream = await stack.enter_async_context(connected(url))
            await stream.send(request("GET", "/v1/boards/june/stream", CLOSE))
            await stream.reader.readuntil(b"event: sync")
            streams.append(stream)
        began = time.monotonic()
        ends = asyncio.gather(*(end_of(socket) for socket in sockets))
        await at.change(visibility="private")
        await at.post({"key": "hidden", "board": "june"})
        _, late = await asyncio.wait({ends}, timeout=patience)
        assert not late, "some viewers were not disconnected"
        found = await ends
        assert {code for code, _, _ in found} == {BOARD_DELETED}
        assert not any(b"hidden" in body for _, _, seen in found for body in seen), "a frame came after the change"
        for stream in streams:
            last = await stream.rest()
            assert b"board deleted" in last
            assert b"hidden" not in last
        for socket in kept:
            async with asyncio.timeout(_PATIENCE):
                while b"hidden" not in (await socket.receive())[1]:
                    pass
        return max(ended for _, ended, _ in found) - began


async def test_strangers_are_disconnected(valkey_url: str, pytestconfig: pytest.Config) -> None:
    """Viewers with an API key for the board stay, and see its changes. Strangers see nothing more."""
    took = await check_the_end(valkey_url, 25 * pytestconfig.option.effort)
    assert took < _PATIENCE


@pytest.mark.mutant
async def test_a_hub_that_tells_nobody_is_caught(valkey_url: str) -> None:
    """In the mutant, viewers stay in their cohort."""
    with must_be_caught("viewers stay in their cohort"), replaced(Hub, "recheck", lambda *_: None):
        await check_the_end(valkey_url, 1, 3)


async def test_strangers_who_watch_with_a_delay_are_disconnected(valkey_url: str) -> None:
    """Viewers with a delay are disconnected at once."""
    async with town(valkey_url) as at, viewer(at.urls[0], query="?delay=5s") as stranger:
        await at.change(visibility="private")
        async with asyncio.timeout(_PATIENCE):
            assert (await end_of(stranger))[0] == BOARD_DELETED


async def test_a_revoked_key_ends_its_viewers(valkey_url: str) -> None:
    """The viewers of an API key are disconnected when the key is revoked."""
    async with town(valkey_url) as at:
        await at.change(visibility="private")
        client = connect(valkey_url, at.settings)
        async with viewer(at.urls[0], at.reader) as one, viewer(at.urls[1], at.reader) as two:
            await ProducerStore(client).revoke("reader")
            async with asyncio.timeout(_PATIENCE):
                assert [(await end_of(socket))[0] for socket in (one, two)] == [BOARD_DELETED] * 2
        await client.aclose()
        async with connected(at.urls[1]) as wire:
            await wire.send(request("GET", "/v1/boards/june", at.reader, CLOSE))
            assert b"404 Not Found" in await wire.rest()


async def test_a_session_that_ends_ends_its_viewers(valkey_url: str) -> None:
    """An administrator who is signed in sees the board through both servers, until signing out everywhere."""
    async with town(valkey_url) as at, httpx.AsyncClient(base_url=at.urls[0], headers={"Host": "localhost"}) as client:
        await at.change(visibility="private")
        browser = Administrator(client)
        assert (await browser.sign_in(at.owner[1].removeprefix("Bearer "))).status_code == 303
        session = ("Cookie", "; ".join(f"{name}={value}" for name, value in client.cookies.items()))

        async def statuses() -> list[int]:
            found = []
            for url in at.urls:  # the first request of a session, here for a page, makes it known to the process
                async with connected(url) as wire:
                    await wire.send(request("GET", "/v1/boards/june", session, CLOSE))
                    found.append(int((await wire.rest()).split()[1]))
            return found

        assert await statuses() == [200, 200]
        async with viewer(at.urls[0], session) as one, viewer(at.urls[1], session) as two:
            out = await browser.send("session/end", fields_of((await browser.get("log")).text, "everywhere"))
            assert out.status_code == 303
            async with asyncio.timeout(_PATIENCE):
                assert [(await end_of(socket))[0] for socket in (one, two)] == [BOARD_DELETED] * 2
        assert await statuses() == [404, 404]


async def test_boards_share_no_compression_history(valkey_url: str) -> None:
    """A compression dictionary has messages of one board, so the size of a frame tells nothing about other boards."""
    used: list[tuple[bytes, bytes]] = []
    right = frames.deflate

    def note(text: bytes, dictionary: bytes) -> bytes:
        used.append((text, dictionary))
        return right(text, dictionary)

    async with town(valkey_url) as at:
        await at.change(visibility="private")
        with (
            patch("live.fanout.frames.deflate", note),
            patch.object(frames.SharedText.__init__, "__defaults__", (note,)),
        ):
            async with (
                viewer(at.urls[0], at.reader, DEFLATES) as june,
                viewer(at.urls[0], DEFLATES, board="july") as july,
            ):
                for number in range(5):
                    await at.post(
                        {"key": f"secret{number}", "board": "june"}, {"key": f"open{number}", "board": "july"}
                    )
                    for socket in (june, july):
                        await socket.receive()

                async def compared() -> bool:
                    return len([text for text, dictionary in used if dictionary]) >= 4

                await eventually(compared)
        assert not any(b"secret" in dictionary for text, dictionary in used if b"open" in text)
        assert not any(b"open" in dictionary for text, dictionary in used if b"secret" in text)


async def test_the_past_of_a_deleted_private_board_stays_closed(valkey_url: str) -> None:
    """A later public board with the same id has only its own past."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    owner = bearer(await make_key(settings, "owner", verbs=("admin", "post")))
    async with run_server(settings, []) as url, httpx.AsyncClient(base_url=url, timeout=_PATIENCE) as stranger:
        async with httpx.AsyncClient(base_url=url, headers=dict([owner]), timeout=_PATIENCE) as client:
            choices = {"types": ["june"], "window": "forever"}
            made = await client.put("/v1/boards/june", json={**choices, "visibility": "private"})
            assert made.status_code == 201, made.text
            await post(client, {"key": "a-secret", "board": "june"})
            await asyncio.sleep(0.01)
            then = datetime.now(UTC)
            text = then.isoformat()
            before = await client.get("/v1/boards/june", params={"as_of": text})
            assert [record["key"] for record in before.json()["records"]] == ["a-secret"], before.text
            assert (await client.delete("/v1/boards/june")).is_success
            made = await client.put("/v1/boards/june", json={**choices, "visibility": "public"})
            assert made.status_code == 201, made.text
            await post(client, {"key": "b", "board": "june"})
        history = {"from": text, "to": (then + timedelta(milliseconds=1)).isoformat(), "step": "1s", "key": "a-secret"}
        for path, query in (
            ("/v1/boards/june", {"as_of": text}),
            ("/boards/june", {"as_of": text}),
            ("/v1/boards/june/records/a-secret", {"as_of": text}),
            ("/v1/boards/june/records/a-secret/explanation", {"as_of": text}),
            ("/v1/boards/june/history", history),
        ):
            answer = await stranger.get(path, params=query)
            assert answer.status_code == 404, (path, answer.text)
            assert '"score"' not in answer.text, path
        now = (datetime.now(UTC)).isoformat()
        after = await stranger.get("/v1/boards/june", params={"as_of": now})
        assert [record["key"] for record in after.json()["records"]] == ["b"], after.text
        since = (await stranger.get("/v1/boards/june/history")).json()["since"]
        assert datetime.fromisoformat(since) > then, "a stranger sees since when there was a board with this id"
