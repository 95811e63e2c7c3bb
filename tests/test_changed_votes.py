"""Votes that change: each voter keeps exactly one vote, and no frame shows another number of votes."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.choices import Votes
from live.domain.event import Entry
from live.domain.window import Forever
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.write.writer import Added, BoardWriter
from live.store.connection.client import connect
from tests.harness import wire
from tests.harness.boards import built
from tests.harness.checked import checked
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.network import free_port
from tests.harness.producer import post
from tests.harness.proxy import lossy
from tests.harness.server import ServerProcess, define, run_server, server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually

CONTEST: Final = '[[board]]\nid = "cup"\nwindow = "forever"\nvotes = { per_key = 1, per_actor = 1 }\n'
SONGS: Final = [f"song {number}" for number in range(8)]
QUICK: Final = {"conflation_interval": 0.01, "store_timeout": 2, "write_deadline": 5}


class Voter:
    """A voter who changes its mind. Each request is repeated, at another server, until it has an answer."""

    def __init__(self, name: str, urls: Sequence[str], chance: random.Random) -> None:
        self.name = name
        self.choice = ""
        self._urls = urls
        self._chance = chance
        self._changes = 0

    async def change(self) -> None:
        """Vote, or change the vote: in one event, or in two events of one body, in any order."""
        song = self._chance.choice([song for song in SONGS if song != self.choice])
        give: dict[str, Any] = {"key": song, "actor": self.name}
        body = [give]
        if self.choice and self._chance.random() < 0.5:
            body = [give, {"key": self.choice, "actor": self.name, "amount": -1}]
            self._chance.shuffle(body)
        elif self.choice:
            body = [{**give, "replaces": self.choice}]
        self._changes += 1
        sent = wire.post(msgspec.json.encode(body), ("Idempotency-Key", f'"{self.name}-{self._changes}"'))
        while True:
            with suppress(OSError, EOFError):  # also after a timeout
                async with wire.connected(self._chance.choice(self._urls)) as connection:
                    await connection.send(sent)
                    head, _, answer = (await connection.answer()).partition(b"\r\n\r\n")
                if head.startswith(b"HTTP/1.1 200 "):
                    assert msgspec.json.decode(answer)["rejected"] == [], (body, answer)
                    self.choice = song
                    return
                assert head.startswith(b"HTTP/1.1 503 "), answer
            await asyncio.sleep(0.02)


class Counting(ModelViewer):
    """A viewer that notes how many votes each of its frames shows, once everybody has voted."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: set[tuple[int, int | None]] | None = None

    def receive(self, text: str | bytes) -> None:
        super().receive(text)
        if self.totals is not None:
            self.totals.add((sum(record.score for record in self.records), self.total_score))


@asynccontextmanager
async def watching(urls: Sequence[str]) -> AsyncIterator[list[Counting]]:
    """A viewer of each server while in the context."""
    viewers = [Counting() for _ in urls]
    watched = [f"{url.replace('http', 'ws')}/v1/boards/cup/live" for url in urls]
    tasks = [asyncio.create_task(keep_watching(*each)) for each in zip(watched, viewers, strict=True)]
    try:
        yield viewers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def change_minds(
    settings: Settings,
    store: str,
    urls: Sequence[str],
    watched: Sequence[str],
    voters: int,
    changes: int,
    *,
    is_enough: Callable[[], bool] = lambda: True,
) -> None:
    """Let voters vote and change their minds at random, `changes` times each, and until `is_enough`.

    Compare the board with a plain count.
    """
    chance = random.Random(11)
    people = [Voter(f"voter-{number}", urls, random.Random(number)) for number in range(voters)]
    async with watching(watched) as viewers:
        await asyncio.gather(*(person.change() for person in people))

        async def see_all() -> bool:
            return all(viewer.total_score == voters for viewer in viewers)

        await eventually(see_all)
        for viewer in viewers:
            viewer.totals = set()

        async def work(person: Voter) -> None:
            for number in itertools.count(1):
                await person.change()
                if number >= changes and is_enough():
                    return
                await asyncio.sleep(chance.random() * 0.02)

        await asyncio.gather(*map(work, people))
        expected = Counter(person.choice for person in people)

        async def see_the_end() -> bool:
            return all({each.member: each.score for each in viewer.records} == expected for viewer in viewers)

        await eventually(see_the_end)
        for viewer in viewers:
            assert viewer.totals, "the viewer has received no frame"
            assert viewer.totals == {(voters, voters)}, "a frame has more or fewer votes than there are voters"
        await must_hold(settings, store, expected)


async def must_hold(settings: Settings, store: str, expected: Counter[str]) -> None:
    """Check that the store has one vote of each voter, and the sums of a plain count."""
    client: Any = connect(store, settings)
    try:
        keys = Keys(settings.key_prefix, "cup")
        report = await checked(client, settings, next(iter(parse_boards(CONTEST))))
        assert report.clean, report
        votes = await client.hgetall(keys.table(None).votes)
        assert set(votes.values()) == {b"1"}, "a voter has more or fewer votes than one"
        assert len(votes) == 2 * expected.total()
    finally:
        await client.aclose()


async def with_losses(store: StoreProcess, folder: Path, voters: int, changes: int) -> None:
    """Run two servers. The store loses answers to the servers, and the servers lose answers to the voters."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(lossy(store.url, 0.02, 1, folder, answers_only=True))
        settings = fresh_settings(proxy.url, **QUICK)
        await define(settings, parse_boards(CONTEST), store.url)
        servers = [await stack.enter_async_context(run_server(settings, None)) for _ in range(2)]
        lossy_ones = [await stack.enter_async_context(lossy(url, 0.1, 7, answers_only=True)) for url in servers]
        await change_minds(settings, store.url, [one.url for one in lossy_ones], servers, voters, changes)


@pytest.mark.fault
async def test_voters_who_change_their_minds_keep_one_vote_each(own_store: StoreProcess, tmp_path: Path) -> None:
    """Answers get lost, and every request is repeated until it is answered."""
    await with_losses(own_store, tmp_path, voters=40, changes=10)


async def in_two_scripts(
    writer: BoardWriter, entries: Sequence[Entry], senders: Any = (), **options: Any
) -> Added:  # a mutant of `BoardWriter.add`
    """Take votes back in one script, and give the new ones in another."""
    taken = [
        (extra.replaces, -amount, time, None, msgspec.structs.replace(extra, replaces=None))
        for _, amount, time, _, extra in entries
        if extra is not None and extra.replaces is not None
    ]
    if taken:
        await RIGHT(writer, taken)
    given = [(*entry[:4], entry[4] and msgspec.structs.replace(entry[4], replaces=None)) for entry in entries]
    return await RIGHT(writer, given, senders, **options)


RIGHT: Final = BoardWriter.add


@pytest.mark.mutant
@pytest.mark.fault
async def test_taking_back_and_giving_in_two_scripts_is_noticed(own_store: StoreProcess, tmp_path: Path) -> None:
    """Frames then have fewer votes, and repeated requests take votes back twice."""
    with must_be_caught("two scripts"), replaced(BoardWriter, "add", in_two_scripts):
        await with_losses(own_store, tmp_path, voters=40, changes=10)


async def with_kills(store: StoreProcess, folder: Path, voters: int, changes: int) -> None:
    """Run two servers that are killed in turn, each at least once, while voters change their minds."""
    file = folder / "boards.toml"
    file.write_text(CONTEST, encoding="utf-8")
    settings = fresh_settings(store.url, boards=file, **QUICK)
    servers = [ServerProcess(msgspec.structs.replace(settings, port=free_port()), folder) for _ in range(2)]
    urls = [f"http://127.0.0.1:{one.environment['LIVE_PORT']}" for one in servers]
    kills = 0

    async def kill() -> None:
        nonlocal kills
        while True:
            for one in servers:
                await asyncio.sleep(0.5)
                await asyncio.to_thread(one.kill)
                kills += 1
                await asyncio.to_thread(one.start)

    try:
        for one in servers:
            await asyncio.to_thread(one.start)
        killing = asyncio.create_task(kill())
        try:
            await change_minds(
                settings, store.url, urls, urls, voters, changes, is_enough=lambda: kills >= len(servers)
            )
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
    finally:
        for one in servers:
            if one.process is not None:
                one.kill()


@pytest.mark.fault
@pytest.mark.slow
async def test_voters_keep_one_vote_each_while_servers_are_killed(own_store: StoreProcess, tmp_path: Path) -> None:
    """Two servers are killed again and again."""
    await with_kills(own_store, tmp_path, voters=40, changes=10)


async def test_a_hundred_changes_at_once_leave_one_vote(valkey_url: str) -> None:
    """One of the changes counts. For the others, there is nothing left to replace."""
    board = built(id="cup", title="cup", source=frozenset({"like"}), window=Forever(), votes=Votes(per_actor=1))
    async with server(valkey_url, board) as client:
        await post(client, {"key": "Ada", "actor": "me"})
        changes = [{"key": f"c{number}", "actor": "me", "replaces": "Ada"} for number in range(100)]
        answers = await asyncio.gather(*(post(client, change) for change in changes))
        codes = Counter(rejection["code"] for answer in answers for rejection in answer["rejected"])
        assert (sum(answer["accepted"] for answer in answers), codes) == (1, {"vote_missing": 99})
        page = (await client.get("/v1/boards/cup")).json()
        assert (page["rank_count"], page["total_score"]) == (1, 1)
