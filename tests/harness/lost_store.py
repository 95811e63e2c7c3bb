"""Servers whose store loses data, and attempts to have something acknowledged nevertheless."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx

from live.domain.producer import Scope
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import valkey
from tests.harness.waiting import eventually
from tests.harness.workers import children

CONTEST: Final[dict[str, Any]] = {"types": ["vote"], "window": "forever", "votes": {"per_key": 1, "registered": True}}
HAMMER: Final = 1.0  # seconds
CLOUDEVENT: Final = b'{"specversion": "1.0", "id": "1", "source": "s", "type": "like", "subject": "k"}'


class Attempt:
    """A request with which a client could get an acknowledgement from the server."""

    def __init__(self, method: str, path: str, headers: dict[str, str] | None = None, **body: Any) -> None:
        self.method = method
        self.path = path
        self.headers = headers or {}
        self.body = body

    async def __call__(self, client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(self.method, self.path, headers=self.headers, **self.body)


ATTEMPTS: Final = [
    Attempt("POST", "/v1/events", json={"key": "k"}),
    Attempt("POST", "/v1/events", json=[{"key": "k", "id": "1"}, {"key": "j", "type": "vote", "actor": "a"}]),
    Attempt("POST", "/v1/events", {"Idempotency-Key": "new"}, json={"key": "k"}),
    Attempt("POST", "/v1/events", {"Content-Type": "application/cloudevents+json"}, content=CLOUDEVENT),
    Attempt("PUT", "/v1/boards/fresh", json={"types": ["kiss"]}),
    Attempt("PUT", "/v1/boards/contest", json={**CONTEST, "title": "More"}),
    Attempt("PATCH", "/v1/boards/contest", json={"title": "Most"}),
    Attempt("DELETE", "/v1/boards/contest"),
    Attempt("PUT", "/v1/boards/contest/records/Ben", json={}),
    Attempt("PATCH", "/v1/boards/posts/records/k", json={"hidden": True}),
    Attempt("DELETE", "/v1/boards/contest/records/Ada"),
]  # fmt: skip


EVENTS: Final = [attempt for attempt in ATTEMPTS if attempt.path == "/v1/events"]


def is_acknowledged(response: httpx.Response) -> bool:
    """Whether the server accepted something."""
    if response.request.url.path == "/v1/events":
        return response.status_code == 200 and response.json()["accepted"] > 0
    return response.status_code < 400


def http(url: str, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """A client that opens a connection for each request, so that requests reach all workers.

    Its timeout is long, because workers take time to start.
    """
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, headers=headers or {}, timeout=180, limits=limits)


async def hammer(
    url: str, headers: dict[str, str], duration: float = HAMMER, attempts: Sequence[Attempt] = ATTEMPTS
) -> list[str]:
    """Repeat the attempts over many connections for `duration` seconds; returns what was acknowledged."""
    acknowledged: list[str] = []
    end = time.monotonic() + duration

    async def send(client: httpx.AsyncClient, attempt: Attempt) -> None:
        while time.monotonic() < end:
            with suppress(httpx.TransportError):  # the worker that had the connection was killed
                response = await attempt(client)
                if is_acknowledged(response):
                    acknowledged.append(f"{attempt.method} {attempt.path}: {response.text}")

    async with http(url, headers) as client:
        await asyncio.gather(*(send(client, attempt) for attempt in attempts))
    return acknowledged


async def codes(url: str, headers: dict[str, str], attempts: Sequence[Attempt] = ATTEMPTS) -> set[tuple[int, str]]:
    """Make each attempt once, and return the statuses and problem codes of the answers."""
    async with http(url, headers) as client:
        responses = [await attempt(client) for attempt in attempts]
        return {(response.status_code, response.json().get("code", "")) for response in responses}


class Servers:
    """A real store, and a real server on it, with an API key if `keyed`."""

    def __init__(self, folder: Path, workers: int, *, keyed: bool) -> None:
        self.folder = folder
        self.store = valkey(folder / "store")
        self.settings = fresh_settings(self.store.url, workers=workers, log_level="warning")
        self.keyed = keyed
        self.headers: dict[str, str] = {}
        self.server = ServerProcess(self.settings, folder)

    async def begin(self) -> None:
        """Start the server and post a like. If there is an API key, also make the board `contest`."""
        self.store.start()
        await self.make_key()
        self.server.start()
        async with http(self.server.url, self.headers) as client:

            async def works() -> bool:
                return (await client.post("/v1/events", json={"key": "k"})).status_code == 200

            await eventually(works)
            if self.keyed:
                assert (await client.put("/v1/boards/contest", json=CONTEST)).status_code == 201

                async def knows() -> bool:  # another worker learns of the board a moment later
                    return (await client.put("/v1/boards/contest/records/Ada", json={})).status_code < 300

                await eventually(knows)

    async def make_key(self) -> None:
        """Create an API key that may post events and administer, if the tests use one."""
        if self.keyed:
            client = connect(self.store.url, self.settings)
            producers = ProducerStore(client)
            _, secret = await producers.add("shop", Scope(verbs=("post", "admin")))
            await client.aclose()
            self.headers = {"Authorization": f"Bearer shop.{secret}"}

    async def flush(self) -> None:
        """Delete all data."""
        client = connect(self.store.url, self.settings)
        await client.flushall()
        await client.aclose()

    async def lost_on_every_route(self) -> None:
        """Check that within five seconds, the server refuses every attempt because of the loss, and is not ready."""

        async def lost() -> bool:
            return await codes(self.server.url, self.headers) == {(503, "epoch_lost")}

        await eventually(lost, 5)
        async with http(self.server.url) as client:
            assert (await client.get("/readyz")).status_code == 503

    def children(self) -> list[int]:
        """The process ids of the workers."""
        assert self.server.process is not None
        return children(self.server.process.pid)

    def refused(self) -> str:
        """Start a server that must not start; returns its output."""
        self.server.spawn()
        assert self.server.process is not None
        assert self.server.process.wait(20) == 2, self.server.log()
        return self.server.log()


@contextmanager
def servers(folder: Path, workers: int, *, keyed: bool) -> Iterator[Servers]:
    """Servers that are stopped at the end."""
    (folder / "store").mkdir()
    made = Servers(folder, workers, keyed=keyed)
    try:
        yield made
    finally:
        if made.server.process is not None:
            made.server.process.kill()
            made.server.process.wait()
        if made.store.process is not None:
            made.store.kill()
