"""A replay, message by message: what the replay process answers, and what viewers receive at which time."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from live.domain.board import Board, Journaling
from live.domain.reader import Reader
from live.errors import BOARD_DELETED, FAILED, SHUTTING_DOWN, ProblemError, StoreUnavailableError
from live.fanout.engine import replays
from live.fanout.engine.delivery import ViewerPosition
from live.fanout.engine.replays import PlaybackBuffer, Played, PlayedFrame, TooLittleMemoryError
from live.fanout.frames import Frame, replay_frame, status_frame
from live.fanout.hub import Hub
from live.fanout.subscription import ReplayRequest, Subscription
from live.settings import Duration
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.registry.presence import Presence
from tests.fanout.test_hub import running_hub
from tests.fanout.test_rank_lookups import Sink
from tests.harness.boards import rolling_board
from tests.harness.pulling import ChannelEndedError, PullViewer, pulling
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE
from tests.harness.watching import until

Answer = Played | tuple[int, int] | Exception | asyncio.Event | None


class Script:
    """Stands in for the players: `begin` and `play` return the given answers in order.

    An `asyncio.Event` among the answers holds up the next answer until the event is set.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []
        self.times: list[float] = []

    async def begin(self, address: str, board: Board, hidden: Collection[str], size: int, at: int) -> Any:
        return await self._answer("begin", address, board.id, list(hidden), size, at)

    async def play(
        self, number: int, until: int, speed: float, interval: int, hidden: Collection[str] | None = None
    ) -> Any:
        return await self._answer("play", number, until, speed, interval, hidden)

    def end(self, number: int) -> None:
        self.calls.append(("end", number))

    async def _answer(self, *call: Any) -> Any:
        self.calls.append(call)
        self.times.append(time.time())
        while self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, asyncio.Event):
                return answer
            await answer.wait()
        return await asyncio.Event().wait()  # for ever

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of the calls of one method."""
        return [call[1:] for call in self.calls if call[0] == name]


def message(at: int, text: str) -> PlayedFrame:
    """A message of the past."""
    return PlayedFrame(at, "update", text.encode(), "")


def asking(**replay: Any) -> Subscription:
    """The subscription of a viewer of the past."""
    return Subscription(size=50, replay=ReplayRequest(**replay))


async def taken(viewer: PullViewer, count: int) -> list[bytes]:
    """The next messages."""
    async with asyncio.timeout(DEADLINE / 2):
        return [(await viewer.next_frame()).payload for _ in range(count)]


def rest(buffer: PlaybackBuffer, position: ViewerPosition) -> list[bytes]:
    """The messages in the buffer that a viewer at a position lacks."""
    return [frame.payload for frame in iter(lambda: buffer.next_frame(position), None)]


def test_the_buffer_gives_each_viewer_what_it_lacks() -> None:
    """A snapshot is for viewers who lack a message before it, or for all viewers after a cut."""
    buffer, quick, slow = PlaybackBuffer(), ViewerPosition("one", 7), ViewerPosition()
    buffer.loose = {PullViewer(cast("Any", None), buffer, position) for position in (quick, slow)}
    quick.reset()
    buffer.add(Frame("update", b"a"))
    assert (buffer.size, rest(buffer, quick), quick.epoch) == (1, [b"a"], "")
    assert (buffer.is_played, rest(buffer, slow)) == (False, [b"a"])
    assert buffer.is_played
    buffer.begin([Frame("sync", b"bb"), Frame("sync", b"c")], is_cut=True)
    assert (buffer.size, buffer.is_played) == (3, False)
    assert rest(buffer, quick) == rest(buffer, slow) == [b"bb", b"c"]
    buffer.add(Frame("update", b"dd"))
    assert (buffer.size, rest(buffer, quick), buffer.is_played) == (5, [b"dd"], False)
    buffer.begin([Frame("sync", b"e"), Frame("sync", b"f")], is_cut=False)
    buffer.add(Frame("update", b"g"))
    assert rest(buffer, quick) == [b"g"]
    assert rest(buffer, slow) == rest(buffer, ViewerPosition()) == [b"e", b"f", b"g"]


async def test_a_replay_tells_everything_in_its_order_and_time(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal begins later than asked, does not answer for a while, and its process ends. Then it becomes live."""
    for name, value in (("_POLL", 100), ("_BEAT", 40), ("_WHOLE", 3600), ("_PRESENT", 1000)):
        monkeypatch.setattr(replays, name, value)
    monkeypatch.setattr("live.fanout.engine.channel.SILENCE", 3600)
    asked = time.time()
    at, told, full = round(asked * 1000) - 60_000, asyncio.Event(), asyncio.Event()
    begins = replay_frame(at + 1000, 100.0).payload
    monkeypatch.setattr(replays, "_MOST_BYTES", len(begins) + 2)
    script = Script(
        None,
        (1, at + 1000),
        Played(None, [message(at + 1000, "a"), message(at + 11_000, "b")], at + 41_000),
        StoreUnavailableError("away"), StoreUnavailableError("away"), told,
        TooLittleMemoryError("full"), full,
        Played(message(at + 22_000, "W"), [message(at + 22_000, "c")], at + 22_000),
        None,
        (2, at + 30_000),
        Played(None, [message(at + 30_000, "d")], round(asked * 1000) + 3_600_000),
    )  # fmt: skip
    async with running_hub(valkey_url, script, conflation_interval=Duration(0.02)) as (hub, ledger):
        await ledger.state.client.hset(ledger.state.keys.hidden, "x", 1)
        channel = hub.channels["posts"]
        with pulling(hub, "posts", asking(at=at, speed=100.0), "here") as viewer:
            playback = viewer.channel
            assert (channel.viewers, channel.watchers) == (1, [])
            assert await taken(viewer, 3) == [begins, b"a", b"b"]
            assert time.time() >= asked + 0.1
            assert await taken(viewer, 1) == [status_frame("the journal does not answer").payload]
            told.set()
            assert await taken(viewer, 1) == [status_frame("too many replays run").payload]
            full.set()
            back = status_frame(None).payload
            assert await taken(viewer, 6) == [back, b"W", b"c", back, b"d", replay_frame(None, 1.0).payload]
            assert (await taken(viewer, 1))[0].startswith(b'{"type":"sync"')
            assert viewer.channel is channel is not playback
            assert (channel.viewers, channel.watchers, hub._replays._all) == (1, [viewer], set())
        assert (channel.viewers, hub.viewers) == (0, 0)
    assert script.named("begin") == [("here", "posts", ["x"], 50, at)] * 2 + [("here", "posts", ["x"], 50, at + 22_000)]
    plays = script.named("play")
    assert [(number, speed, interval) for number, _, speed, interval, _ in plays] == [(1, 100.0, 20)] * 6 + [
        (2, 100.0, 20)
    ]
    assert [hidden for *_, hidden in plays] == [None, ["x"], ["x"], ["x"], ["x"], None, None]
    assert script.named("end") == [(1,), (2,)]
    begun, again, first, second, third, fourth = script.times[:6]
    assert again - begun >= 0.09  # a poll
    assert second - first >= 0.09  # a poll: the second `play` does not wait until all that was played is shown
    assert min(third - second, fourth - third) >= 0.036  # a beat
    assert at + 1000 < plays[0][1] <= first * 1000 + 1


async def test_a_replay_that_has_reached_the_present_becomes_live_at_once(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its viewers have received everything, the replay does not wait for the next poll."""
    monkeypatch.setattr(replays, "_POLL", 3_600_000)
    now = round(time.time() * 1000)
    wish, sink = asking(at=now), Sink()
    async with running_hub(valkey_url, Script((1, now))) as (hub, _):
        viewer = hub.add_push_viewer(hub.admit("posts", wish, ""), wish, "", sink)
        await until(lambda: viewer.channel is hub.channels["posts"])
        assert [data[2:] for data in sink.taken[:2]] == [replay_frame(at, 1.0).payload for at in (now, None)]
        hub.leave(viewer, "")


async def test_viewers_of_a_delay_share_it(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer that comes later begins with the last snapshot, and receives no message before it is due."""
    monkeypatch.setattr(replays, "_WHOLE", 0)
    monkeypatch.setattr("live.fanout.engine.channel.SILENCE", 3600)
    monkeypatch.setattr(replays, "_BEAT", 10)
    now = round(time.time() * 1000)
    whole, later = message(now - 3_600_000, "W"), message(now, "b")
    script = Script((7, now - 3_600_000), Played(whole, [message(now - 3_600_000, "a"), later], now))
    async with running_hub(valkey_url, script) as (hub, ledger):
        await ledger.state.client.hset(ledger.state.keys.hidden, "x", 1)
        delayed, sink = asking(delay=3600), Sink()
        with pulling(hub, "posts", delayed) as viewer:
            buffer = cast("Any", viewer.channel)._buffer
            assert await taken(viewer, 2) == [b"W", b"a"]
            other = hub.add_push_viewer(hub.admit("posts", delayed, ""), delayed, "", sink)
            assert [data[2:] for data in sink.taken] == [b"W", b"a"]
            assert hub.viewers == hub.channels["posts"].viewers == len(hub._replays.viewers_of("posts")) == 2
            monkeypatch.setattr("live.fanout.engine.channel.SILENCE", 0.02)
        with pulling(hub, "posts", asking(delay=3600)) as viewer:
            assert await taken(viewer, 3) == [b"W", b"a", b'{"type":"alive"}']
        assert script.named("end") == []
        hub.leave(other, "")
        assert (buffer.loose, [len(cohort) for cohort in buffer.cohorts]) == (set(), [0])
        await asyncio.sleep(0)
        assert script.named("end") == [(7,)]
        assert not (hub._replays._all)
        assert not (hub._replays._delayed)
        assert not (hub._replays._addresses)
    ((*_, begin),) = script.named("begin")
    assert now <= begin + 3_600_000 <= script.times[0] * 1000 + 1
    ((_, until, *_, hidden),) = script.named("play")
    assert now <= until + 3_599_000 <= script.times[1] * 1000 + 1
    assert hidden == ["x"]


async def test_the_replays_of_a_board_end_with_it(valkey_url: str) -> None:
    """A replay that fails ends too. The replays of other boards go on, until the server stops."""
    script = Script(RuntimeError("a mistake"))
    async with running_hub(valkey_url, script) as (hub, ledger):
        hub.add(Ledger(ledger.state.client, rolling_board(board="other"), ledger.state.settings).reader)
        with pulling(hub, "posts", asking(delay=5)) as viewer:
            with capture_logs() as logs, pytest.raises(ChannelEndedError) as ended:
                await taken(viewer, 1)
            assert (ended.value.code, script.named("end"), len(logs)) == (FAILED, [], 1)
        with pulling(hub, "posts", asking(delay=5)) as viewer, pulling(hub, "other", asking(delay=5)) as other:
            waiting = asyncio.create_task(taken(viewer, 1))
            await asyncio.sleep(0)
            hub.remove("posts")
            with pytest.raises(ChannelEndedError) as ended:
                await waiting
            assert (ended.value.code, other.channel.ended) == (BOARD_DELETED, None)
            hub.drain()
            assert other.channel.ended == SHUTTING_DOWN


def hub_of(store: str, board: Board, players: Script | None, **changes: Any) -> Hub:
    """A hub that does not run."""
    settings = fresh_settings(store, **changes)
    client = connect(store, settings)
    return Hub(client, [Ledger(client, board, settings).reader], settings, Presence(client, ""), players)


async def test_each_limit_of_replays_allows_what_it_says(valkey_url: str) -> None:
    """A viewer who joins a running delay starts no replay. An unknown address has no limit of its own."""
    hub = hub_of(valkey_url, rolling_board(), Script(), max_replays=4, max_address_replays=1)
    replays, channel = hub._replays, hub.channels["posts"]

    def started(address: str, **replay: Any) -> None:
        wish = asking(**replay)
        replays.require_room(channel, wish, address)
        replays.find(channel, cast("ReplayRequest", wish.replay), address)

    def refused(address: str, code: str, **replay: Any) -> str:
        with pytest.raises(ProblemError) as caught:
            started(address, **replay)
        assert caught.value.code == code
        return str(caught.value.detail)

    now = time.time() * 1000
    started("a", at=round(now) - 100)
    assert refused("a", "too_many_viewers", delay=6).startswith("1 replays run for your address")
    started("b", delay=5)
    started("a", delay=5)
    started("", delay=7)
    started("", delay=8)
    assert refused("c", "too_many_viewers", delay=9).startswith("4 replays run;")
    started("c", delay=8)
    assert refused("c", "parameter_invalid", at=round(now) + 10_000) == "`at` is in the future"
    replays.require_room(channel, Subscription(size=1), "a")
    assert (len(replays._all), dict(replays._addresses)) == (4, {"a": 1, "b": 1, "": 2})


@pytest.mark.parametrize(("own", "kept"), [(None, 7200), (3600, 3600)])
async def test_a_replay_begins_in_what_the_journal_keeps(valkey_url: str, own: int | None, kept: int) -> None:
    """The board's definition, or else the setting `journal_events`, says for how long the journal keeps events."""
    board = msgspec.structs.replace(rolling_board(), journal=Journaling(events=own))
    hub = hub_of(valkey_url, board, Script(), journal_events=7200)
    hub.admit("posts", asking(delay=kept), "")
    with pytest.raises(ProblemError, match=f"for {kept} seconds"):
        hub.admit("posts", asking(delay=kept + 1), "")
    off = msgspec.structs.replace(board, journal=Journaling(level="off"))
    for without in (hub_of(valkey_url, off, Script()), hub_of(valkey_url, board, None)):
        with pytest.raises(ProblemError, match="has no journal"):
            without.admit("posts", asking(delay=5), "")


async def test_viewers_that_may_no_longer_read_their_board_are_ended(valkey_url: str) -> None:
    """A check ends the viewers whose reader has lost the board, also in replays. Public boards keep all viewers.

    A board that is defined again is checked too.
    """
    private = msgspec.structs.replace(rolling_board(), visibility="private")
    hub = hub_of(valkey_url, private, Script())
    hub.add(Ledger(hub._client, rolling_board(board="open"), hub._settings).reader)
    scope = cast("Any", {"posts"})
    again = Ledger(hub._client, private, hub._settings).reader
    checks: list[Callable[[], None]] = [hub.recheck, lambda: hub.recheck("posts"), lambda: hub.add(again)]
    for check in checks:
        lost, keeps = Reader(scope), Reader(scope)
        wishes = [
            (Subscription(size=5, reader=reader, replay=replay), name)
            for replay in (None, ReplayRequest(delay=5))
            for name, reader in (("posts", lost), ("posts", keeps), ("open", lost))
        ]
        viewers = []
        for wish, name in wishes:
            channel = hub.admit(name, wish, "")
            viewers.append(hub.add_push_viewer(channel, wish, "", Ending()))
        lost.end("it ended")
        check()
        assert [cast("Ending", viewer.sink).codes for viewer in viewers] == [[BOARD_DELETED], [], []] * 2
        for viewer in viewers:
            hub.leave(viewer, "")
    assert hub.viewers == 0


class Ending(Sink):
    """A connection that notes how it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: list[int] = []

    def end(self, code: int) -> None:
        self.codes.append(code)
