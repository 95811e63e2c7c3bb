"""Replays and delays: the journal shows viewers what a live viewer saw some time before."""

import asyncio
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import msgspec
import pytest

from live.boards import players
from live.boards.players import PlayerProcess
from live.domain.board import Board
from live.errors import StoreUnavailableError
from live.fanout.engine import replays
from live.fanout.engine.replays import Played, TooLittleMemoryError
from live.fanout.frames import Frame
from live.settings import Duration
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.replays import DELAY, Tape, gone, journaling, play, text_of, until_drained, until_past, watching
from tests.harness.waiting import eventually
from tests.harness.watching import Served, served

pytestmark = pytest.mark.usefixtures("short_times")


def agree(later: Tape, live: Tape, least: int = 1) -> None:
    """Check that both viewers saw the same at each offset that both have, and that they share `least` offsets."""
    seen, expected = later.states, live.states
    common = seen.keys() & expected.keys()
    assert len(common) >= least
    assert {offset: seen[offset] for offset in common} == {offset: expected[offset] for offset in common}


async def test_a_delayed_viewer_sees_what_a_live_one_saw(valkey_url: str) -> None:
    """No state arrives before the delay is over."""
    async with journaling(valkey_url) as server, watching(server) as live:
        await live.until(lambda message: message["type"] == "sync")
        async with watching(server, f"?delay={DELAY}s") as delayed:
            await delayed.until(lambda message: message["type"] == "sync")
            started = time.time()
            first = await server.post({"key": "mark"})
            arrived = asyncio.create_task(delayed.until_offset(first))
            await live.until_offset(first)
            last = await play(server, live, 8)
            await arrived
            assert delayed.received_at - started >= DELAY
            await delayed.until_offset(last)
        agree(delayed, live, 2)


async def test_a_replay_begins_with_the_state_of_its_time_and_becomes_live(valkey_url: str) -> None:
    """The first message has the time of the replay. At the end, the viewer gets the present top, and then updates."""
    async with journaling(valkey_url) as server, watching(server) as live:
        first = await server.post({"key": "mark"})
        await live.until_offset(first)
        began = time.time()
        last = await play(server, live, 8)
        await until_past(server, last)
        async with watching(server, f"?at={text_of(began)}&speed=8") as again:
            begins = await again.until(lambda message: message["type"] == "replay")
            assert (begins["speed"], len(again.messages)) == (8, 1)
            sync = await again.until(lambda message: message["type"] == "sync")
            assert len(again.messages) == 2
            assert sync["offset"] <= first
            ends = await again.until(lambda message: message["type"] == "replay")
            assert ends["at"] is None
            assert last in again.states
            await again.until(lambda message: message["type"] == "sync")
            new = await server.post({"key": "new"})
            await again.until_offset(new)
            assert msgspec.json.decode(again.messages[-1])["type"] == "update"
            await live.until_offset(new)
        agree(again, live, 3)


async def test_viewers_with_one_delay_share_every_frame(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The viewers share one replay, which makes one frame of each message.

    The replay ends with its last viewer, or with the board.
    """
    made: list[bytes] = []
    make = Frame

    async with journaling(valkey_url) as server, watching(server) as live:
        await live.until(lambda message: message["type"] == "sync")
        viewers = [watching(server, f"?delay={DELAY}s") for _ in range(20)]
        tapes = await asyncio.gather(*(viewer.__aenter__() for viewer in viewers))

        def count(kind: Any, payload: bytes, identity: str) -> Any:
            made.append(payload)
            return make(kind, payload, identity)

        monkeypatch.setattr(replays, "Frame", count)
        last = await play(server, live, 5)
        await asyncio.gather(*(tape.until_offset(last) for tape in tapes))
        updates = [text for text in tapes[0].messages if b'"update"' in text]
        assert updates
        assert all(made.count(text) == 1 for text in updates)
        assert len({tuple(tape.messages[-len(updates) :]) for tape in tapes}) == 1
        assert len(server.live.hub._replays._all) == 1
        assert server.watching == 21
        await asyncio.gather(*(viewer.__aexit__(None, None, None) for viewer in viewers))
        await eventually(lambda: gone(server))
        assert server.watching == 21 - len(viewers)
        async with watching(server, f"?delay={DELAY}s") as delayed:
            await delayed.until(lambda message: message["type"] == "sync")
            server.live.hub.remove("posts")
            await eventually(lambda: gone(server))


@pytest.mark.mutant
async def test_a_missing_delay_is_detected(valkey_url: str) -> None:
    """The mutant sends each message as soon as it is in the journal."""

    def no_later(_: replays.Pace) -> int:
        return round(time.time() * 1000)

    with (
        must_be_caught("messages are sent before they are due"),
        replaced(replays.Pace, "due", lambda *_: 0.0),
        replaced(replays.Pace, "now", no_later),
    ):
        await test_a_delayed_viewer_sees_what_a_live_one_saw(valkey_url)


@pytest.mark.mutant
async def test_a_message_that_is_missing_is_detected(valkey_url: str) -> None:
    """The mutant leaves out the second frame of each answer of the replay process."""
    send = replays.Playback._send

    async def some(own: replays.Playback, messages: Played) -> None:
        await send(own, msgspec.structs.replace(messages, frames=messages.frames[:1] + messages.frames[2:]))

    with must_be_caught("an update does not follow from the one before"), replaced(replays.Playback, "_send", some):
        await test_a_replay_begins_with_the_state_of_its_time_and_becomes_live(valkey_url)


async def test_event_streams_play_too(valkey_url: str) -> None:
    """Event streams receive the same messages as WebSockets."""
    async with journaling(valkey_url) as server, watching(server) as live:
        began = text_of(time.time())
        last = await play(server, live, 3)
        await until_past(server, last)
        payloads: list[bytes] = []
        async with server.client.stream(
            "GET", f"/v1/boards/posts/stream?at={began}&speed=10", headers={"Accept-Encoding": "identity"}
        ) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and "alive" not in line:
                    payloads.append(line.removeprefix("data: ").encode())
                if '"at":null' in line:
                    break
        assert payloads[0].startswith(b'{"type":"replay"')
        assert msgspec.json.decode(payloads[-2])["offset"] == last


async def test_a_replay_close_to_the_present_is_live_at_once(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The viewer sees nothing of the past, and receives the whole present top."""
    monkeypatch.setattr(replays, "_PRESENT", 60_000)
    async with journaling(valkey_url) as server:
        began = time.time()
        last = await server.post({"key": "mark"})
        async with watching(server, f"?at={text_of(began)}") as again:
            await again.until_offset(last)
        begins, ends, sync = (msgspec.json.decode(text) for text in again.messages)
        assert (begins["type"], begins["at"] is None) == ("replay", False)
        assert (ends["type"], ends["at"]) == ("replay", None)
        assert (sync["type"], sync["offset"]) == ("sync", last)


async def test_a_fast_replay_sends_no_more_messages_a_second(valkey_url: str) -> None:
    """At a higher speed, each message shows more of the past."""
    interval, speed = 0.5, 20
    async with journaling(valkey_url, conflation_interval=Duration(interval)) as server, watching(server) as live:
        began = time.time()
        while time.time() < began + 6:
            last = await play(server, live, 1)
        await until_drained(server, last)
        async with watching(server, f"?at={text_of(began)}&speed={speed}") as fast:
            await fast.until(lambda message: message["type"] == "replay" and message["at"] is None)
            shown = [text for text in fast.messages if b'"replay"' not in text]
            assert len(shown) <= 2 + 6 / (interval * speed)
            await fast.until_offset(last)
        assert fast.states[last] == live.states[last]


async def test_another_process_plays_too(valkey_url: str) -> None:
    """The other process reads the same journal."""
    async with journaling(valkey_url) as server, watching(server) as live:
        own = server.live.settings
        same: dict[str, Any] = {"key_prefix": own.key_prefix, "data_dir": own.data_dir}
        async with (
            served(valkey_url, journal="sqlite", **same) as second,
            watching(second, f"?delay={DELAY}s") as delayed,
        ):
            last = await play(server, live, 5)
            await delayed.until_offset(last)
        agree(delayed, live)


def process_of(server: Served) -> int:
    """The id of the process that plays the boards of a server."""
    own = server.live.players
    assert own is not None
    assert own._pool is not None
    (process,) = own._pool._processes
    return process


async def test_replays_continue_after_their_process_was_killed(valkey_url: str) -> None:
    """Viewers learn that the board is stale for a moment, and then receive everything up to the newest state."""
    async with journaling(valkey_url) as server, watching(server) as live:
        await live.until(lambda message: message["type"] == "sync")
        async with watching(server, f"?delay={DELAY}s") as delayed:
            await delayed.until(lambda message: message["type"] == "sync")
            os.kill(process_of(server), signal.SIGKILL)
            last = await play(server, live, 5)
            await delayed.until(lambda message: message["type"] == "status" and message["stale"])
            await delayed.until(lambda message: message["type"] == "status" and not message["stale"])
            await delayed.until_offset(last)
        agree(delayed, live)


async def short_visits_share_a_process(store: str) -> None:
    """Begin replays and cancel them before they have begun, and count the processes that start."""
    pools: list[Any] = []
    start = ProcessPoolExecutor

    def count(*given: Any) -> Any:
        pools.append(start(*given))
        return pools[-1]

    async with journaling(store) as server:
        own = server.live.players
        assert own is not None
        with replaced(players, "ProcessPoolExecutor", count):
            for _ in range(5):
                visit = asyncio.create_task(own.begin("", rolling_board(), (), 50, 0))
                await eventually(lambda: is_started(own))
                visit.cancel()
                await asyncio.wait([visit])
            assert not own._running
            assert await own.begin("", rolling_board(), (), 50, 0) is not None
            assert len(pools) == 1, f"{len(pools)} processes for 6 visits"


async def is_started(own: PlayerProcess) -> bool:
    """Return whether the replay process runs."""
    return own._pool is not None


async def test_short_visits_share_a_process(valkey_url: str) -> None:
    """No client can start a process with each connection."""
    await short_visits_share_a_process(valkey_url)


@pytest.mark.mutant
async def test_a_process_for_each_visit_is_detected(valkey_url: str) -> None:
    """The mutant ends the replay process as soon as it has no replay."""
    end = PlayerProcess.end

    def at_once(own: PlayerProcess, number: int) -> None:
        end(own, number)
        own._end_unused()

    with must_be_caught("each visit starts a process"), replaced(PlayerProcess, "end", at_once):
        await short_visits_share_a_process(valkey_url)


async def addresses_take_turns(store: str) -> None:
    """Let one address ask for many replays, and then another address for one replay."""
    async with journaling(store) as server:
        own = server.live.players
        assert own is not None
        many = [asyncio.create_task(own.begin("one", rolling_board(), (), 50, 0)) for _ in range(20)]
        await eventually(lambda: is_started(own))
        assert await own.begin("another", rolling_board(), (), 50, 0) is not None
        done = sum(each.done() for each in many)
        await asyncio.gather(*many)
        assert done <= 2, f"the other address waits for {done} replays"


async def test_addresses_take_turns(valkey_url: str) -> None:
    """An address with many replays delays only its own replays."""
    await addresses_take_turns(valkey_url)


@pytest.mark.mutant
async def test_replays_in_the_order_of_their_requests_are_detected(valkey_url: str) -> None:
    """The mutant does not distinguish between addresses."""
    run = PlayerProcess._run

    def all_alike(own: PlayerProcess, _address: str, *given: Any) -> Any:
        return run(own, "", *given)

    with must_be_caught("replays begin in the order of their requests"), replaced(PlayerProcess, "_run", all_alike):
        await addresses_take_turns(valkey_url)


async def test_the_other_process_ends_after_the_last_replay(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last replay, the memory of the replay process is free.

    The next replay starts a new process, but only after the old one has ended.
    """
    monkeypatch.setattr(players, "_KEPT", 0.0)
    async with journaling(valkey_url) as server:
        own = server.live.players
        processes: list[Any] = []
        assert own is not None

        async def has_ended() -> bool:
            return own._pool is None

        for _ in range(2):
            found = await own.begin("", rolling_board(), (), 50, 0)
            assert found is not None
            assert all(not process.is_alive() for process in processes), (
                "a new process started before the old one had ended"
            )
            assert own._pool is not None
            processes.extend(own._pool._processes.values())
            own.end(found[0])
            await eventually(has_ended)
            assert not own._running
        assert len(processes) == 2


async def a_new_process_forgets_old_replays(store: str) -> None:
    """Kill the process of a replay, and let the viewer leave when the replay goes on."""
    async with journaling(store) as server:
        async with watching(server, f"?delay={DELAY}s") as delayed:
            await delayed.until(lambda message: message["type"] == "sync")
            os.kill(process_of(server), signal.SIGKILL)
            await delayed.until(lambda message: message["type"] == "status" and message["stale"])
            await delayed.until(lambda message: message["type"] == "sync")
        await eventually(lambda: gone(server))
        own = server.live.players
        assert own is not None
        assert not own._running, "a replay that has ended counts as running"


async def test_a_new_process_forgets_old_replays(valkey_url: str) -> None:
    """If the new process counted old replays as running, it would never end."""
    await a_new_process_forgets_old_replays(valkey_url)


@pytest.mark.mutant
async def test_a_replay_that_is_never_ended_is_detected(valkey_url: str) -> None:
    """The mutant does not end the first replay, which only the killed process knew."""
    end = PlayerProcess.end

    def all_but_the_first(own: PlayerProcess, number: int) -> None:
        if number > 1:
            end(own, number)

    with must_be_caught("a replay that has ended counts as running"), replaced(PlayerProcess, "end", all_but_the_first):
        await a_new_process_forgets_old_replays(valkey_url)


async def test_a_replay_waits_for_memory(valkey_url: str) -> None:
    """The viewer learns that the replay waits for memory. It receives the board when there is room."""
    begin = PlayerProcess.begin
    full = True

    async def without(own: PlayerProcess, *given: Any, **named: Any) -> tuple[int, int] | None:
        if full:
            raise TooLittleMemoryError("the replays that run take too much memory")
        return await begin(own, *given, **named)

    async with journaling(valkey_url) as server:
        with replaced(PlayerProcess, "begin", without):
            async with watching(server, f"?delay={DELAY}s") as delayed:
                told = await delayed.until(lambda message: message["type"] == "status")
                assert (told["stale"], told["reason"]) == (True, "too many replays run")
                full = False
                await delayed.until(lambda message: message["type"] == "status" and not message["stale"])
                await delayed.until(lambda message: message["type"] == "sync")


async def test_memory_is_limited(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first replay may always begin, however much memory it takes. Beyond the limit, no other replay may."""
    monkeypatch.setattr(players, "MOST_MEMORY", 1)
    monkeypatch.setattr(players, "_REPLAYS", {})
    monkeypatch.setattr(players, "_DATABASES", {})
    async with journaling(valkey_url) as server:
        board: Board = rolling_board()

        def begin(number: int) -> int | None:
            return players._begin(server.live.settings, number, board, frozenset(), 50, 0)

        assert await asyncio.to_thread(begin, 1) is not None
        with pytest.raises(StoreUnavailableError, match="too much memory"):
            await asyncio.to_thread(begin, 2)
        players._REPLAYS[2] = players._REPLAYS[1]
        assert await asyncio.to_thread(players._play, server.live.settings, 1, 0, 1.0, 1000, None) is not None
        with pytest.raises(StoreUnavailableError, match="too much memory"):
            await asyncio.to_thread(players._play, server.live.settings, 2, 0, 1.0, 1000, None)
        assert set(players._REPLAYS) == {1}
        players._end(1)
        assert await asyncio.to_thread(begin, 3) is not None
        players._database(server.live.settings).close()
