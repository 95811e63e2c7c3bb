"""The hub: from a change in the store to what each viewer receives."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest

from live.domain.event import make_entry
from live.domain.limits import PrefixLimits
from live.errors import BOARD_DELETED, REPLACED, SHUTTING_DOWN, EpochLostError, ProblemError
from live.fanout.hub import Hub
from live.fanout.subscription import Subscription
from live.fanout.variant import Variant
from live.metrics import REGISTRY
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.registry.presence import Presence
from live.system.resources import Resources
from tests.harness.boards import changed, rolling_board
from tests.harness.pulling import ChannelEndedError, PullViewer, pulling
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import DEADLINE, eventually


@asynccontextmanager
async def running_hub(store: str, /, **changes: Any) -> AsyncIterator[tuple[Hub, Ledger]]:
    """A hub with one board."""
    settings = fresh_settings(store, **changes)
    async with aclosing(connect(store, settings)) as client:
        ledger = Ledger(client, rolling_board(), settings)
        hub = Hub(
            client,
            settings,
            Presence(client),
            Resources(settings),
        )
        hub.add(ledger.reader)
        running = asyncio.create_task(hub.run())
        try:
            yield hub, ledger
        finally:
            await stop(running)


def top(size: int, address: str = "") -> Subscription:
    """A subscription to the first `size` records."""
    return Subscription(size=size, address=address)


async def follow(viewer: PullViewer, model: ModelViewer, offset: int) -> None:
    """Take frames until the model reaches an offset."""
    async with asyncio.timeout(60):
        while model.offset < offset or model.stale:
            model.receive((await viewer.next_frame()).payload)


async def test_a_viewer_receives_a_sync_and_then_updates(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer that keeps up receives one sync; each update follows from the previous frame. Ticks are traced."""
    spans: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr("live.fanout.hub.record_span", lambda name, _, **named: spans.append((name, named)))
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 3, None)])
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 1)
            for number in range(1, 11):
                added = await ledger.writer.add([make_entry(f"k{number}", number, None)])
                await follow(viewer, model, added.offset or 0)

        assert (model.syncs, model.updates) == (1, 10)
        assert len(spans) >= 11
        assert {(name, named["boards"]) for name, named in spans} == {("tick", 1)}
        assert model.records == list((await ledger.reader.read(5)).records)


async def test_many_changes_share_a_frame(valkey_url: str) -> None:
    """However fast the board changes, a viewer gets at most one frame per interval. The last one has the latest top."""
    async with running_hub(valkey_url, conflation_interval=0.2) as (hub, ledger):
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 0)
            started = time.monotonic()
            for _ in range(200):
                added = await ledger.writer.add([make_entry("a", 1, None)])
            await follow(viewer, model, added.offset or 0)
            most = (time.monotonic() - started) / 0.2 + 2

        assert model.updates <= most
        assert model.records[0].score == 200


@pytest.mark.slow
async def test_a_slow_viewer_skips_to_the_latest(valkey_url: str) -> None:
    """A viewer that did not ask for a while receives one sync instead of a backlog."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        slow, quick = ModelViewer(), ModelViewer()
        with pulling(hub, "posts", top(5)) as slow_viewer, pulling(hub, "posts", top(5)) as quick_viewer:
            await follow(slow_viewer, slow, 0)
            for number in range(10):
                added = await ledger.writer.add([make_entry(f"k{number}", 1, None)])
                await follow(quick_viewer, quick, added.offset or 0)
            await follow(slow_viewer, slow, added.offset or 0)

        assert (slow.syncs, slow.updates) == (2, 0)
        assert slow.records == quick.records


async def test_viewers_of_different_sizes_share_a_read(valkey_url: str) -> None:
    """Each viewer sees its own top, even if it comes later with a larger size."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        await ledger.writer.add([make_entry(f"k{number}", number, None) for number in range(1, 31)])
        with pulling(hub, "posts", top(3)) as small:
            three = ModelViewer()
            await follow(small, three, 1)
            with pulling(hub, "posts", top(20)) as large:
                twenty = ModelViewer()
                await follow(large, twenty, 1)
                added = await ledger.writer.add([make_entry("k1", 100, None)])
                await follow(small, three, added.offset or 0)
                await follow(large, twenty, added.offset or 0)

        assert [len(three.records), len(twenty.records)] == [3, 20]
        assert twenty.records[:3] == three.records


async def test_viewers_are_counted_and_limited(valkey_url: str) -> None:
    """With `max_viewers` viewers, another viewer is refused. A viewer that leaves makes room."""
    async with running_hub(valkey_url, max_viewers=2) as (hub, _):
        with pulling(hub, "posts", top(5)), pulling(hub, "posts", top(6)):
            assert hub.channels["posts"].viewers == 2
            with pytest.raises(ProblemError, match="too_many_viewers") as caught:
                hub.admit("posts", top(5))
            assert caught.value.retry_after == 5
        assert hub.channels["posts"].viewers == 0
        with pulling(hub, "posts", top(5)):
            assert hub.channels["posts"].viewers == 1


@pytest.mark.fault
async def test_the_viewers_of_an_address_are_counted(valkey_url: str) -> None:
    """Nobody may have more than half of the viewers. Viewers without a known address have no such limit.

    A viewer that leaves makes room for another.
    """
    async with running_hub(valkey_url, max_viewers=8) as (hub, _), AsyncExitStack() as stack:
        for address in ("", "", "", "one", "one", "one"):
            stack.enter_context(pulling(hub, "posts", top(5), address))
        for _ in range(2):
            with pulling(hub, "posts", top(5), "one"), pytest.raises(ProblemError, match="4 viewers watch from your"):
                hub.admit("posts", top(5, "one"))
            hub.admit("posts", top(5, "one"))
        for _ in range(2):
            stack.enter_context(pulling(hub, "posts", top(5)))
        with pytest.raises(ProblemError, match="8 viewers watch;"):
            hub.admit("posts", top(5))


async def is_replaced(viewer: PullViewer) -> bool:
    """Whether a viewer has lost its place to another client."""
    try:
        while True:
            await asyncio.wait_for(viewer.next_frame(), 0.05)
    except ChannelEndedError as ended:
        return ended.code == REPLACED
    except TimeoutError:
        return False


async def test_the_address_with_most_viewers_loses_its_slowest_when_all_places_are_taken(valkey_url: str) -> None:
    """A viewer is slow if its data has waited for five seconds. An address with more than twice as many loses any."""
    async with running_hub(valkey_url, max_viewers=12) as (hub, _), AsyncExitStack() as stack:

        def watch(address: str) -> PullViewer:
            return stack.enter_context(pulling(hub, "posts", top(5), address))

        many = [watch("many") for _ in range(6)]
        some = [watch("some") for _ in range(3)]
        few = [watch(address) for address in ("few", "few", "one")]
        now = time.monotonic()
        many[4].blocked_since, many[5].blocked_since = now - 1, now - 4
        with pytest.raises(ProblemError, match="12 viewers watch; the setting max_viewers allows 12"):
            hub.admit("posts", top(5, "few"))  # it would have half as many as the address with most
        some[0].blocked_since = now - 60
        watch("new")
        assert [await is_replaced(viewer) for viewer in (*many, *some, *few)] == [False] * 5 + [True] + [False] * 6
        many[4].blocked_since = now - 6
        few.append(watch("few"))
        assert [await is_replaced(viewer) for viewer in (*many, *some, *few)] == [False] * 4 + [True] * 2 + [False] * 7
        assert (hub.viewers, hub._resources.viewers.of("many"), hub._resources.viewers.of("few")) == (12, 4, 3)
        watch("newest")  # no viewer of the address is slow now
        assert sum([await is_replaced(viewer) for viewer in many]) == 3


async def test_few_replaced_viewers_are_still_connected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have descriptors until they close their connections, so further viewers are refused meanwhile."""
    monkeypatch.setattr("live.system.resources._REPLACED", 1)
    async with running_hub(valkey_url, max_viewers=6) as (hub, _), AsyncExitStack() as stack:
        for address in "bbc":
            stack.enter_context(pulling(hub, "posts", top(5), address))
        with ExitStack() as leaving:
            for _ in range(3):
                leaving.enter_context(pulling(hub, "posts", top(5), "a"))
            stack.enter_context(pulling(hub, "posts", top(5), "new"))
            with pytest.raises(ProblemError, match="6 viewers watch"):
                hub.admit("posts", top(5, "newer"))
        assert not hub._resources.replaced.held
        hub.admit("posts", top(5, "newer"))


async def test_the_viewers_of_a_prefix_are_counted_together(valkey_url: str) -> None:
    """The boards of the prefix share the limit. Boards of other prefixes do not count, and may have no limit."""
    async with running_hub(valkey_url) as (hub, ledger):
        acme, free = PrefixLimits(prefix="acme-", viewers=2), PrefixLimits(prefix="free-", rate=1)
        for name, limits in (("acme-a", acme), ("acme-b", acme), ("free-a", free)):
            board = msgspec.structs.replace(rolling_board(board=name), limits=limits)
            hub.add(Ledger(ledger.state.client, board, ledger.state.settings).reader)
        with ExitStack() as stack:
            for name in ("acme-a", "free-a", "posts", "free-a", "acme-b"):
                stack.enter_context(pulling(hub, name, top(5)))
            with pytest.raises(ProblemError, match=r"2 viewers watch the boards `acme-\*`") as caught:
                hub.admit("acme-a", top(5))
            assert caught.value.retry_after == 5
            for name in ("free-a", "posts"):
                hub.admit(name, top(5))
        hub.admit("acme-a", top(5))


async def test_viewers_receive_the_status_of_the_store(own_store: StoreProcess) -> None:
    """The first status says that the board is stale, the next one that it is live again. Missed changes follow."""
    async with running_hub(own_store.url, store_timeout=0.3, write_deadline=5, conflation_interval=0.01) as (
        hub,
        ledger,
    ):
        await ledger.writer.add([make_entry("a", 1, None)])
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 1)
            with own_store.frozen():
                while not model.stale:
                    model.receive((await viewer.next_frame()).payload)
                assert REGISTRY.get_sample_value("live_store_stale") == 1
            added = await ledger.writer.add([make_entry("b", 5, None)])
            await follow(viewer, model, added.offset or 0)
            assert REGISTRY.get_sample_value("live_store_stale") == 0

        assert [record.member for record in model.records] == ["b", "a"]


async def test_a_board_that_can_not_be_read_is_stale(valkey_url: str) -> None:
    """The status names the reason, and the next read that works clears it. A board that the store lost is stale too."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1, None)])
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:

            async def is_stale() -> bool:
                hub.channels["posts"].read_again()
                async with asyncio.timeout(60):
                    while not model.stale:
                        frame = await viewer.next_frame()
                        model.receive(frame.payload)
                return b'"reason":"' in frame.payload

            await follow(viewer, model, 1)
            client, ranking = ledger.state.client, ledger.state.keys.meta
            await client.rename(ranking, f"{ranking}-away")
            await client.set(ranking, "not a hash")
            assert await is_stale()
            await client.rename(f"{ranking}-away", ranking)
            added = await ledger.writer.add([make_entry("b", 5, None)])
            await follow(viewer, model, added.offset or 0)
            assert [record.member for record in model.records] == ["b", "a"]
            await client.delete(ranking)
            assert await is_stale()


@pytest.mark.fault
async def test_notices_lost_with_their_connection_are_recovered(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change during a cut is sent once the hub has subscribed again, without another change."""
    monkeypatch.setattr("live.fanout.hub._CHECK_INTERVAL", 600)
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 0)
            for number in range(5):
                await ledger.state.client.each("CLIENT", "KILL", "TYPE", "pubsub")
                added = await ledger.writer.add([make_entry(f"k{number}", 1, None)])
                await follow(viewer, model, added.offset or 0)

        assert len(model.records) == 5


async def test_a_notice_that_nobody_received_is_recovered(valkey_url: str) -> None:
    """The hub compares positions with the store from time to time, because a notice can get lost without an error."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 0)
            elsewhere = Ledger(ledger.state.client, rolling_board(), ledger.state.settings)
            elsewhere.state.keys.channel += ":elsewhere"
            for _ in range(2):  # the first change may be found when the store confirms the subscription
                added = await elsewhere.writer.add([make_entry("a", 1, None)])
                await follow(viewer, model, added.offset or 0)
        assert [(record.member, record.score) for record in model.records] == [("a", 2)]


async def test_viewers_learn_how_many_they_are(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number includes the viewers of all processes. All idle boards tell their viewers at the same time."""
    monkeypatch.setattr("live.fanout.hub.BEAT", 0.05)
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        boards = ("posts", "b", "c")
        for board in boards[1:]:
            hub.add(Ledger(ledger.state.client, rolling_board(board=board), ledger.state.settings).reader)
        with ExitStack() as stack:
            viewers = [stack.enter_context(pulling(hub, board, top(5))) for board in boards]
            for counted in (1, 2):
                async with asyncio.timeout(60):
                    for viewer in viewers:
                        model = ModelViewer()
                        while model.viewers != counted:
                            model.receive((await viewer.next_frame()).payload)
                viewers = [stack.enter_context(pulling(hub, board, top(5))) for board in boards]


async def test_a_quiet_board_sends_nothing(valkey_url: str) -> None:
    """Without changes, there are no frames, and the store has hardly any work."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 0)
            client: Any = ledger.state.client
            before = (await client.info("stats"))["total_commands_processed"]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(viewer.next_frame(), 0.3)
            assert (await client.info("stats"))["total_commands_processed"] - before < 30

        async def idle() -> bool:
            return hub.channels["posts"].viewers == 0

        await eventually(idle)
        assert (await ledger.reader.read(1)).offset == 0
    assert hub.schedule._loop is None


async def test_boards_can_be_added_and_removed(valkey_url: str) -> None:
    """The hub follows an added board. Viewers of a removed board are disconnected; all other viewers stay."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        other = Ledger(ledger.state.client, rolling_board(board="other"), ledger.state.settings)
        assert hub.revision == 1
        hub.add(other.reader)
        assert hub.revision == 2
        model = ModelViewer()
        with pulling(hub, "other", top(5)) as viewer, pulling(hub, "posts", top(5)) as remaining:
            for number in range(1, 6):
                added = await other.writer.add([make_entry("a", number)])
                await follow(viewer, model, added.offset or 0)
            with hub._counting_stale():
                hub._away |= {"other": "away", "posts": "away"}
            hub.remove("other")
            assert (hub.revision, [*hub._away], REGISTRY.get_sample_value("live_store_stale")) == (3, ["posts"], 1)
            with pytest.raises(ChannelEndedError):
                await follow(viewer, model, 10**9)
            added = await ledger.writer.add([make_entry("a")])
            await follow(remaining, ModelViewer(), added.offset or 0)
        with pytest.raises(ProblemError) as problem, pulling(hub, "other", top(5)):
            pass
        assert problem.value.code == "board_not_found"
    assert REGISTRY.get_sample_value("live_store_stale") == 0, "the ended hub still counts a stale board"


async def test_a_board_that_turns_out_to_be_deleted_ends_its_viewers(valkey_url: str) -> None:
    """Viewers of a deleted board are disconnected.

    Viewers of a board that the store lost stay, and learn of the loss.
    """
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        other = Ledger(ledger.state.client, rolling_board(board="other"), ledger.state.settings)
        hub.add(other.reader)

        async def explain(board: str, _error: EpochLostError) -> None:
            if board == "other":
                hub.remove(board)

        hub.explain = explain
        with pulling(hub, "posts", top(5)) as lost, pulling(hub, "other", top(5)) as deleted:
            for one, viewer in ((ledger, lost), (other, deleted)):
                model = ModelViewer()
                await follow(viewer, model, (await one.writer.add([make_entry("a")])).offset or 0)
                await one.state.client.delete(one.state.keys.meta)
                hub.channels[one.state.board.id].read_again()
            with pytest.raises(ChannelEndedError) as ended:
                await follow(deleted, model, 10**9)
            assert (ended.value.code, model.stale) == (BOARD_DELETED, False)
            async with asyncio.timeout(60):
                while (frame := await lost.next_frame()).type != "status":
                    pass
            assert b"the store lost the board's data" in frame.payload


async def test_a_redefined_board_sends_a_sync(valkey_url: str) -> None:
    """The viewer receives the whole top in the new order, although no record has changed."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1), make_entry("b", 2)])
        model = ModelViewer()
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, model, 1)
            ledger.state.board = msgspec.structs.replace(ledger.state.board, sort_order="asc")
            hub.add(ledger.reader)
            model.receive((await viewer.next_frame()).payload)
            assert model.syncs == 2
            assert [record.member for record in model.records] == ["a", "b"]


async def test_a_board_with_a_new_interval_keeps_its_viewers(valkey_url: str) -> None:
    """Old and new viewers share frames. A viewer with four times the board's interval gets four times the new one."""
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        with pulling(hub, "posts", top(5)) as early, pulling(hub, "posts", Subscription(size=5, interval=40)) as slower:
            ledger.state.board = changed(ledger.state.board, conflation_interval="20ms")
            hub.add(ledger.reader)
            added = await ledger.writer.add([make_entry("a")])
            with pulling(hub, "posts", top(5)) as later:
                assert later.group is early.group
                intervals = [viewer.group.interval for viewer in (early, slower) if isinstance(viewer.group, Variant)]
                assert intervals == [20, 80]
                for viewer in (early, slower, later):
                    await follow(viewer, ModelViewer(), added.offset or 0)


@pytest.mark.slow
async def test_changes_without_viewers_do_not_count_as_lag(valkey_url: str) -> None:
    """Changes while nobody watches are sent to nobody, so they are neither late nor conflated."""
    names = ("live_conflated_total", "live_send_lag_seconds_sum")
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, ModelViewer(), 0)
        before = [REGISTRY.get_sample_value(name) or 0 for name in names]
        for _ in range(5):
            added = await ledger.writer.add([make_entry("a")])
        await asyncio.sleep(0.5)
        with pulling(hub, "posts", top(5)) as viewer:
            await follow(viewer, ModelViewer(), added.offset or 0)
        after = [REGISTRY.get_sample_value(name) or 0 for name in names]
        assert after[0] == before[0]
        assert after[1] - before[1] < 0.4


@pytest.mark.slow
async def test_each_board_is_read_once_after_a_cut(valkey_url: str) -> None:
    """The hub reads each board once for its new connection.

    Every viewer receives what it missed, and nothing is conflated.
    """
    async with running_hub(valkey_url, conflation_interval=0.05) as (hub, ledger), AsyncExitStack() as stack:
        ledgers = [Ledger(ledger.state.client, rolling_board(board=f"b{n}"), ledger.state.settings) for n in range(300)]
        for one in ledgers:
            hub.add(one.reader)
        models = [ModelViewer() for _ in ledgers]
        viewers = [stack.enter_context(pulling(hub, one.state.board.id, top(5))) for one in ledgers]
        await asyncio.gather(*(follow(viewer, model, 0) for viewer, model in zip(viewers, models, strict=True)))
        await settled_again(hub)
        before = REGISTRY.get_sample_value("live_conflated_total")
        reads = [hub.channels[one.state.board.id]._reads for one in ledgers]
        await ledger.state.client.each("CLIENT", "KILL", "TYPE", "pubsub")
        missed = [(await one.writer.add([make_entry("a")])).offset or 0 for one in ledgers]
        changes = zip(viewers, models, missed, strict=True)
        await asyncio.gather(*(follow(viewer, model, offset) for viewer, model, offset in changes))
        await settled_again(hub)
        assert REGISTRY.get_sample_value("live_conflated_total") == before
        again = [hub.channels[one.state.board.id]._reads - count for one, count in zip(ledgers, reads, strict=True)]
        assert sum(again) <= 2 * len(again)  # at most one read for the new connection, and one for a notice
        assert all(model.records[0].score == 1 for model in models)


async def settled_again(hub: Hub) -> None:
    """Wait until the hub is subscribed to every board and has read all announced changes."""

    async def is_settled() -> bool:
        ears = hub._notices.ears
        heard = set() if ears is None else ears.confirmed
        return heard == hub._notices.boards.keys() and not any(
            variant.due is not None for channel in hub.channels.values() for variant in channel._variants
        )

    await eventually(is_settled)


async def test_notices_are_received_while_somebody_watches(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub subscribes for the first viewer. It unsubscribes some time after the last viewer has left."""
    monkeypatch.setattr("live.fanout.hub._LINGER", 0.5)
    monkeypatch.setattr("live.fanout.hub._KEEP_ALIVE_INTERVAL", 0.02)
    async with running_hub(valkey_url) as (hub, ledger):
        client: Any = ledger.state.client
        channel = ledger.state.keys.channel

        async def subscribers() -> int:
            ((_, count),) = await client.pubsub_shardnumsub(channel)
            return int(count)

        async def is_heard() -> bool:
            return await subscribers() == 1

        async def is_quiet() -> bool:
            return await subscribers() == 0

        assert await is_quiet()
        for _ in range(3):
            with pulling(hub, "posts", top(5)) as viewer:
                assert (await viewer.next_frame()).type == "sync"
                await eventually(is_heard)
                await asyncio.sleep(0.1)
                left = asyncio.get_running_loop().time()
            assert await is_heard()
        await eventually(is_quiet)
        assert asyncio.get_running_loop().time() - left > 0.4
        await ledger.writer.add([make_entry("a", 1, None)])
        with pulling(hub, "posts", top(5)) as viewer:
            assert b'"a"' in (await viewer.next_frame()).payload


async def test_a_change_before_the_subscription_is_not_missed(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store confirms the subscription only after the first read. The hub then reads what changed in between."""
    # Without the periodic check, only the read after the subscription can find the change.
    monkeypatch.setattr("live.fanout.hub._CHECK_INTERVAL", 3600)
    async with running_hub(valkey_url, conflation_interval=0.01) as (hub, ledger):
        subscribe = hub._notices.add
        monkeypatch.setattr(hub._notices, "add", lambda *_: None)
        with pulling(hub, "posts", top(5)) as viewer:
            assert (await viewer.next_frame()).type == "sync"
            await ledger.writer.add([make_entry("a", 1, None)])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(viewer.next_frame(), 0.1)
            subscribe(ledger.state.keys.channel, "posts")
            frame = await asyncio.wait_for(viewer.next_frame(), DEADLINE)
            while frame.type != "update":
                frame = await asyncio.wait_for(viewer.next_frame(), DEADLINE)
            assert b'"a"' in frame.payload


async def test_a_hub_that_drains_ends_its_viewers_and_takes_no_more(valkey_url: str) -> None:
    """Draining again changes nothing. The hub still counts down the viewers that leave."""
    async with running_hub(valkey_url) as (hub, _):
        with pulling(hub, "posts", top(5), "a") as viewer:
            assert (hub.viewers, hub._resources.viewers.of("a"), dict(hub._by_pattern)) == (1, 1, {"": 1})
            hub.drain()
            hub.drain()
            with pytest.raises(ChannelEndedError) as ended:
                await viewer.next_frame()
            assert ended.value.code == SHUTTING_DOWN
        assert (hub.viewers, hub._resources.viewers.of("a"), dict(hub._by_pattern)) == (0, 0, {})
        with pytest.raises(ProblemError) as caught:
            hub.admit("posts", top(5, "a"))
        assert (caught.value.code, caught.value.retry_after) == ("stopping", 1)
