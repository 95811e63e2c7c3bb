"""Replay: files of events in any form arrive whole and once, however often the way is cut."""

import asyncio
import csv
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.board import BoardChoice, make_board
from live.errors import SetupError
from live.metrics import REGISTRY
from live.replay import Options, Outcome, replay, state_path
from live.settings import Duration
from tests.support import ServerProcess, StoreProcess, eventually, fresh_settings, rolling_board, run_server

Event = dict[str, Any]
START = 1_431_856_800  # 17 May 2015 10:00 UTC


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where replays of a test keep how far they came; nobody's home is touched."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
async def url(valkey_url: str) -> AsyncIterator[str]:
    """The address of a server with two boards, one on the events' own clock."""
    boards = [rolling_board(), make_board(BoardChoice(id="log", source=("line",), clock="event"))]
    async with run_server(fresh_settings(valkey_url), boards) as address:
        yield address


async def send(path: Path, url: str, **options: Any) -> Outcome:
    """Replay a file to its end."""
    return await replay(Options(path=path, url=url, **options), lambda *_: None)


async def scores(url: str, board: str = "posts") -> dict[str, int]:
    """A whole board."""
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{url}/v1/boards/{board}?limit=1000")).json()
    return {record["key"]: record["score"] for record in page["records"]}


def write(path: Path, events: Sequence[Event]) -> Path:
    """Write events as the name of the file says."""
    packed = path.suffix == ".gz"
    with gzip.open(path, "wt", encoding="utf-8") if packed else path.open("w", encoding="utf-8", newline="") as file:
        if ".csv" in path.name.lower():
            writer = csv.DictWriter(file, ["key", "amount", "type"])
            writer.writeheader()
            writer.writerows(events)
        else:
            file.writelines(json.dumps(event) + "\n" for event in events)
    return path


def many(count: int, keys: int = 7) -> list[Event]:
    """So many likes."""
    return [{"key": f"k{i % keys}"} for i in range(count)]


def sums(events: Sequence[Event]) -> dict[str, int]:
    """What a board holds that has counted some events once."""
    totals: dict[str, int] = {}
    for event in events:
        totals[event["key"]] = totals.get(event["key"], 0) + event.get("amount", 1)
    return totals


@pytest.mark.parametrize("name", ["e.ndjson", "e.ndjson.gz", "e.csv", "e.csv.gz", "e.CSV", "e.log"])
async def test_a_file_is_sent_in_any_form(tmp_path: Path, url: str, name: str) -> None:
    """NDJSON or CSV by its name, packed or not; more than one batch of it; commas, quotes and lines of any script."""
    events = [*many(2500), {"key": 'a,"b"', "amount": 5}, {"key": "你好", "amount": -2, "type": "like"}]
    outcome = await send(write(tmp_path / name, events), url)
    assert outcome == Outcome(sent=2502, accepted=2502)
    assert await scores(url) == sums(events)


async def test_what_is_empty_is_no_event(tmp_path: Path, url: str) -> None:
    """Neither a blank line, nor the line end of Windows, nor a whole file."""
    path = tmp_path / "e.ndjson"
    path.write_bytes(b'\n{"key":"a"}\r\n   \r\n\r\n{"key":"b"}')
    assert await send(path, url) == Outcome(sent=2, accepted=2)
    for name in ("e.ndjson", "e.csv"):
        (tmp_path / name).write_bytes(b"")
        assert await send(tmp_path / name, url) == Outcome()


async def test_every_event_can_be_given_to_a_board(tmp_path: Path, url: str) -> None:
    """Whatever board or type it names itself."""
    events: list[Event] = [{"key": "a", "time": "2015-05-17T10:00:00Z"}, {"key": "b", "board": "posts", "type": "x"}]
    path = write(tmp_path / "e.ndjson", [{**event, "time": "2015-05-17T10:00:00Z"} for event in events])
    assert (await send(path, url, board="log")).accepted == 2
    assert await scores(url, "log") == {"a": 1, "b": 1}
    assert await scores(url) == {}


async def test_what_was_refused_is_summed_up(tmp_path: Path, url: str) -> None:
    """How many by code, and the first of them with their number in the file, counted from 0, over batches."""
    events: list[Event] = many(1005)
    events[3] = {"key": ""}
    events[1001] = {"key": "a", "type": "nothing"}
    events[1003] = {"likes": 1}
    events[1004] = {"key": ""}
    outcome = await send(write(tmp_path / "e.ndjson", events), url)
    assert (outcome.sent, outcome.accepted) == (1005, 1001)
    assert outcome.rejected == {"key_invalid": 2, "type_unknown": 1, "event_invalid": 1}
    assert [(example["event"], example["code"]) for example in outcome.examples] == [
        (3, "key_invalid"), (1001, "type_unknown"), (1003, "event_invalid")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        ("key,amount\na,1.5\nb,x\nc,\nd,-3\n", 2, {"event_invalid": 2}),
        ("key,likes\na,1\n", 0, {"event_invalid": 1}),
        ("key,amount\na,1,2,3\nb,1\n", 1, {"event_invalid": 1}),
        ("\ufeffkey\na\n", 1, {}),
        ('key\n"two\nlines"\n', 0, {"key_invalid": 1}),
        ("key,amount\na,99999999999999999999999\n", 0, {"event_invalid": 1}),
    ],
    ids=["no numbers", "unknown column", "too many cells", "byte order mark", "line in a cell", "long number"],
)
async def test_odd_rows_of_a_table_are_refused_by_name(
    tmp_path: Path, url: str, text: str, accepted: int, rejected: dict[str, int]
) -> None:
    """A spreadsheet's file is read; what its rows get wrong is told row by row."""
    path = tmp_path / "e.csv"
    path.write_text(text, encoding="utf-8")
    outcome = await send(path, url)
    assert (outcome.accepted, outcome.rejected) == (accepted, rejected)


@pytest.mark.parametrize("board", [None, "posts"])
async def test_a_line_that_is_no_event_is_refused_by_name(tmp_path: Path, url: str, board: str | None) -> None:
    """The rest of the file is sent all the same, with a board or without."""
    path = tmp_path / "e.ndjson"
    path.write_text('{"key":"a"}\n{"key":\n[]\n"x"\n{"key":"a","key":"b"}\n{"key":"c"}\n')
    outcome = await send(path, url, board=board)
    assert (outcome.accepted, outcome.rejected) == (2, {"event_invalid": 3, "field_duplicate": 1})


async def test_a_file_that_can_not_be_read_is_told(tmp_path: Path, url: str) -> None:
    """Not there, a folder, no gzip, gzip cut short or broken in the middle, no UTF-8."""
    packed = gzip.compress(os.urandom(5000).hex().encode())
    files = {"no.gz": b"text", "cut.gz": packed[:-20], "broken.gz": packed[:99] + b"\0" * 99 + packed[198:]}
    for name, data in {**files, "latin.csv": b"key\ncaf\xe9\n"}.items():
        (tmp_path / name).write_bytes(data)
    for name in (*files, "latin.csv", "missing.ndjson", ""):
        with pytest.raises(SetupError, match="can't read"):
            await send(tmp_path / name, url)


async def test_a_server_that_refuses_everything_is_told(tmp_path: Path, url: str) -> None:
    """With its answer; what came before stays noted."""
    path = tmp_path / "e.ndjson"
    path.write_bytes(b'{"key":"a"}\n' * 1000 + b'{"key":"\xff"}\n')
    with pytest.raises(SetupError, match=r"the server refused a batch with 400: .*not UTF-8"):
        await send(path, url)
    assert await scores(url) == {"a": 1000}
    assert state_path(Options(path=path, url=url)).read_text(encoding="ascii") == "1000"


async def test_progress_is_told(tmp_path: Path, url: str) -> None:
    """Bytes and events, never going back, and all bytes at the end."""
    path = write(tmp_path / "e.ndjson.gz", many(3500))
    told: list[tuple[int, int, int]] = []
    await replay(Options(path=path, url=url), lambda *numbers: told.append(numbers))
    assert told == sorted(told)
    assert [events for _, _, events in told] == [1000, 2000, 3000, 3500, 3500]
    assert told[-1][0] == told[-1][1] == path.stat().st_size


async def test_a_replay_keeps_the_pace_of_its_events(tmp_path: Path, url: str) -> None:
    """At twice the pace half a second's gap between two batches takes a quarter; at `max` a year's takes nothing."""

    def with_gap(milliseconds: int) -> Path:
        first = [{"key": "a", "time": f"2015-05-17T10:00:00.{i:03}Z"} for i in range(1000)]
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START + milliseconds // 1000))
        return write(tmp_path / "e.ndjson", [*first, {"key": "a", "time": f"{at}.{milliseconds % 1000:03}Z"}])

    due = time.monotonic() + 0.25
    assert (await send(with_gap(500), url, board="log", speed=2.0)).accepted == 1001
    assert time.monotonic() >= due
    assert (await send(with_gap(20 * 3600 * 1000), url, board="log")).accepted == 1001


async def test_nothing_is_kept_of_a_replay_that_ended(tmp_path: Path, url: str, state_folder: Path) -> None:
    """Sent again, the file is sent again from its beginning."""
    path = write(tmp_path / "e.ndjson", many(1500))
    for times in (1, 2):
        outcome = await send(path, url)
        assert (outcome.sent, outcome.resumed_at) == (1500, 0)
        assert sum((await scores(url)).values()) == 1500 * times
    assert list((state_folder / "live-board").iterdir()) == []


async def test_how_far_it_came_is_kept_for_this_file_server_and_board(tmp_path: Path, url: str) -> None:
    """A file that has changed, another server, another board, or --restart begin at the first event."""
    path = write(tmp_path / "e.ndjson", many(1500))
    state = state_path(Options(path=path, url=url))
    state.parent.mkdir(parents=True)
    state.write_text("1200")
    assert state not in map(state_path, (Options(path=path, url=url, board="log"), Options(path=path, url="http://x")))
    assert (await send(path, url, restart=True)).accepted == 1500
    state.write_text("1200")
    assert await send(path, url) == Outcome(sent=1500, accepted=300, resumed_at=1200)
    write(path, many(1501))
    assert state_path(Options(path=path, url=url)) != state


async def test_a_replay_that_was_killed_goes_on(valkey_url: str, tmp_path: Path) -> None:
    """Killed in the middle, with the server stopped in between: started again, each event has counted once."""
    events: list[Event] = [{**event, "time": "2015-05-17T10:00:00Z"} for event in many(2000)]
    events += [{**event, "time": "2015-05-17T11:00:00Z"} for event in many(1500)]  # an hour away at speed 1
    path = write(tmp_path / "e.ndjson", events)
    boards = tmp_path / "boards.toml"
    boards.write_text('[[board]]\nid = "posts"\nclock = "event"')
    server = ServerProcess(fresh_settings(valkey_url, port=free_port(), boards=boards), tmp_path)
    server.start()
    command = [sys.executable, "-m", "live", "replay", str(path), "--to", server.url]
    first = await asyncio.create_subprocess_exec(*command, "--speed", "1")
    state = state_path(Options(path=path, url=server.url))

    async def half_way() -> bool:
        return state.exists() and state.read_text() == "2000"

    await eventually(half_way)
    first.kill()
    await first.wait()
    assert server.stop() == 0
    server.start()

    again = await asyncio.create_subprocess_exec(*command, "--json", stdout=subprocess.PIPE)
    outcome = json.loads((await again.communicate())[0])
    assert [outcome[name] for name in ("resumed_at", "sent", "accepted")] == [2000, 3500, 1500]
    assert await scores(server.url) == sums(events)
    assert not state.exists()
    assert server.stop() == 0


async def test_a_replay_waits_for_a_server_that_is_away(valkey_url: str, tmp_path: Path) -> None:
    """A server that is stopped and started again in the middle costs time, and no event."""
    path = write(tmp_path / "e.ndjson", many(3500))
    server = ServerProcess(fresh_settings(valkey_url, port=free_port()), tmp_path)
    server.start()
    starting: list[asyncio.Future[None]] = []

    def restart(_read: int, _total: int, sent: int) -> None:
        if sent == 1000:
            server.stop()
            starting.append(asyncio.ensure_future(asyncio.to_thread(server.start)))

    assert await replay(Options(path=path, url=server.url), restart) == Outcome(sent=3500, accepted=3500)
    await asyncio.gather(*starting)
    assert await scores(server.url) == sums(many(3500))
    assert server.stop() == 0


async def test_a_replay_waits_for_a_store_that_is_away(own_store: StoreProcess, tmp_path: Path) -> None:
    """As long as the server says that nothing was counted."""
    path = write(tmp_path / "e.ndjson", many(10))
    settings = fresh_settings(own_store.url, write_deadline=Duration(0.1))
    before = refused_for_the_store()
    async with run_server(settings, [rolling_board()]) as url:
        own_store.kill()
        sending = asyncio.create_task(send(path, url))

        async def told() -> bool:
            return refused_for_the_store() > before

        await eventually(told)
        own_store.start()
        assert await sending == Outcome(sent=10, accepted=10)


async def test_a_batch_of_which_nobody_knows_ends_the_replay(own_store: StoreProcess, tmp_path: Path) -> None:
    """A store that froze with a batch in hand may count it when it wakes: it is not sent again in silence."""
    path = write(tmp_path / "e.ndjson", many(2500))
    settings = fresh_settings(own_store.url, write_deadline=Duration(0.3), store_timeout=Duration(0.2))
    async with run_server(settings, [rolling_board()]) as url:
        assert await scores(url) == {}
        with own_store.frozen(), pytest.raises(SetupError, match="they may have been counted or not"):
            await send(path, url)


async def test_an_interrupted_replay_finishes_the_batch_under_way(url: str, tmp_path: Path) -> None:
    """After a Ctrl-C nothing is left in doubt: the next run goes on behind the last batch."""
    path = write(tmp_path / "e.ndjson", many(3500))

    def interrupt(_read: int, _total: int, sent: int) -> None:
        if sent == 1000:
            os.kill(os.getpid(), signal.SIGINT)

    first = await replay(Options(path=path, url=url), interrupt)
    second = await send(path, url)

    assert first.stopped
    assert 1000 <= first.sent < 3500
    assert (second.resumed_at, second.sent, second.stopped) == (first.sent, 3500, False)
    assert await scores(url) == sums(many(3500))


async def test_a_note_that_is_torn_is_not_taken_for_none(url: str, tmp_path: Path, state_folder: Path) -> None:
    """Where it can't be read how much was sent, nothing is sent until somebody says so."""
    path = write(tmp_path / "e.ndjson", many(3))
    note = state_path(Options(path=path, url=url))
    note.parent.mkdir(parents=True)
    note.write_text("", encoding="ascii")

    with pytest.raises(SetupError, match="--restart"):
        await send(path, url)
    assert await scores(url) == {}
    assert (await send(path, url, restart=True)).sent == 3
    assert not list((state_folder / "live-board").iterdir())


def refused_for_the_store() -> float:
    """How many requests this process has refused because the store was away."""
    return REGISTRY.get_sample_value("live_problems_total", {"code": "store_unavailable"}) or 0


def free_port() -> int:
    """A port that a server may have more than once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
