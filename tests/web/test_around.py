"""Viewers that follow a member, over real sockets, while the board changes."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.domain.ranking import Record
from live.domain.views import Around
from live.domain.window import Forever
from live.fanout.channel import Channel, Tick
from live.fanout.lookups import RankLookup
from live.store.connection.scripts import Script
from tests.harness.boards import built
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

BOARD = built(
    id="posts", title="posts", source=frozenset({"like"}), window=Forever(), ties="first", ranks="competition"
)
KEYS = [f"k{number}" for number in range(50)]


class Shown(msgspec.Struct):
    """The part of a page that determines the rank of a member."""

    epoch: str
    offset: int
    records: list[Record]


class Follower:
    """A viewer of a member, which keeps every message about the member."""

    def __init__(self, member: str, around: int) -> None:
        self.member = member
        self.around = around
        self.model = ModelViewer()
        self.received: list[Around] = []

    @property
    def query(self) -> str:
        """The query of the viewer's subscription."""
        return f"limit=5&key={quote(self.member)}&around={self.around}"

    def receive(self, text: str | bytes) -> None:
        """Receive one message."""
        before = self.model.around
        self.model.receive(text)
        if self.model.around is not None and self.model.around is not before:
            self.received.append(self.model.around)

    async def watch(self, url: str) -> None:
        """Watch over a WebSocket until cancelled."""
        async with connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live?{self.query}") as socket:
            async for message in socket:
                self.receive(message)

    async def stream(self, client: httpx.AsyncClient) -> None:
        """Watch over server-sent events until cancelled."""
        async with client.stream("GET", f"/v1/boards/posts/stream?{self.query}", timeout=180) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    self.receive(line.removeprefix("data: "))


class Stage:
    """A server, its viewers, and the board at every offset."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self.client = client
        self.followers: list[Follower] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.boards: dict[int, Shown] = {}

    def follow(self, member: str, around: int, *, streams: bool = False) -> None:
        """Add a viewer."""
        follower = Follower(member, around)
        self.followers.append(follower)
        self.tasks.append(asyncio.create_task(follower.stream(self.client) if streams else follower.watch(self.url)))

    async def post(self, *events: dict[str, Any]) -> None:
        """Change the board, and keep its new state."""
        answer = await post(self.client, *events)
        assert answer["rejected"] == []
        await self.keep()

    async def keep(self) -> Shown:
        """Keep the current state of the board."""
        response = await self.client.get("/v1/boards/posts?limit=100")
        page = msgspec.json.decode(response.content, type=Shown)
        self.boards[page.offset] = page
        return page

    def expected(self, follower: Follower, offset: int) -> Around:
        """The message that a viewer should receive for an offset."""
        page = self.boards[offset]
        bare = Around(epoch=page.epoch, offset=offset, member=follower.member, rank_count=len(page.records), records=[])
        lookup = next((lookup for lookup, record in enumerate(page.records) if record.member == follower.member), None)
        if lookup is None:
            return bare
        own, above = page.records[lookup], page.records[lookup - 1].score if lookup else None
        return msgspec.structs.replace(
            bare,
            score=own.score,
            rank=own.rank,
            gap=None if above is None else above - own.score,
            records=page.records[max(0, lookup - follower.around) : lookup + follower.around + 1],
        )

    async def agree(self, deadline: float = 10.0) -> None:
        """Wait until every viewer has received the current state."""
        latest = (await self.keep()).offset

        async def same() -> bool:
            for task in self.tasks:
                assert not task.done(), task
            return all(
                follower.received
                and follower.received[-1]
                == msgspec.structs.replace(self.expected(follower, latest), offset=follower.received[-1].offset)
                for follower in self.followers
            )

        await eventually(same, deadline)

    def check_every_message(self) -> None:
        """Check that each message is correct for its offset, and differs from the previous message."""
        for follower in self.followers:
            before = None
            for received in follower.received:
                assert received == self.expected(follower, received.offset)
                assert before is None or msgspec.structs.replace(received, offset=before.offset) != before
                assert before is None or received.offset > before.offset
                before = received

    async def close(self) -> None:
        """Disconnect all viewers."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def stage(store: str, **changes: Any) -> AsyncIterator[Stage]:
    """A server with one board."""
    settings = fresh_settings(store, **{"conflation_interval": 0.02, **changes})
    async with (
        run_server(settings, [BOARD]) as url,
        httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_connections=None)) as client,
    ):
        stage = Stage(url, client)
        try:
            yield stage
        finally:
            await stage.close()


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count ticks that show a page, and calls of each script."""
    counts: Counter[str] = Counter()
    call, begin = Script.__call__, Channel.begin

    async def counted_call(self: Script[Any], *arguments: Any) -> Any:
        counts[self.name] += 1
        return await call(self, *arguments)

    def counted_begin(self: Channel, now: int) -> Tick | None:
        tick = begin(self, now)
        counts["ticks"] += tick is not None and bool(tick.variants)
        return tick

    with monkeypatch.context() as patch:
        patch.setattr(Script, "__call__", counted_call)
        patch.setattr(Channel, "begin", counted_begin)
        yield counts


def random_events(chance: random.Random) -> list[dict[str, Any]]:
    """Likes of a few members, some of which enter or leave the board."""
    return [{"key": f"k{chance.randrange(60)}", "amount": chance.choice([-1, 1, 1, 2])} for _ in range(8)]


async def drive(stage: Stage, changes: int) -> None:
    """Change the board at random, and finally only the score of the first member."""
    chance = random.Random(7)
    for _ in range(changes):
        await stage.post(*random_events(chance))
        if chance.random() < 0.2:
            await asyncio.sleep(0.02)
    first = (await stage.keep()).records[0].member
    await stage.agree()
    await stage.post({"key": first, "amount": 5})


@pytest.mark.slow
async def test_two_hundred_viewers_of_fifty_members_share_reads(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message is correct for its offset, the last message has the current state, and viewers share reads."""
    async with stage(valkey_url) as stage_:
        await stage_.post(*({"key": f"k{number}", "amount": number // 4 + 1} for number in range(40)))
        for number in range(200):
            stage_.follow(KEYS[number % 50], number % 50 % 4, streams=number >= 190)
        await stage_.agree()
        with counting(monkeypatch) as counts:
            await drive(stage_, 60)
            await stage_.agree()
        assert 5 < counts["places"] <= counts["ticks"] + 1  # the first read may belong to an earlier tick
        stage_.check_every_message()
        for follower in stage_.followers[:50]:
            response = await stage_.client.get(f"/v1/boards/posts/records/{follower.member}?around={follower.around}")
            received = follower.received[-1]
            if response.status_code == 404:
                assert (received.rank, received.records) == (None, [])
            else:
                seen = msgspec.json.decode(msgspec.json.encode(received))
                assert {name: response.json()[name] for name in ("epoch", "rank_count", "score", "rank", "gap")} == {
                    name: seen[name] for name in ("epoch", "rank_count", "score", "rank", "gap")
                }
                assert response.json()["records"] == seen["records"]


@pytest.mark.slow
async def test_missing_updates_of_neighbours_are_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`agree` fails if viewers receive only changes of their own member, and no changes of its neighbours."""
    take = RankLookup.take

    def blind(self: RankLookup, encoded: Any, page_of: Any) -> bool:
        received, now = self._sent, self._around(page_of(encoded))
        own = (now.score, now.rank, now.gap, now.rank_count)
        if received is not None and own == (received.score, received.rank, received.gap, received.rank_count):
            return False
        return take(self, encoded, page_of)

    async with stage(valkey_url) as stage_:
        await stage_.post(*({"key": member, "amount": number + 1} for number, member in enumerate(KEYS[:10])))
        for member in KEYS[:10]:
            stage_.follow(member, 3)
        await stage_.agree()
        with monkeypatch.context() as patch:
            patch.setattr(RankLookup, "take", blind)
            await stage_.post({"key": KEYS[9], "amount": 5})
            with pytest.raises(AssertionError, match="still False"):
                await stage_.agree(1.0)


@pytest.mark.parametrize(
    "query", ["key=", f"key={'x' * 1025}", "key=a%0Ab", "key=e%CC%81", "key=%E2%80%AEa", "key=a&around=51"]
)
async def test_an_invalid_member_is_refused(valkey_url: str, query: str) -> None:
    """The refusal comes before the handshake, and before a stream begins."""
    async with stage(valkey_url) as stage_:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{stage_.url.replace('http', 'ws')}/v1/boards/posts/live?{query}")
        assert refused.value.response.status_code == 400
        assert b'"code":"parameter_invalid"' in refused.value.response.body
        answer = await stage_.client.get(f"/v1/boards/posts/stream?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "parameter_invalid")


@pytest.mark.slow
async def test_any_string_can_be_a_member(valkey_url: str) -> None:
    """A member that is not on the board is reported when it enters and when it leaves."""
    member = "é&key=b /€\U0001f600"
    async with stage(valkey_url) as stage_:
        stage_.follow(member, 2)
        stage_.follow(member, 2, streams=True)
        await stage_.agree()
        for amount in (1, -1):
            await stage_.post({"key": member, "amount": amount})
            await stage_.agree()
        stage_.check_every_message()
        for follower in stage_.followers:
            assert [(received.score, received.rank, received.gap) for received in follower.received] == [
                (None, None, None),
                (1, 1, None),
                (None, None, None),
            ]
