"""`live send` reports its progress, saves it for the next run, and waits for a server that is away."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from live.errors import SetupError
from live.metrics import REGISTRY
from live.send.run import ProgressFile, SendOptions, SendOutcome, progress_path, send_file
from tests.harness.boards import rolling_board
from tests.harness.network import free_port
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.send.support import TOO_LARGE, Event, many, noted, scores, send, sums, write

START = 1_431_856_800  # 17 May 2015 10:00 UTC


async def test_a_refused_batch_stops_the_run(tmp_path: Path, url: str) -> None:
    """The message has the server's answer, and the progress is saved."""
    path = tmp_path / "e.ndjson"
    path.write_bytes(b'{"key":"a"}\n' * 1000 + TOO_LARGE)
    with pytest.raises(SetupError, match="the server refused the request with 413: "):
        await send(path, url)
    assert await scores(url) == {"a": 1000}
    note = noted(SendOptions(path=path, url=url))
    assert note is not None
    assert (note.sent, note.reach) == (1000, 0)


async def test_progress_is_reported(tmp_path: Path, url: str) -> None:
    """Each report has numbers of bytes and events, which never decrease. The last report has all bytes."""
    path = write(tmp_path / "e.ndjson.gz", many(3500))
    reports: list[tuple[int, int, int]] = []
    await send_file(SendOptions(path=path, url=url), lambda *numbers: reports.append(numbers))
    assert reports == sorted(reports)
    assert [events for _, _, events in reports] == [1000, 2000, 3000, 3500, 3500]
    assert reports[-1][0] == reports[-1][1] == path.stat().st_size


@pytest.mark.slow
async def test_a_run_keeps_the_pace_of_its_events(tmp_path: Path, url: str) -> None:
    """At twice the pace, a gap of half a second takes a quarter of a second.

    At the speed `max`, even a gap of hours takes no time.
    """

    def with_gap(milliseconds: int) -> Path:
        first = [{"key": "a", "time": f"2015-05-17T10:00:00.{i:03}Z"} for i in range(1000)]
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START + milliseconds // 1000))
        return write(tmp_path / "e.ndjson", [*first, {"key": "a", "time": f"{at}.{milliseconds % 1000:03}Z"}])

    due = time.monotonic() + 0.25
    assert (await send(with_gap(500), url, board="log", speed=2.0)).accepted == 1001
    assert time.monotonic() >= due
    assert (await send(with_gap(20 * 3600 * 1000), url, board="log")).accepted == 1001


async def test_a_complete_run_leaves_nothing(tmp_path: Path, url: str, state_folder: Path) -> None:
    """The next run starts at the beginning of the file."""
    path = write(tmp_path / "e.ndjson", many(1500))
    for times in (1, 2):
        outcome = await send(path, url)
        assert (outcome.sent, outcome.resumed_at) == (1500, 0)
        assert sum((await scores(url)).values()) == 1500 * times
    assert list((state_folder / "live-board").iterdir()) == []


async def test_progress_belongs_to_a_file_a_server_and_a_board(tmp_path: Path, url: str) -> None:
    """A changed file, another server, another board or --restart starts the file over."""
    path = write(tmp_path / "e.ndjson", many(1500))
    note = progress_path(SendOptions(path=path, url=url))
    note.parent.mkdir(parents=True)
    note.write_bytes(msgspec.json.encode(ProgressFile(run="0" * 16, sent=1200)))
    assert note not in map(
        progress_path, (SendOptions(path=path, url=url, board="log"), SendOptions(path=path, url="http://x"))
    )
    assert (await send(path, url, restart=True)).accepted == 1500
    note.write_bytes(msgspec.json.encode(ProgressFile(run="0" * 16, sent=1200)))
    assert await send(path, url) == SendOutcome(sent=1500, accepted=300, resumed_at=1200)
    write(path, many(1501))
    assert progress_path(SendOptions(path=path, url=url)) != note


@pytest.mark.slow
async def test_a_killed_run_continues(valkey_url: str, tmp_path: Path) -> None:
    """The server is restarted before the second run, and each event counts once."""
    events: list[Event] = [{**event, "time": "2015-05-17T10:00:00Z"} for event in many(2000)]
    # At speed 1, the program would wait an hour before these events.
    events += [{**event, "time": "2015-05-17T11:00:00Z"} for event in many(1500)]
    path = write(tmp_path / "e.ndjson", events)
    boards = tmp_path / "boards.toml"
    boards.write_text('[[board]]\nid = "posts"\nclock = "event"')
    server = ServerProcess(fresh_settings(valkey_url, port=free_port(), boards=boards), tmp_path)
    server.start()
    command = [sys.executable, "-m", "live", "send", str(path), "--server", server.url]
    first = await asyncio.create_subprocess_exec(*command, "--speed", "1")
    options = SendOptions(path=path, url=server.url)

    async def half_way() -> bool:
        note = noted(options)
        return note is not None and note.sent == 2000

    await eventually(half_way)
    first.kill()
    await first.wait()
    assert server.stop() == 0
    server.start()

    again = await asyncio.create_subprocess_exec(*command, "--json", stdout=subprocess.PIPE)
    outcome = json.loads((await again.communicate())[0])
    assert [outcome[name] for name in ("resumed_at", "sent", "accepted")] == [2000, 3500, 1500]
    assert await scores(server.url) == sums(events)
    assert noted(options) is None
    assert server.stop() == 0


@pytest.mark.slow
async def test_a_run_waits_for_a_server_that_is_away(valkey_url: str, tmp_path: Path) -> None:
    """A restart of the server costs time but no event."""
    path = write(tmp_path / "e.ndjson", many(3500))
    server = ServerProcess(fresh_settings(valkey_url, port=free_port()), tmp_path)
    server.start()
    starting: list[asyncio.Future[None]] = []

    def restart(_read: int, _total: int, sent: int) -> None:
        if sent == 1000:
            server.stop()
            starting.append(asyncio.ensure_future(asyncio.to_thread(server.start)))

    assert await send_file(SendOptions(path=path, url=server.url), restart) == SendOutcome(sent=3500, accepted=3500)
    await asyncio.gather(*starting)
    assert await scores(server.url) == sums(many(3500))
    assert server.stop() == 0


@pytest.mark.slow
async def test_a_run_waits_for_a_store_that_is_away(own_store: StoreProcess, tmp_path: Path) -> None:
    """The server says that nothing was counted."""
    path = write(tmp_path / "e.ndjson", many(10))
    settings = fresh_settings(own_store.url, write_deadline=1)
    before = refused_for_the_store()
    async with run_server(settings, [rolling_board()]) as url:
        own_store.kill()
        sending = asyncio.create_task(send(path, url))

        async def refused() -> bool:
            return refused_for_the_store() > before

        await eventually(refused)
        own_store.start()
        assert await sending == SendOutcome(sent=10, accepted=10)


async def test_an_interrupted_run_finishes_the_current_batch(url: str, tmp_path: Path) -> None:
    """After Ctrl-C, no outcome is in doubt. The next run continues after the last batch."""
    path = write(tmp_path / "e.ndjson", many(3500))

    def interrupt(_read: int, _total: int, sent: int) -> None:
        if sent == 1000:
            os.kill(os.getpid(), signal.SIGINT)

    first = await send_file(SendOptions(path=path, url=url), interrupt)
    second = await send(path, url)

    assert first.stopped
    assert 1000 <= first.sent < 3500
    assert (second.resumed_at, second.sent, second.stopped) == (first.sent, 3500, False)
    assert await scores(url) == sums(many(3500))


async def test_a_damaged_progress_file_is_not_ignored(url: str, tmp_path: Path, state_folder: Path) -> None:
    """The file does not say how much was sent, so nothing is sent without `--restart`."""
    path = write(tmp_path / "e.ndjson", many(3))
    note = progress_path(SendOptions(path=path, url=url))
    note.parent.mkdir(parents=True)
    for text in ("", "1200", '{"run":"0123456789abcdef","sent":-1}', '{"run":"x","sent":1}', "\xff"):
        note.write_text(text, encoding="latin-1")
        with pytest.raises(SetupError, match="--restart"):
            await send(path, url)
        assert note.read_text(encoding="latin-1") == text
    assert await scores(url) == {}
    assert (await send(path, url, restart=True)).sent == 3
    assert not list((state_folder / "live-board").iterdir())


async def test_a_waiting_run_can_be_interrupted(url: str, tmp_path: Path) -> None:
    """Ctrl-C does not wait until the next event is due, and nothing is in doubt."""
    events: list[Event] = [{"key": "a", "time": f"2015-05-17T{hour}:00:00Z"} for hour in (10, 11)]
    path = write(tmp_path / "e.ndjson", events)

    def interrupt(_read: int, _total: int, _sent: int) -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)

    options = SendOptions(path=path, url=url, board="log", speed=1.0)
    async with asyncio.timeout(60):
        first = await send_file(options, interrupt)
    note = noted(options)

    assert (first.stopped, first.sent) == (True, 1)
    assert note is not None
    assert (note.sent, note.reach) == (1, 0)
    assert (await send(path, url, board="log")).accepted == 1


@pytest.mark.slow
async def test_a_run_that_did_not_start_leaves_nothing(tmp_path: Path, url: str, state_folder: Path) -> None:
    """The path is a folder, or the server refuses the first batch."""
    (tmp_path / "bad").write_bytes(TOO_LARGE)
    for path in (tmp_path, tmp_path / "bad"):
        with pytest.raises(SetupError):
            await send(path, url)
    assert not list((state_folder / "live-board").iterdir())


def refused_for_the_store() -> float:
    """Return how many requests this process refused because the store was unavailable."""
    return REGISTRY.get_sample_value("live_problems_total", {"code": "store_unavailable"}) or 0
