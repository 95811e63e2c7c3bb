"""Change notices: one for each change, and no gap without a report."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from live.domain.event import make_entry
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, connect
from live.store.connection.notices import Away, Changed, Channels, Missed, Notice, listen
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually


@asynccontextmanager
async def listening(
    store: str, others: Sequence[str] = ()
) -> AsyncIterator[tuple[list[Notice], Ledger, Store, Channels]]:
    """Yield the notices that are received for one board and for other channels, and the board's ledger."""
    settings = fresh_settings(store, store_timeout=0.5)
    client = connect(store, settings)
    ledger = Ledger(client, rolling_board(), settings)
    channels = Channels(
        {ledger.state.keys.channel: "posts"} | {f"{settings.key_prefix}:{{{name}}}": name for name in others}
    )
    received: list[Notice] = []

    async def receive() -> None:
        async for notice in listen(client, channels):
            received.append(notice)  # noqa: PERF401 - it is read while it grows

    receiving = asyncio.create_task(receive())
    try:
        yield received, ledger, client, channels
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        await client.aclose()


async def until(received: list[Notice], *wanted: Notice) -> None:
    """Wait until the wanted notices, and no other notices, have been received."""

    async def there() -> bool:
        return received == list(wanted)

    await eventually(there)


async def test_each_change_is_announced_once(any_store: str) -> None:
    """A batch has one notice, whatever its size. The first notice is a gap."""
    async with listening(any_store) as (received, ledger, _, _):
        await until(received, Missed(["posts"]))
        await ledger.writer.add([make_entry("a", 1, None), make_entry("b", 1, None)])
        await ledger.writer.add([make_entry("a", 1, None)])

        await until(received, Missed(["posts"]), Changed("posts"), Changed("posts"))


async def test_a_notice_of_any_version_is_a_change(any_store: str) -> None:
    """The content of a notice does not matter."""
    async with listening(any_store) as (received, ledger, client, _):
        await until(received, Missed(["posts"]))
        channel = ledger.state.keys.channel
        for message in (b"", b"0123abcd:1", b"\x98\xa80123abcd\x01\xa0\x01\x01\x91\xa1a\x91\x01\x91\x01"):
            await client.call(channel, "SPUBLISH", channel, message)
        await until(received, Missed(["posts"]), *[Changed("posts")] * 3)


async def test_a_cut_connection_is_a_gap(any_store: str) -> None:
    """redis-py resubscribes without a report, so the listener reports the gap itself."""
    async with listening(any_store) as (received, ledger, client, _):
        await until(received, Missed(["posts"]))
        await client.each("CLIENT", "KILL", "TYPE", "pubsub")

        async def again() -> bool:
            return received.count(Missed(["posts"])) == 2

        await eventually(again)
        await ledger.writer.add([make_entry("a", 1, None)])

        async def changed() -> bool:
            return received[-1] == Changed("posts")

        await eventually(changed)


async def test_a_listener_that_ends_closes_its_connections(any_store: str) -> None:
    """Otherwise, the store would go on sending notices that nobody reads."""
    other = connect(any_store, fresh_settings(any_store))
    async with listening(any_store) as (received, ledger, _, _):
        channel = ledger.state.keys.channel
        await until(received, Missed(["posts"]))
        assert await other.call(channel, "PUBSUB", "SHARDNUMSUB", channel) == [channel.encode(), 1]

    async def is_closed() -> bool:
        return bool(await other.call(channel, "PUBSUB", "SHARDNUMSUB", channel) == [channel.encode(), 0])

    await eventually(is_closed)
    await other.aclose()


async def test_each_board_has_one_gap_per_connection(any_store: str) -> None:
    """Each of a thousand boards has a gap at first, and another gap after the connection was cut.

    The next change is received.
    """
    names = [f"b{number}" for number in range(999)]
    async with listening(any_store, names) as (received, ledger, client, _):

        def missed() -> list[str]:
            return sorted(board for notice in received if isinstance(notice, Missed) for board in notice.boards)

        for _ in range(2):

            async def all_missed() -> bool:
                return missed() == sorted(["posts", *names])

            await eventually(all_missed)
            received.clear()
            await ledger.writer.add([make_entry("a", 1, None)])
            await until(received, Changed("posts"))
            received.clear()
            await client.each("CLIENT", "KILL", "TYPE", "pubsub")


async def test_without_channels_there_is_no_connection(any_store: str) -> None:
    """Adding the first board opens a connection. Removing the last board closes it."""
    async with listening(any_store) as (received, ledger, _, channels):
        await until(received, Missed(["posts"]))
        for _ in range(2):
            channels.remove(ledger.state.keys.channel)

            async def none_is_open() -> bool:
                return channels.ears is not None and not channels.ears._ears

            await eventually(none_is_open)
            received.clear()
            channels.add(ledger.state.keys.channel, "posts")
            await until(received, Missed(["posts"]))
            await ledger.writer.add([make_entry("a", 1, None)])
            await until(received, Missed(["posts"]), Changed("posts"))


@pytest.mark.fault
async def test_a_silent_store_is_unavailable(own_store: StoreProcess) -> None:
    """A ping with a deadline detects a store that is silent. When the store wakes, notices arrive again."""
    async with listening(own_store.url) as (received, _, _, _):
        await until(received, Missed(["posts"]))
        with own_store.frozen():

            async def away() -> bool:
                return isinstance(received[-1], Away)

            await eventually(away)

        async def back() -> bool:
            return received[-1] == Missed(["posts"])

        await eventually(back)


@pytest.mark.fault
async def test_notices_continue_after_a_restart_of_the_store(own_store: StoreProcess) -> None:
    """The listener first reports that the store is unavailable, and then a gap."""
    async with listening(own_store.url) as (received, _, _, _):
        await until(received, Missed(["posts"]))
        own_store.kill()

        async def away() -> bool:
            return isinstance(received[-1], Away)

        await eventually(away)
        own_store.start()

        async def back() -> bool:
            return received[-1] == Missed(["posts"])

        await eventually(back)


async def test_channels_can_be_added_and_removed(any_store: str) -> None:
    """A new channel starts with a gap. A removed channel has no notices. A new connection has the same channels."""
    settings = fresh_settings(any_store, store_timeout=0.5)
    client = connect(any_store, settings)
    ledgers = {name: Ledger(client, rolling_board(board=name), settings) for name in ("one", "two")}
    channels = Channels({ledgers["one"].state.keys.channel: "one"})
    received: list[Notice] = []

    async def receive() -> None:
        async for notice in listen(client, channels):
            received.append(notice)  # noqa: PERF401 - it is read while it grows

    receiving = asyncio.create_task(receive())
    await until(received, Missed(["one"]))
    channels.add(ledgers["two"].state.keys.channel, "two")
    await until(received, Missed(["one"]), Missed(["two"]))
    channels.remove(ledgers["one"].state.keys.channel)
    await ledgers["one"].writer.add([make_entry("a", 1, None)])
    await ledgers["two"].writer.add([make_entry("a", 1, None)])
    await until(received, Missed(["one"]), Missed(["two"]), Changed("two"))
    received.clear()
    await client.each("CLIENT", "KILL", "TYPE", "pubsub")
    await until(received, Missed(["two"]))
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await client.aclose()
