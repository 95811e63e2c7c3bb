"""`live send` with an API key, and the advice that it gives without a correct API key. It never shows the secret."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from live.client import target
from live.domain.producer import Scope
from live.errors import SetupError
from live.send.run import SendOptions
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.forked import run_live
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.send.support import TOO_LARGE, many, noted, scores, send, sums, write

pytestmark = pytest.mark.slow

SECRET = "do-not-show-this-to-anybody"  # noqa: S105


async def add_key(settings: Settings, producer: str, scope: Scope) -> str:
    """The API key of a new producer."""
    client = connect(settings.store, settings)
    _, secret = await ProducerStore(client).add(producer, scope)
    await client.aclose()
    return f"{producer}.{secret}"


@pytest.fixture
def settings(valkey_url: str) -> Settings:
    """Settings of the server of one test."""
    return fresh_settings(valkey_url)


@pytest.fixture
async def key(settings: Settings) -> str:
    """The API key of a producer that may send events."""
    return await add_key(settings, "shop", Scope())


@pytest.fixture
async def url(settings: Settings, key: str) -> AsyncIterator[str]:
    """The address of a server that requires an API key."""
    assert key
    async with run_server(settings, [rolling_board()]) as address:
        yield address


async def until_known(url: str, key: str) -> None:
    """Wait until the running server has read a new API key from the store."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as client:

        async def is_known() -> bool:
            return (await client.post(f"{url}/v1/events", json=[])).status_code != 401

        await eventually(is_known)


async def run_send(*arguments: str, **environment: str) -> tuple[int | None, str]:
    """Run the command; returns its exit status and its output."""
    ended = await asyncio.to_thread(run_live, "send", *arguments, environment={**os.environ, **environment})
    return ended.returncode, ended.stdout + ended.stderr


async def test_a_run_sends_its_api_key(tmp_path: Path, url: str, key: str) -> None:
    """The API key comes from the environment or from the flag. The flag has precedence."""
    path = str(write(tmp_path / "e.ndjson", many(1500)))
    status, printed = await run_send(path, "--server", url, LIVE_KEY=f" {key}\n")
    assert status == 0
    assert "1,500 events sent: 1,500 counted" in printed
    status, printed = await run_send(path, "--server", url, "--key", key, LIVE_KEY=f"shop.{SECRET}")
    assert (status, key in printed) == (0, False)
    assert await scores(url) == sums([*many(1500), *many(1500)])


async def test_without_an_address_a_run_sends_to_the_port_of_the_settings(tmp_path: Path, url: str, key: str) -> None:
    """A server on this machine needs no `--server`, whatever its port is."""
    path = str(write(tmp_path / "e.ndjson", many(10)))
    status, printed = await run_send(path, LIVE_KEY=key, LIVE_PORT=url.rpartition(":")[2])
    assert (status, printed) == (0, "10 events sent: 10 counted, 0 counted before.\n")
    assert await scores(url) == sums(many(10))


async def test_without_a_correct_api_key_the_command_gives_advice(tmp_path: Path, url: str, key: str) -> None:
    """The advice is one line, and the exit status is 2. With the correct API key, the whole file is sent."""
    path = str(write(tmp_path / "e.ndjson", many(10)))
    for environment, message in (
        ({}, "live: the server requires an API key (401: "),
        ({"LIVE_KEY": f"shop.{SECRET}"}, "live: the server does not accept this API key of producer 'shop' (401: "),
    ):
        status, printed = await run_send(path, "--server", url, **environment)
        assert (status, printed.count("\n")) == (2, 1)
        assert printed.startswith(message)
        assert "`live keys add" in printed
        assert SECRET not in printed
    assert (await send(Path(path), url, key=key)).accepted == 10


async def test_an_api_key_for_something_else_is_reported(tmp_path: Path, url: str, settings: Settings) -> None:
    """An API key that may not send events stops the run. With an API key for another board, each event is rejected."""
    path = write(tmp_path / "e.ndjson", many(10))
    other = await add_key(settings, "boss", Scope(verbs=("admin",)))
    elsewhere = await add_key(settings, "else", Scope(boards=("other",)))
    for added in (other, elsewhere):
        await until_known(url, added)
    with pytest.raises(SetupError, match=r"does not allow this for producer 'boss' \(403: .*--verbs post"):
        await send(path, url, key=other)
    assert (await send(path, url, key=elsewhere)).rejected == {"board_forbidden": 10}


async def test_another_api_key_of_the_same_producer_continues(
    tmp_path: Path, url: str, settings: Settings, key: str
) -> None:
    """No event counts twice. Another producer may continue too, if no batch is in doubt."""
    path = tmp_path / "e.ndjson"
    path.write_bytes(b'{"key":"a"}\n' * 1000 + TOO_LARGE)
    with pytest.raises(SetupError, match="the server refused the request with 413"):
        await send(path, url, key=key)
    note = noted(SendOptions(path=path, url=url))
    assert note is not None
    assert (note.sent, note.reach, note.producer) == (1000, 0, "shop")
    for other in (await add_key(settings, "shop", Scope()), await add_key(settings, "tram", Scope())):
        await until_known(url, other)
        with pytest.raises(SetupError, match="the server refused the request with 413"):
            await send(path, url, key=other)
    assert await scores(url) == {"a": 1000}


@pytest.mark.parametrize(
    "answer", [b"HTTP/9 what\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
)
async def test_the_secret_is_not_shown_if_something_else_answers(
    tmp_path: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message repeats neither the answer nor the request."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    monkeypatch.setattr(target, "_FIRST_PATIENCE", 0.3)
    path = write(tmp_path / "e.ndjson", many(3))
    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        with pytest.raises(SetupError) as caught:
            await send(path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", key=f"shop.{SECRET}")
    assert SECRET not in str(caught.value)
    assert "no Live Board server answers" in str(caught.value) or "is not a Live Board" in str(caught.value)
