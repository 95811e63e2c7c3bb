"""What the client reads and sets: boards, pages, records, their past, titles, and the members of a contest."""

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest

from live.client import (
    AccessRefusedError,
    Event,
    Item,
    LiveBoard,
    NotALiveBoardError,
    RequestRefusedError,
    ServerUnavailableError,
    SyncLiveBoard,
)
from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from tests.harness.boards import rolling_board
from tests.harness.ingest import make_key
from tests.harness.network import free_port
from tests.harness.proxy import Proxy, listening
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

CONTEST = make_board(Choices(id="cup", votes=Votes(per_key=1, registered=True), window_choice="forever"))
ODD = "a/b?c=1&d#é %2F"  # a member that must be percent-encoded


class FirstAnswerLost(Proxy):
    """A proxy that closes the first connection instead of passing on the answer."""

    async def answer(self, data: bytes) -> bytes | None:
        """Drop the answers on the first connection, and let all later answers pass."""
        return data if self.connections > 1 else None


async def test_the_client_reads_boards_and_sets_titles(valkey_url: str) -> None:
    """Each method returns what the API answers, also for members with characters that are reserved in URLs."""
    settings = fresh_settings(valkey_url, journal="sqlite", image_hosts=())
    key = await make_key(settings, "shop", verbs=("post", "admin"))
    async with run_server(settings, [rolling_board(), CONTEST]) as url, LiveBoard(url, key) as live:
        await live.post(Event("Ada", 5), Event("Bo", 3), Event(ODD, 2), Event("...", 1))
        assert [board.board for board in await live.boards()] == ["posts", "cup"]

        page = await live.page("posts", limit=2)
        assert [(record.member, record.score, record.rank) for record in page.records] == [("Ada", 5, 1), ("Bo", 3, 2)]
        following = await live.page("posts", cursor=page.next_cursor)
        assert [record.member for record in following.records] == [ODD, "..."]
        assert [record.member for record in (await live.page("posts", score=3, limit=1)).records] == ["Bo"]

        record = await live.record("posts", "Bo", around=1)
        assert record is not None
        assert (record.member, record.score, record.rank, record.gap) == ("Bo", 3, 2, 2)
        assert [near.member for near in record.records] == ["Ada", "Bo", ODD]
        for member, score in ((ODD, 2), ("...", 1)):
            found = await live.record("posts", member)
            assert found is not None
            assert (found.member, found.score) == (member, score)
        assert await live.record("posts", "nobody") is None
        assert [one.member for one in await live.records("posts", ODD, "nobody", "Ada")] == [ODD, "Ada"]
        with pytest.raises(RequestRefusedError) as refused:
            await live.record("post", "Bo")
        assert refused.value.code == "board_not_found"

        second = timedelta(seconds=1)

        async def known() -> bool:
            (history,) = await live.history("posts", "Ada", since=datetime.now(UTC) - second, step=second)
            return (history.member, history.steps[-1].score) == ("Ada", 5)

        await eventually(known)
        await live.set_titles(Item(ODD, "Odd one", "https://example.org/"), Item("Bo", "Bob"))
        titles = await live.titles(ODD, "Bo", "Ada")
        assert {member: item.title for member, item in titles.items()} == {ODD: "Odd one", "Bo": "Bob"}
        await live.remove_title(ODD)
        assert list(await live.titles(ODD, "Bo")) == ["Bo"]

        await live.register("cup", ODD, {"team": "red"})
        await live.register("cup", "Bo")
        assert (await live.post(Event("Bo", board="cup", actor="ann"))).accepted == 1
        entrants = (await live.entrants("cup")).entrants
        assert {one.member: (one.score, one.metadata) for one in entrants} == {ODD: (0, {"team": "red"}), "Bo": (1, {})}
        async with listening(FirstAnswerLost(url)) as proxy, LiveBoard(proxy.url, key) as unlucky:
            await unlucky.withdraw("cup", ODD)
            assert proxy.connections == 2
        with pytest.raises(RequestRefusedError) as refused:
            await live.withdraw("cup", "Bo")
        assert refused.value.code == "record_voted"


async def test_threads_use_the_same_client(valkey_url: str) -> None:
    """`SyncLiveBoard` has each method of `LiveBoard`. It can watch, and returns the result of each event."""
    settings = fresh_settings(valkey_url, conflation_interval=0.01)
    calls = {name for name, value in vars(LiveBoard).items() if not name.startswith("_") and callable(value)}
    assert {name for name in vars(SyncLiveBoard) if not name.startswith("_")} - {"live", "background"} == calls
    for name in calls:
        mine, its = (inspect.signature(getattr(kind, name)).parameters for kind in (SyncLiveBoard, LiveBoard))
        assert list(mine) == list(its), name

    def use(url: str) -> None:
        with SyncLiveBoard(url) as live:
            tops = live.watch("posts")
            assert next(tops).records == ()
            with live.producer(rank=True) as producer:
                accepted = producer.post(Event("Ada", 5, id="1", board="posts"))
                assert (accepted.outcome, accepted.rejections) == ("accepted", ())
                assert [(one.member, one.score, one.rank) for one in accepted.records] == [("Ada", 5, 1)]
                again = producer.post(Event("Ada", 5, id="1", board="posts"))
                assert (again.outcome, again.records[0].score) == ("duplicate", 5)
                refused = producer.post(Event("Ada", board="unknown"))
                assert (refused.outcome, refused.rejections[0].code) == ("rejected", "board_unknown")
                assert refused.rejections[0].detail
            assert next(top for top in tops if top.records).records[0].member == "Ada"
            tops.close()
            record = live.record("posts", "Ada", around=1)
            assert record is not None
            assert record.score == 5
        with pytest.raises(RuntimeError, match="closed"):
            live.boards()

    async with run_server(settings, [rolling_board()]) as url:
        await asyncio.to_thread(use, url)


async def test_each_event_of_a_batch_has_its_own_result(valkey_url: str) -> None:
    """An event that one board counts and another board refuses is accepted. Its result also has the refusal."""
    small = msgspec.structs.replace(rolling_board(board="small"), max_amount=1)
    async with run_server(fresh_settings(valkey_url), [rolling_board(), small]) as url, LiveBoard(url) as live:
        async with live.producer(linger=0.2) as producer:
            await producer.post(Event("a", id="1", board="posts"))
            known, new = Event("a", id="1", board="posts"), Event("b", board="posts")
            partly, refused = Event("c", 5), Event("d", 5, board="small")
            results = await asyncio.gather(*map(producer.post, (known, new, partly, refused)))
        outcomes = [(result.outcome, [one.code for one in result.rejections]) for result in results]
        large = ["amount_too_large"]
        assert outcomes == [("duplicate", []), ("accepted", []), ("accepted", large), ("rejected", large)]
        assert [result.event.member for result in results] == ["a", "b", "c", "d"]
        assert (await live.post(results[2].event)).duplicate == 1, (
            "the event in the result has another id than the one that was counted"
        )
        assert producer.totals.accepted + producer.totals.duplicate == 4


async def test_a_wrong_address_fails_within_seconds(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what is wrong and what to do. The client waits longer for a server that has answered before."""
    monkeypatch.setattr("live.client.target._FIRST_PATIENCE", 0.3)
    async with asyncio.timeout(60), LiveBoard(f"http://127.0.0.1:{free_port()}") as live:
        for use in (partial(live.post, Event("a")), live.boards, lambda: anext(live.watch("posts"))):
            with pytest.raises(ServerUnavailableError, match=r"no Live Board server answers .* check the address and"):
                await use()

    answers = iter([b"404 Not Found", b"404 Not Found", b"200 OK", b"401 Unauthorized"])

    async def other(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\nno" % next(answers))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    async with server, LiveBoard(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as live:
        with pytest.raises(NotALiveBoardError, match=r"is not a Live Board server: .* with 404: no"):
            await live.boards()
        for _ in range(2):
            with pytest.raises(NotALiveBoardError, match="is not a Live Board server"):
                await anext(live.watch("posts"))
        with pytest.raises(AccessRefusedError, match="the server requires an API key"):
            await anext(live.watch("posts"))
    settings = fresh_settings(valkey_url)
    async with LiveBoard("http://127.0.0.1:9") as live:
        async with run_server(settings, [rolling_board()]) as url:
            live._url = url
            assert await live.boards()
            with pytest.raises(AccessRefusedError, match="--verbs admin"):
                await live.register("cup", "a")
        assert live._patience.seconds == 60
