"""Readers who are signed in to the admin page: a session has one reader, and looking up a cookie counts as a read."""

import asyncio
import weakref
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as connect_socket

from live.auth.authenticator import Authenticator
from live.auth.sessions import session_name
from live.domain.producer import Scope
from live.domain.reader import NO_BOARDS, NOBODY
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from live.store.registry.sessions import SessionStore
from tests.harness.admin import add_key, administrator
from tests.harness.boards import built, rolling_board
from tests.harness.mutation import replaced
from tests.harness.settings import fresh_settings, make_client
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

CLIENT = make_client()
COOKIE = "a" * 22


async def test_a_session_has_one_reader_and_an_unsure_one_is_forgotten(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests at the same time share the reader, which opens nothing once the session has ended.

    A reader that was found before the API keys were read is not kept.
    """
    monkeypatch.setattr("live.auth.sessions._EVERY", 0.01)
    settings = fresh_settings(valkey_url)
    store = connect(valkey_url, settings)
    authenticator = Authenticator(store, settings)
    signed_in, sessions = authenticator.signed_in, SessionStore(store)
    record, _ = await ProducerStore(store).add("chief", Scope(verbs=("admin",)))
    await sessions.add(session_name(COOKIE), "chief", record.secrets[0].fingerprint)
    header = f"{CLIENT.cookie('admin', '')}={COOKIE}"
    unsure = await signed_in.find(header, CLIENT)  # the API keys have not been read yet
    forgotten = weakref.ref(unsure)
    assert not unsure.is_sure
    del unsure
    assert forgotten() is None
    await authenticator.open()
    readers = list(await asyncio.gather(*(signed_in.find(header, CLIENT) for _ in range(2))))
    assert readers[0] is readers[1]
    assert "posts" in readers[0].opens
    assert await signed_in.find(f"{header}x", CLIENT) is NOBODY
    work = asyncio.create_task(signed_in.run())
    await sessions.end(session_name(COOKIE))

    async def has_ended() -> bool:
        return readers[0].opens is NO_BOARDS

    await eventually(has_ended)
    ended = weakref.ref(readers[0])
    readers.clear()
    await asyncio.sleep(0)
    assert ended() is None
    await stop(work)
    await store.aclose()


async def test_a_process_finds_a_session_for_a_socket_and_for_no_more_than_a_read(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake may be the first request of the session that the process gets.

    A request with a made-up cookie counts as a read, except at `/healthz`, `/readyz` and `/metrics`.
    """
    monkeypatch.setattr("live.auth.rates.READ_BURST", 10)
    settings = fresh_settings(valkey_url, read_rate=1)
    key, looks = await add_key(settings, "chief"), 0

    async def count(store: SessionStore, name: str, *, is_use: bool) -> Any:
        nonlocal looks
        looks += 1
        return await find(store, name, is_use=is_use)

    find = SessionStore.find
    secret = built(id="secret", title="", source=frozenset({"secret"}), visibility="private")
    async with administrator(settings, rolling_board(), secret, key=key) as browser, AsyncExitStack() as stack:
        stack.enter_context(replaced(SessionStore, "find", count))
        cookie = "; ".join(f"{name}={value}" for name, value in browser.client.cookies.items())
        socket = f"{str(browser.client.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/secret/live"
        viewer = await stack.enter_async_context(connect_socket(socket, additional_headers={"Cookie": cookie}))
        assert "secret" in str(await viewer.recv())
        assert looks == 1
        stranger = httpx.AsyncClient(base_url=browser.client.base_url)
        await stack.enter_async_context(stranger)
        made_up = {"Cookie": cookie.partition("=")[0] + "=" + "b" * 22}
        for path in ("/healthz", "/readyz", "/metrics"):
            await stranger.get(path, headers=made_up)
        assert looks == 1
        answers = [await stranger.post("/boards/posts/likes", headers=made_up) for _ in range(30)]
        refused = sum(answer.status_code == 429 for answer in answers)
        assert refused
        assert looks <= 1 + len(answers) - refused
