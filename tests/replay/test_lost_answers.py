"""Whatever is lost on the way, and however often the command is killed: each event counts exactly once."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from live.client import sender
from live.domain.board_file import BoardChoice, make_board
from live.errors import SetupError
from live.replay.batches import with_id
from live.replay.options import Options
from live.replay.run import Outcome, replay
from live.settings import Duration
from tests.replay.support import Event, Proxy, free_port, lossy, many, noted, scores, send, sums, write
from tests.support import ServerProcess, StoreProcess, eventually, fresh_settings, rolling_board, run_server

RUN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost is sent again soon."""
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.1)


async def test_a_file_counts_once_through_a_line_that_loses_at_random(tmp_path: Path, url: str) -> None:
    """Requests that never came, answers that were lost; with ids of their own, and without."""
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
    assert noted(Options(path=path, url=proxy.url)) is None


@pytest.mark.timeout(180)
async def test_a_file_counts_once_however_often_the_command_is_killed(valkey_url: str, tmp_path: Path) -> None:
    """`kill -9` with a batch counted and its answer not read, or anywhere; the audit agrees."""
    path = write(tmp_path / "e.csv.gz", many(40_000))
    settings = fresh_settings(valkey_url, port=free_port())
    server = ServerProcess(settings, tmp_path)
    server.start()
    chance = random.Random(3)
    killed = 0
    async with lossy(server.url, share=0.05) as proxy:
        command = [sys.executable, "-m", "live", "replay", str(path), "--to", proxy.url, "--json"]
        while killed < 4:
            started = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            await first_batch_of(proxy, chance)
            started.kill()
            await started.communicate()
            killed += 1
        proxy.silent = False
        last = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        outcome = json.loads((await last.communicate())[0])
    audit = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "live", "audit", "--json", stdout=subprocess.PIPE, env=server.environment
    )

    assert json.loads((await audit.communicate())[0])["clean"] is True
    assert await scores(server.url) == sums(many(40_000))
    assert outcome["sent"] == 40_000
    assert outcome["resumed_at"] > 0
    assert outcome["duplicate"] >= 1000
    assert server.stop() == 0


async def first_batch_of(proxy: Proxy, chance: random.Random) -> None:
    """Let a few batches through, then one more whose answer is held back."""
    proxy.silent = False
    wanted = proxy.answers + chance.randrange(1, 6)

    async def enough() -> bool:
        return proxy.answers >= wanted

    await eventually(enough)
    proxy.went_silent.clear()
    proxy.silent = True
    await proxy.went_silent.wait()


async def test_other_batches_count_what_was_in_doubt_once(valkey_url: str, tmp_path: Path) -> None:
    """Cut off with a whole batch in doubt, then sent in smaller ones: an id belongs to an event, not to a batch."""
    events: list[Event] = [
        {"key": f"k{i % 3}", "time": f"2015-05-17T10:{i // 60:02}:{i % 60:02}Z"} for i in range(1500)
    ]
    path = write(tmp_path / "e.ndjson", events)
    board = make_board(BoardChoice(id="posts", clock="event"))
    async with run_server(fresh_settings(valkey_url), [board]) as url, lossy(url) as proxy:
        proxy.silent = True
        await cut_off(proxy, Options(path=path, url=proxy.url))
        proxy.silent = False
        outcome = await send(path, proxy.url, speed=1000.0)
        assert (outcome.accepted, outcome.duplicate) == (500, 1000)
        assert await scores(url) == sums(events)


async def cut_off(proxy: Proxy, options: Options) -> None:
    """Replay until an answer is held back, and end it there as a kill would."""
    cut = asyncio.create_task(replay(options, lambda *_: None))
    await proxy.went_silent.wait()
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)


async def test_an_answer_that_never_comes_is_lost_too(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time the batch is sent again; one that is away for too long ends the replay, and the next goes on."""
    monkeypatch.setattr(sender, "_TIMEOUT", 0.5)
    path = write(tmp_path / "e.ndjson", many(1500))
    async with lossy(url) as proxy:
        proxy.silent = True
        sending_it = asyncio.create_task(send(path, proxy.url))
        await proxy.went_silent.wait()
        proxy.silent = False
        assert await sending_it == Outcome(sent=1500, accepted=500, duplicate=1000, lost=1)

        monkeypatch.setattr(sender, "PATIENCE", 0.1)
        proxy.silent = True
        with pytest.raises(SetupError, match=r"stays unavailable \(TimeoutError\).* count once"):
            await send(path, proxy.url)
        proxy.silent = False
        assert (await send(path, proxy.url)).sent == 1500
    assert await scores(url) == sums([*many(1500), *many(1500)])


async def test_a_store_that_froze_with_a_batch_in_hand_counts_it_once(own_store: StoreProcess, tmp_path: Path) -> None:
    """The server does not know what became of it; it is sent again until the server does."""
    path = write(tmp_path / "e.ndjson", many(2500))
    settings = fresh_settings(own_store.url, write_deadline=Duration(0.3), store_timeout=Duration(0.2), rate=0)
    async with run_server(settings, [rolling_board()]) as url:
        assert await scores(url) == {}
        with own_store.frozen():
            sending_it = asyncio.create_task(send(path, url))
            await asyncio.sleep(1)
            assert not sending_it.done()
        outcome = await sending_it
        assert outcome.lost >= 1
        assert outcome.accepted + outcome.duplicate == 2500
        assert await scores(url) == sums(many(2500))


async def test_without_ids_a_batch_of_which_nobody_knows_ends_the_replay(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """A store that froze with a batch in hand may count it when it wakes: it is not sent again in silence."""
    path = write(tmp_path / "e.ndjson", many(2500))
    settings = fresh_settings(own_store.url, write_deadline=Duration(0.3), store_timeout=Duration(0.2), rate=0)
    async with run_server(settings, [rolling_board()]) as url:
        assert await scores(url) == {}
        with own_store.frozen(), pytest.raises(SetupError, match="they may have been counted or not"):
            await send(path, url, ids=False)


async def test_without_ids_the_store_keeps_none(url: str, tmp_path: Path) -> None:
    """What is sent twice counts twice, unless the events have ids of their own."""
    path = write(tmp_path / "e.ndjson", [*many(10), {"key": "own", "id": "7"}])
    assert await send(path, url, ids=False) == Outcome(sent=11, accepted=11)
    assert await send(path, url, ids=False) == Outcome(sent=11, accepted=10, duplicate=1)


async def test_another_producer_does_not_go_on_with_what_is_in_doubt(url: str, tmp_path: Path) -> None:
    """Ids are a producer's own, so it would count twice; who was stopped in order leaves nothing in doubt."""
    path = write(tmp_path / "e.ndjson", many(1500))
    async with lossy(url) as proxy:
        options = Options(path=path, url=proxy.url)
        proxy.silent = True
        await cut_off(proxy, options)
        proxy.silent = False
        with pytest.raises(SetupError, match=r"were sent without an API key .* would count twice"):
            await send(path, proxy.url, key="shop.secret")
        note = noted(options)
        assert note is not None
        assert (note.sent, note.reach, note.producer) == (0, 1000, "")
        assert (await send(path, proxy.url)).duplicate == 1000


@pytest.mark.timeout(60)
async def test_who_is_told_to_send_less_does(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 429 is not a server that is away, however long it goes on."""
    monkeypatch.setattr(sender, "PATIENCE", 0.2)
    path = write(tmp_path / "e.ndjson", many(4500))
    async with run_server(fresh_settings(valkey_url, rate=1000, burst=1000), [rolling_board()]) as url:
        assert await send(path, url) == Outcome(sent=4500, accepted=4500)


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
def test_an_event_is_given_an_id_unless_it_has_one(event: bytes, sent: bytes) -> None:
    """Its own stays, also one that the server refuses; what is no event stays as it is."""
    assert with_id(event, RUN, 41) == sent.replace(b"%b", RUN.encode())


async def test_an_interrupt_while_a_server_is_away_leaves_the_doubt_noted(tmp_path: Path, url: str) -> None:
    """Between two attempts it ends at once; the batch is still the next run's to send again."""
    path = write(tmp_path / "e.ndjson", many(1500))
    async with lossy(url, share=1.0) as proxy:
        options = Options(path=path, url=proxy.url)
        stopping = asyncio.create_task(replay(options, lambda *_: None))

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
