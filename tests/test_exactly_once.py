"""Events count exactly once, whatever is lost: proxies drop replies between producer, server and store."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.checked import checked
from tests.harness.invariants import drifted
from tests.harness.proxy import lossy
from tests.harness.server import define, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

pytestmark = pytest.mark.fault

EVENTS, CONNECTIONS = 10_000, 16
Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Sender:
    """A producer on one connection, which reconnects when necessary and repeats each body until it has an answer."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._opened: Opened | None = None
        self.counts: Counter[str] = Counter()
        self.tries = 0

    async def send(self, events: list[dict[str, object]]) -> None:
        """Post a body until it is answered with 200."""
        body = msgspec.json.encode(events)
        while True:
            self.tries += 1
            with suppress(ConnectionError, EOFError, TimeoutError):
                async with asyncio.timeout(10):
                    status, answer = await self._post(body)
                if status == 200:
                    self.counts.update(accepted=answer["accepted"], duplicate=answer["duplicate"])
                    assert answer["rejected"] == []
                    return
                assert status == 503, answer
                self.counts[answer["code"]] += 1
                continue
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened[1].close()
        self._opened = None

    async def _post(self, body: bytes) -> tuple[int, dict[str, Any]]:
        if self._opened is None:
            self._opened = await asyncio.open_connection(self._address.hostname, self._address.port)
        reader, writer = self._opened
        head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        return int(lines[0].split()[1]), msgspec.json.decode(await reader.readexactly(length))


def make_events() -> tuple[list[dict[str, object]], Counter[str]]:
    """Events with ids, and their totals by member."""
    chance = random.Random(7)
    totals: Counter[str] = Counter()
    events: list[dict[str, object]] = []
    for number in range(EVENTS):
        member, amount = f"k{chance.randrange(500)}", chance.randint(1, 5)
        totals[member] += amount
        events.append({"key": member, "amount": amount, "id": f"{number}", "source": f"s{number % 3}"})
    return events, totals


async def send_twice(url: str, events: list[dict[str, object]]) -> list[Sender]:
    """Send each event twice, shuffled, in bodies of one to forty, over sixteen connections."""
    chance = random.Random(3)
    queue = events * 2
    chance.shuffle(queue)
    senders = [Sender(url) for _ in range(CONNECTIONS)]

    async def work(sender: Sender) -> None:
        while queue:
            size = chance.choice([1, 1, 5, 20, 40])
            body, queue[:] = queue[-size:], queue[:-size]
            await sender.send(body)
        sender.close()

    await asyncio.gather(*map(work, senders))
    return senders


async def checked_totals(settings: Settings, url: str) -> dict[str, int]:
    """Check a store with `live check` and by brute force, and return its ranking."""
    store, keys = connect(url, settings), Keys(settings.key_prefix, "posts")
    try:
        report = await checked(store, settings, rolling_board())
        assert report.clean, report
        assert await drifted(store, keys) == []
        ranking: Any = await store.zrange(keys.ranking, 0, -1, withscores=True)
        return {member.decode(): int(score) for member, score in ranking}
    finally:
        await store.aclose()


def total_counts(senders: Iterable[Sender]) -> Counter[str]:
    """The counts of all senders together."""
    return sum((sender.counts for sender in senders), Counter[str]())


async def test_ten_thousand_events_sent_twice_count_once(own_store: StoreProcess) -> None:
    """A proxy drops a third of all answers. Still, each event counts once, and the check finds no drift."""
    settings = fresh_settings(own_store.url)
    events, totals = make_events()
    async with run_server(settings, [rolling_board()]) as server, lossy(server, 1 / 3, 5, answers_only=True) as proxy:
        senders = await send_twice(proxy.url, events)
        assert await checked_totals(settings, own_store.url) == totals
    counts = total_counts(senders)
    assert counts["accepted"] + counts["duplicate"] == 2 * EVENTS
    assert counts["accepted"] <= EVENTS  # if the answer to the first try was lost, the next answer says `duplicate`
    assert proxy.lost_answers > 200
    assert sum(sender.tries for sender in senders) > proxy.lost_answers


async def test_answers_lost_by_servers_and_the_store(own_store: StoreProcess, tmp_path: Path) -> None:
    """Two servers and their store lose answers, each behind a lossy proxy. A server recognizes its own retries."""
    events, totals = make_events()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(lossy(own_store.url, 0.05, 1, tmp_path, answers_only=True))
        settings = fresh_settings(proxy.url, store_timeout=2, write_deadline=5)
        await define(settings, [rolling_board()], own_store.url)
        urls = []
        for seed in range(2):
            server = await stack.enter_async_context(run_server(settings, None))
            lossy_server = await stack.enter_async_context(lossy(server, 1 / 3, seed, answers_only=True))
            urls.append(lossy_server.url)
        counts: Counter[str] = Counter()
        for senders in await asyncio.gather(*(send_twice(url, events) for url in urls)):
            counts += total_counts(senders)
        assert await checked_totals(settings, own_store.url) == totals
    assert counts["accepted"] + counts["duplicate"] == 4 * EVENTS
    assert proxy.lost_answers > 10


async def test_events_without_ids_count_once_if_the_store_loses_answers(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """The server retries. When the server answers 503 `store_unavailable`, nothing was counted."""
    events, _ = make_events()
    totals: Counter[str] = Counter()
    for event in events:
        del event["id"]
        totals[str(event["key"])] += 2 * int(str(event["amount"]))
    async with lossy(own_store.url, 0.05, 1, tmp_path, answers_only=True) as proxy:
        settings = fresh_settings(proxy.url, store_timeout=2, write_deadline=5)
        await define(settings, [rolling_board()], own_store.url)
        async with run_server(settings, None) as url:
            counts = total_counts(await send_twice(url, events))
        assert await checked_totals(settings, own_store.url) == totals
    assert (counts["accepted"], counts["duplicate"], counts["outcome_unknown"]) == (2 * EVENTS, 0, 0)
    assert proxy.lost_answers > 10
