"""Random schedules of waits, disconnects, changes and deletions: afterwards nobody is counted as a viewer."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from live.fanout.hub import Hub
from live.metrics import VIEWERS
from live.protocols.http.pipeline import Get
from live.web.reads.long_polling import Waiting
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.watching import Served, served, until
from tests.harness.wire import Wire, connected, request

STEPS = 60
BOARDS = ("posts", "june")
HEALTH = request("GET", "/healthz")


@pytest.fixture(autouse=True)
def _count_from_zero() -> Iterator[None]:
    """Forget the viewers that mutants leave behind, because all servers of this process share the gauge."""
    yield
    VIEWERS.clear()


class Schedule:
    """Clients that do one random thing after another. `owed` has the clients that must still be answered."""

    def __init__(self, here: Served, stack: AsyncExitStack, seed: int) -> None:
        self.here = here
        self.chance = random.Random(seed)
        self.stack = stack
        self.wires: list[Wire] = []
        self.owed: list[Wire] = []

    async def run(self, *, all_leave: bool = False) -> None:
        """Do `STEPS` random things.

        At the end all clients leave, or both boards change, so that every client is answered.
        """
        await self.create()
        actions: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.come, self.come, self.come, self.leave, self.half_close, self.change, self.delete,
        ]  # fmt: skip
        for _ in range(STEPS):
            await self.chance.choice(actions)()
            await asyncio.sleep(self.chance.choice((0, 0, 0.005, 0.02)))
        if all_leave:
            for _ in range(10):
                await self.come()
            while self.owed:
                await self.leave()
        else:
            for board in BOARDS:
                await self.change(board)

    async def create(self) -> None:
        """Create the board that is deleted now and then."""
        created = await self.here.client.put("/v1/boards/june", json={"types": ["june"], "idle_ttl": "1h"})
        assert created.status_code == 201
        await self.change("june")

    async def come(self) -> None:
        """Let a new client wait with the current tag, an old tag or a foreign tag, maybe beside another request."""
        board, chance = self.chance.choice(BOARDS), self.chance
        tag = (await self.here.client.get(f"/v1/boards/{board}")).headers["etag"]
        epoch = tag.partition(":")[0]
        known = chance.choice((tag, tag, tag, f"W/{tag}", f'{epoch}:0"', '"x"'))
        length = chance.choice(("1ms", "20ms", "60s", "60s"))
        method = chance.choice(("GET", "GET", "GET", "HEAD"))
        sent = request(
            method, f"/v1/boards/{board}?wait={length}&limit={chance.randint(1, 3)}", ("If-None-Match", known),
            *((("Accept-Encoding", "gzip"),) if chance.random() < 0.5 else ()),
        )  # fmt: skip
        wire = await self.stack.enter_async_context(connected(self.here.url))
        await wire.send(*chance.choice(([sent], [sent + HEALTH], [HEALTH + sent], [sent[:9], sent[9:]])))
        self.wires.append(wire)
        self.owed.append(wire)

    async def leave(self) -> None:
        """Let a client disconnect."""
        if self.owed:
            self.owed.pop(self.chance.randrange(len(self.owed))).writer.transport.abort()

    async def half_close(self) -> None:
        """Let a client close its sending direction."""
        if self.owed:
            self.owed.pop(self.chance.randrange(len(self.owed))).writer.write_eof()

    async def change(self, board: str = "") -> None:
        """Change a board."""
        board = board or self.chance.choice(BOARDS)
        await post(self.here.client, {"board": board, "key": str(self.chance.randint(1, 5))})

    async def delete(self) -> None:
        """Delete the second board, and create it again."""
        assert (await self.here.client.delete("/v1/boards/june")).status_code == 204
        await self.create()


async def counts_return(store: str, seed: int) -> None:
    """Run a schedule, and check every count at its end, and that nobody waits for an answer that was due."""
    before = [VIEWERS.labels(board)._value.get() for board in BOARDS]  # viewers of other tests
    async with AsyncExitStack() as stack, served(store, anonymous_admin=True) as here:
        schedule = Schedule(here, stack, seed)
        await schedule.run(all_leave=not seed % 2)
        hub = here.live.hub
        await until(lambda: here.watching == 0, 10)
        for wire in schedule.owed:
            assert (await wire.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 ")
        assert not hub._counts
        for board in BOARDS:
            channel = hub.channels[board]
            assert (channel.viewers, list(channel._variants)) == (0, [])
        assert [VIEWERS.labels(board)._value.get() for board in BOARDS] == before
        totals = await here.live.presence.report({board: hub.channels[board].viewers for board in BOARDS})
        assert not any(totals.values())
        for wire in schedule.wires:
            wire.writer.transport.abort()
        await here.client.aclose()
        limits = here.live.limits
        # Only connections of which the client has closed one direction are left.
        await until(lambda: limits._count == len(limits._lingering), 10)


@pytest.mark.parametrize("seed", range(6))
async def test_nobody_is_counted_after_a_random_schedule(valkey_url: str, seed: int) -> None:
    """Waits end by a change, by their time, by a deletion of the board, or when the client leaves."""
    await counts_return(valkey_url, seed)


async def test_a_drain_ends_a_random_schedule(valkey_url: str) -> None:
    """The server stops while clients wait. Each client gets an answer, and nobody is counted any more.

    `shutdown_timeout` is longer than the second for which the server lets clients read their last answers.
    """
    async with AsyncExitStack() as stack:
        async with served(valkey_url, anonymous_admin=True, shutdown_timeout=10) as here:
            schedule = Schedule(here, stack, 99)
            await schedule.run()
            await asyncio.gather(*(schedule.come() for _ in range(20)))
        hub = here.live.hub
        for wire in schedule.owed:
            with suppress(ConnectionResetError):
                assert (await wire.rest()).startswith(b"HTTP/1.1 ")
        assert (here.watching, hub._counts.total()) == (0, 0)


def _forget_to_leave(waiting: Waiting) -> None:
    """End a wait without leaving the hub."""
    waiting._viewer = None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "mutant"),
    [
        (Get, "disconnect", lambda _get: None),
        (Waiting, "leave", _forget_to_leave),
        (Hub, "leave", lambda _hub, viewer, _address: viewer.channel.leave(viewer)),
    ],
    ids=["a disconnect is ignored", "a wait never leaves the hub", "the hub still counts a viewer that has left"],
)
async def test_a_viewer_that_is_left_behind_is_noticed(
    valkey_url: str, owner: object, name: str, mutant: Callable[..., object]
) -> None:
    """Each mutant forgets to remove a viewer."""
    with replaced(owner, name, mutant), must_be_caught(name):
        await counts_return(valkey_url, 2)
