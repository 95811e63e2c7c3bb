"""Clients that send bodies faster than they are answered: what a process and each client holds is bounded."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from live.protocols.connection_limits import ConnectionLimits
from tests.harness.boards import rolling_board
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.wire import CHUNKED, Wire, chunks, connected, post, statuses

pytestmark = pytest.mark.security

MOST_BODY: Final = 1_000_000
MOST: Final = 4_000_000
BODY: Final = b'[{"key":"a"}]'.ljust(900_000)
STRANGER, OTHER, THIRD = "127.0.0.9", "127.0.0.8", "127.0.0.7"  # addresses of this machine


class Watch:
    """The limits of a server, and the most bytes of bodies: in total, per address and per connection."""

    def __init__(self) -> None:
        self.limits: Any = None
        self.total = self.of_address = self.of_connection = 0

    def note(self, limits: Any, held: int) -> None:
        """Note what is held now, where that is more than before."""
        self.limits = limits
        self.total = max(self.total, limits._bodies.held)
        self.of_address = max(self.of_address, *limits._bodies._held_by.values(), 0, 0)
        self.of_connection = max(self.of_connection, held)

    async def is_empty(self) -> bool:
        """Whether nothing is held, and nobody waits."""
        limits = self.limits
        return not (limits._bodies.held or limits._bodies.things or limits._waiting.held or limits.waiting)

    async def waits(self) -> bool:
        """Whether a body waits."""
        return self.limits is not None and self.limits.waiting > 0


@contextmanager
def watching() -> Iterator[Watch]:
    """Let the test watch the bodies of the server in this process."""
    watch, count = Watch(), ConnectionLimits._count

    def noting(limits: ConnectionLimits, connection: Any, held: int) -> None:
        count(limits, connection, held)
        watch.note(limits, held)

    with patch.object(ConnectionLimits, "_count", noting):
        yield watch


@asynccontextmanager
async def serving(store: str, **changes: Any) -> AsyncIterator[str]:
    """A server with small limits; slow requests do not time out."""
    limits = {"max_body": MOST_BODY, "max_unanswered": MOST, "rate": 0, **changes}
    with patch("live.protocols.connection_limits.REQUEST_TIMEOUT", 60.0):
        async with run_server(fresh_settings(store, **limits), [rolling_board()]) as url:
            yield url


async def begin(stack: AsyncExitStack, url: str, address: str, count: int, body: bytes = BODY) -> list[Wire]:
    """Return connections that have sent half of a body, or wait to send it."""
    wires = [await stack.enter_async_context(connected(url, source=address)) for _ in range(count)]
    for wire in wires:
        await wire.send(post(body)[: -len(body) // 2])
    return wires


async def test_one_address_holds_half_and_others_are_served(valkey_url: str) -> None:
    """Of eight unfinished bodies, the server reads two.

    It serves another client, and then the eight bodies when they go on.
    """
    with watching() as watch:
        async with serving(valkey_url) as url, AsyncExitStack() as stack:
            wires = await begin(stack, url, STRANGER, 8)
            await eventually(watch.waits)
            for _ in range(5):
                async with connected(url, source=OTHER) as wire:
                    await wire.send(post(BODY))
                    assert statuses([await wire.answer()]) == [200]
            assert watch.of_address == 2 * len(BODY)
            for wire in wires:
                wire.writer.write(BODY[len(BODY) // 2 :])
            assert [statuses([await wire.answer()]) for wire in wires] == [[200]] * 8
            await eventually(watch.is_empty)
        assert watch.total <= MOST


@pytest.mark.parametrize("target", ["/v1/events", "/v1/%65vents"])
@pytest.mark.parametrize("fields", [(), (CHUNKED,)], ids=["declared", "chunked"])
async def test_a_connection_that_sends_ahead_holds_two_bodies(
    valkey_url: str, target: str, fields: tuple[tuple[str, str], ...]
) -> None:
    """Thirty bodies arrive at once, are read as far as there is room for them, and are all answered."""
    sent = post(chunks(BODY) if fields else BODY, *fields, target=target) * 30
    with watching() as watch:
        async with serving(valkey_url) as url:
            async with connected(url, source=STRANGER) as wire:
                sending = asyncio.create_task(wire.send(sent))
                assert statuses(await wire.answers(30)) == [200] * 30
                await sending
            await eventually(watch.is_empty)
        assert len(BODY) <= watch.of_connection <= 2 * MOST_BODY


@pytest.mark.parametrize("target", ["/v1/events", "/v1/%65vents"])
async def test_clients_that_leave_hold_nothing(valkey_url: str, target: str) -> None:
    """The clients leave in the middle of a body, before the answer, or while they wait."""
    with watching() as watch:
        async with serving(valkey_url) as url:
            for part in (0.1, 0.5, 1):
                async with AsyncExitStack() as stack:
                    for _ in range(6):
                        wire = await stack.enter_async_context(connected(url, source=STRANGER))
                        sent = post(BODY, target=target) * 2
                        await wire.send(sent[: int(len(sent) * part)])
                        if part < 1:
                            wire.writer.transport.abort()
            await eventually(watch.is_empty)
            async with connected(url, source=STRANGER) as wire:
                await wire.send(post(BODY, target=target))
                assert statuses([await wire.answer()]) == [200]


async def test_a_body_that_waits_too_long_is_refused(valkey_url: str) -> None:
    """The body gets 503 with `Retry-After`. Admitted bodies are not affected."""
    with watching() as watch:
        async with serving(valkey_url) as url, AsyncExitStack() as stack:
            wires = await begin(stack, url, STRANGER, 3)
            await eventually(watch.waits)
            watch.limits.sweep_bodies(time.monotonic() + 59)
            assert await watch.waits()
            watch.limits.sweep_bodies(time.monotonic() + 61)
            answer = await wires[2].answer()
            assert (statuses([answer]), b"\r\nretry-after: 1\r\n" in answer) == ([503], True)
            for wire in wires[:2]:
                wire.writer.write(BODY[len(BODY) // 2 :])
                assert statuses([await wire.answer()]) == [200]
            await eventually(watch.is_empty)


async def test_slow_bodies_make_room_for_others(valkey_url: str) -> None:
    """Two addresses hold everything and send nothing.

    The slowest of their connections is closed to serve a third client.
    """
    with watching() as watch:
        async with serving(valkey_url) as url, AsyncExitStack() as stack:
            await begin(stack, url, STRANGER, 3)
            await begin(stack, url, OTHER, 3)
            await eventually(watch.waits)
            wire = await stack.enter_async_context(connected(url, source=THIRD))
            await wire.send(post(BODY))
            assert statuses([await wire.answer()]) == [200]
            assert watch.total <= MOST


async def test_too_many_waiting_connections_are_refused(valkey_url: str) -> None:
    """Of eleven connections with an unfinished body, the last gets 503, because too many bodies wait already."""
    async with serving(valkey_url) as url, AsyncExitStack() as stack:
        wires = await begin(stack, url, STRANGER, 11)
        answer = await wires[-1].answer()
        assert (statuses([answer]), b'"overloaded"' in answer) == ([503], True)


@pytest.mark.parametrize("most", [65_536, 1_500_000, 3_000_000])
async def test_a_small_budget_never_blocks(valkey_url: str, most: int) -> None:
    """A budget with room for few bodies, or for less than one body, always admits a body."""
    with patch("live.system.resources._ONE_READ", 1):
        async with serving(valkey_url, max_unanswered=most) as url, AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(connected(url)) for _ in range(5)]
            for wire in wires:
                wire.writer.write(post(BODY) * 3)
            for wire in wires:
                assert statuses(await wire.answers(3)) == [200] * 3


@pytest.mark.slow
@pytest.mark.parametrize("connections", [10, 40])
async def test_clients_that_send_ahead_do_not_fill_the_memory(
    valkey_url: str, tmp_path: Path, connections: int, effort: int
) -> None:
    """Each client sends bodies of 900 KB as fast as the server reads. Other clients are served meanwhile."""
    sent = post(BODY)
    server = ServerProcess(fresh_settings(valkey_url, rate=0), tmp_path)
    server.start()
    try:
        before = memory(server)
        async with AsyncExitStack() as stack:

            async def flood() -> None:
                wire = await stack.enter_async_context(connected(server.url, source=STRANGER))
                with suppress(ConnectionError):
                    for _ in range(25 * effort):
                        await wire.send(sent)

            floods = [asyncio.create_task(flood()) for _ in range(connections)]
            most = 0
            async with connected(server.url, source=OTHER) as wire:
                for _ in range(20 * effort):
                    await wire.send(post(b'{"key":"a"}'))
                    assert statuses([await wire.answer()]) == [200]
                    most = max(most, memory(server))
            for task in floods:
                task.cancel()
            await asyncio.gather(*floods, return_exceptions=True)
        assert most - before < 250_000_000
        await eventually(lambda: has_at_most(server, before + 60_000_000), 60)
    finally:
        server.stop()


def memory(server: ServerProcess) -> int:
    """The resident memory of the server in bytes."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) * 1024


async def has_at_most(server: ServerProcess, most: int) -> bool:
    """Return whether the server uses at most this much memory."""
    return memory(server) <= most
