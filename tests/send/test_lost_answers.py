"""Each event counts exactly once, even if answers are lost and the command is killed."""

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import pytest

from live.client import sender, target
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.errors import SetupError
from live.send.run import SendOptions, SendOutcome, send_file, with_id
from tests.harness.boards import rolling_board
from tests.harness.forked import ForkedProcess, run_live
from tests.harness.network import free_port
from tests.harness.proxy import LossyProxy, lossy
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.send.support import Event, many, noted, scores, send, sums, write

RUN = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pause before a lost batch is sent again."""
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.1)


@pytest.mark.slow
async def test_a_file_counts_once_over_a_lossy_connection(tmp_path: Path, url: str) -> None:
    """The proxy loses requests and answers. A third of the events have their own ids."""
    events: list[Event] = many(30_000)
    for number in range(0, 30_000, 3):
        events[number]["id"] = str(number)
    path = write(tmp_path / "e.ndjson", events)
    async with lossy(url, share=0.3) as proxy:
        outcome = await send(path, proxy.url)

    assert proxy.lost_requests > 2
    assert proxy.lost_answers > 2
    assert await scores(url) == sums(events)
    assert outcome.accepted + outcome.duplicate == outcome.sent == 30_000
    assert outcome.duplicate >= 1000
    assert outcome.lost == proxy.lost_requests + proxy.lost_answers
    assert noted(SendOptions(path=path, url=proxy.url)) is None


@pytest.mark.slow
async def test_a_file_counts_once_if_the_command_is_killed_repeatedly(valkey_url: str, tmp_path: Path) -> None:
    """`kill -9` comes after the server has counted a batch, and before the command has the answer.

    `live check` finds no drift.
    """
    path = write(tmp_path / "e.csv.gz", many(40_000))
    settings = fresh_settings(valkey_url, port=free_port())
    server = ServerProcess(settings, tmp_path)
    server.start()
    chance = random.Random(3)
    killed = 0
    async with lossy(server.url, share=0.05) as proxy:
        words = ["send", str(path), "--server", proxy.url, "--json"]
        while killed < 4:
            started = ForkedProcess(words, os.environ, tmp_path, tmp_path / "killed", tmp_path / "killed")
            await first_batch_of(proxy, chance)
            started.kill()
            killed += 1
        proxy.silent = False
        last = await asyncio.to_thread(run_live, *words, environment=os.environ)
        outcome = json.loads(last.stdout)
    check = await asyncio.to_thread(run_live, "check", "--json", environment=server.environment)
    assert json.loads(check.stdout)["clean"] is True
    assert await scores(server.url) == sums(many(40_000))
    assert outcome["sent"] == 40_000
    assert outcome["resumed_at"] > 0
    assert outcome["duplicate"] >= 1000
    assert server.stop() == 0


async def first_batch_of(proxy: LossyProxy, chance: random.Random) -> None:
    """Let a few batches through, and then hold back the answer to the next batch."""
    proxy.silent = False
    wanted = proxy.answers + chance.randrange(1, 6)

    async def enough() -> bool:
        return proxy.answers >= wanted

    await eventually(enough)
    proxy.went_silent.clear()
    proxy.silent = True
    await proxy.went_silent.wait()


@pytest.mark.slow
async def test_events_in_doubt_count_once_in_other_batches(valkey_url: str, tmp_path: Path) -> None:
    """A batch in doubt is sent again as smaller batches, because an id belongs to an event and not to a batch."""
    events: list[Event] = [
        {"key": f"k{i % 3}", "time": f"2015-05-17T10:{i // 60:02}:{i % 60:02}Z"} for i in range(1500)
    ]
    path = write(tmp_path / "e.ndjson", events)
    board = make_board(Choices(id="posts", clock="event"))
    async with run_server(fresh_settings(valkey_url), [board]) as url, lossy(url) as proxy:
        proxy.silent = True
        await cut_off(proxy, SendOptions(path=path, url=proxy.url))
        proxy.silent = False
        outcome = await send(path, proxy.url, speed=1000.0)
        assert (outcome.accepted, outcome.duplicate) == (500, 1000)
        assert await scores(url) == sums(events)


async def cut_off(proxy: LossyProxy, options: SendOptions) -> None:
    """Send until the proxy holds back an answer, then cancel the run, so that the batch stays in doubt."""
    cut = asyncio.create_task(send_file(options, lambda *_: None))
    await proxy.went_silent.wait()
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)


@pytest.mark.slow
async def test_an_answer_that_never_arrives_is_lost(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is sent again after a timeout. If the patience ends, the run stops, and the next run continues."""
    monkeypatch.setattr(sender, "_TIMEOUT", 0.5)
    path = write(tmp_path / "e.ndjson", many(1500))
    async with lossy(url) as proxy:
        proxy.silent = True
        sending_it = asyncio.create_task(send(path, proxy.url))
        await proxy.went_silent.wait()
        proxy.silent = False
        assert await sending_it == SendOutcome(sent=1500, accepted=500, duplicate=1000, lost=1)

        monkeypatch.setattr(target, "_PATIENCE", 0.1)
        proxy.silent = True
        with pytest.raises(SetupError, match=r"stays unavailable \(TimeoutError\).* do not count again"):
            await send(path, proxy.url)
        proxy.silent = False
        assert (await send(path, proxy.url)).sent == 1500
    assert await scores(url) == sums([*many(1500), *many(1500)])


@pytest.mark.slow
async def test_a_store_that_freezes_counts_the_current_batch_once(own_store: StoreProcess, tmp_path: Path) -> None:
    """The server does not know whether the batch counted. The batch is sent again until the server knows."""
    path = write(tmp_path / "e.ndjson", many(2500))
    settings = fresh_settings(own_store.url, write_deadline=0.7, store_timeout=0.6, rate=0)
    async with run_server(settings, [rolling_board()]) as url:
        assert await scores(url) == {}
        with own_store.frozen():
            sending_it = asyncio.create_task(send(path, url))
            await asyncio.sleep(2)
            assert not sending_it.done()
        outcome = await sending_it
        assert outcome.lost >= 1
        assert outcome.accepted + outcome.duplicate == 2500
        assert await scores(url) == sums(many(2500))


@pytest.mark.slow
async def test_without_ids_an_unknown_outcome_stops_the_run(own_store: StoreProcess, tmp_path: Path) -> None:
    """A frozen store may count the batch when it wakes, so the batch is not sent again."""
    path = write(tmp_path / "e.ndjson", many(2500))
    settings = fresh_settings(own_store.url, write_deadline=0.7, store_timeout=0.6, rate=0)
    async with run_server(settings, [rolling_board()]) as url:
        assert await scores(url) == {}
        with own_store.frozen(), pytest.raises(SetupError, match="so they may have been counted"):
            await send(path, url, ids=False)


async def test_without_ids_the_store_keeps_none(url: str, tmp_path: Path) -> None:
    """Events that are sent twice count twice, unless they have ids of their own."""
    path = write(tmp_path / "e.ndjson", [*many(10), {"key": "own", "id": "7"}])
    assert await send(path, url, ids=False) == SendOutcome(sent=11, accepted=11)
    assert await send(path, url, ids=False) == SendOutcome(sent=11, accepted=10, duplicate=1)


async def test_another_producer_does_not_continue_in_doubt(url: str, tmp_path: Path) -> None:
    """Ids are per producer: if another producer sent these events again, they would count twice."""
    path = write(tmp_path / "e.ndjson", many(1500))
    async with lossy(url) as proxy:
        options = SendOptions(path=path, url=proxy.url)
        proxy.silent = True
        await cut_off(proxy, options)
        proxy.silent = False
        with pytest.raises(SetupError, match=r"were sent without an API key .* would count twice"):
            await send(path, proxy.url, key="shop.secret")
        note = noted(options)
        assert note is not None
        assert (note.sent, note.reach, note.producer) == (0, 1000, "")
        assert (await send(path, proxy.url)).duplicate == 1000


@pytest.mark.slow
async def test_a_429_is_obeyed(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after a 429 does not use up the patience, however long the pause is."""
    monkeypatch.setattr(target, "_PATIENCE", 0.2)
    path = write(tmp_path / "e.ndjson", many(4500))
    async with run_server(fresh_settings(valkey_url, rate=1000), [rolling_board()]) as url:
        assert await send(path, url) == SendOutcome(sent=4500, accepted=4500)


@pytest.mark.parametrize(
    ("event", "sent"),
    [
        (b'{"key":"a"}', b'{"key":"a","source":"replay:%b","id":"41"}'),
        (b' {"key":"a" } ', b' {"key":"a" ,"source":"replay:%b","id":"41"}'),
        (b'{"key":"a","source":"shop"}', b'{"key":"a","source":"shop","id":"replay:%b:41"}'),
        (b'{"key":"a","key":"b"}', b'{"key":"a","key":"b","source":"replay:%b","id":"41"}'),
        *((event, event) for event in (
            b'{"key":"a","id":"7"}', b'{"key":"a","id":null}', b'{"key":"a","\\u0069d":"7"}', b"{}", b"[]", b'"x"',
            b'{"key":', b'{"key":"a}', b'{"a":' + b"[" * 100_000, b"\xff",
        )),
    ],
)  # fmt: skip
def test_an_event_gets_an_id_unless_it_has_one(event: bytes, sent: bytes) -> None:
    """An event keeps its own id, even an invalid id. A line that is not an event stays as it is."""
    assert with_id(event, b"replay:" + RUN, 41) == sent.replace(b"%b", RUN)


@pytest.mark.slow
async def test_an_interrupt_while_the_server_is_away_saves_the_doubt(tmp_path: Path, url: str) -> None:
    """The run ends between two attempts, and the next run sends the batch again."""
    path = write(tmp_path / "e.ndjson", many(1500))
    async with lossy(url, share=1.0) as proxy:
        options = SendOptions(path=path, url=proxy.url)
        stopping = asyncio.create_task(send_file(options, lambda *_: None))

        async def lost() -> bool:
            return proxy.lost_requests > 0

        await eventually(lost)
        os.kill(os.getpid(), signal.SIGINT)
        outcome = await stopping
        note = noted(options)
        assert (outcome.stopped, outcome.sent) == (True, 0)
        assert note is not None
        assert note.reach == 1000
        proxy.share = 0.0
        assert (await send(path, proxy.url)).sent == 1500
    assert await scores(url) == sums(many(1500))
