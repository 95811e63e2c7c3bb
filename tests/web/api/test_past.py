"""The past of boards over HTTP: after any batch, it equals a plain count of the likes so far."""

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection

import live.journal.past.pool
from live.boards.definitions import read_board
from live.domain.board import Board
from live.domain.window import Forever
from live.errors import JournalError, ProblemError
from live.journal.database import identity
from live.journal.past.pool import Past
from live.journal.past.worker import run_limited
from live.settings import Settings
from live.store.board.batch import SlotEvents
from live.store.board.keys import SystemKeys
from live.store.board.write.slot_assignment import Plan
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import Store, connect
from live.system.resources import PAST_AT_ONCE, Turns
from live.web.pages.record import events_of, line_of, recent_slots, round_values, time_ticks
from live.web.responses import past_reply
from tests.harness.boards import built, rolling_board
from tests.harness.long_readings import make_journal
from tests.harness.mutation import replaced
from tests.harness.server import server, serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

FOREVER = built(id="all", title="all", source=frozenset({"like"}), window=Forever(), operator="incr", ties="key")


@asynccontextmanager
async def journaling(store: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server with a journal and two boards."""
    async with server(store, rolling_board(), FOREVER, journal="sqlite") as client:
        yield client


def text_of(time: datetime) -> str:
    """A time as requests write it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def now() -> str:
    """Return a time after everything that was counted so far, and before everything that is counted later."""
    await asyncio.sleep(0.005)
    time = text_of(datetime.now(UTC))
    await asyncio.sleep(0.005)
    return time


async def like(client: httpx.AsyncClient, *keys: str) -> None:
    """Count likes in one batch."""
    answer = await client.post("/v1/events", json=[{"type": "like", "key": member} for member in keys])
    assert answer.json()["accepted"] == len(keys), answer.text


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    """The JSON of an answer."""
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_past_of_a_lost_board_is_unavailable(valkey_url: str) -> None:
    """This also holds beside a board that is not lost, and after a restart. A deleted board is not found."""
    settings = fresh_settings(valkey_url, journal="sqlite", anonymous_admin=True)

    async def answers(client: httpx.AsyncClient, at: str, *boards: str) -> set[int]:
        paths = [f"/v1/boards/{boards[-1]}", f"/v1/boards/{boards[-1]}/records/a", f"/boards/{','.join(boards)}"]
        return {(await client.get(path, params={"as_of": at})).status_code for path in paths}

    async with serving(settings, rolling_board(), FOREVER) as client:
        assert (await client.put("/v1/boards/made", json={"types": ["like"]})).status_code == 201
        await like(client, "a")
        at = await now()
        assert await answers(client, at, "posts", "all") == {200}
        assert await answers(client, at, "posts", "made") == {200}
        store = connect(valkey_url, settings)
        meta = f"{settings.key_prefix}:{{all}}:meta"
        await store.call(meta, "DEL", meta)
        await store.aclose()
        assert await answers(client, at, "posts", "all") == {503}
        assert (await client.delete("/v1/boards/made")).status_code == 204
        assert await answers(client, at, "posts", "made") == {404}
    async with serving(settings, rolling_board(), FOREVER) as client:
        assert await answers(client, at, "posts", "all") == {503}
        assert "posts, all" in (await client.get("/boards/posts,all")).text


def ranked(counts: Counter[str]) -> list[tuple[str, int, int]]:
    """Records by score, then by member."""
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return [(key, score, rank) for rank, (key, score) in enumerate(rows, 1)]


async def test_a_board_is_read_as_of_any_batch(valkey_url: str) -> None:
    """Every page is read, and has the total at the requested time. The first page has the offset too."""
    async with journaling(valkey_url) as client:
        counts: Counter[str] = Counter()
        moments: list[tuple[str, Counter[str], int]] = []
        for number in range(6):
            keys = [f"k{number % 3}", f"k{number}"]
            await like(client, *keys)
            counts.update(keys)
            offset = (await get(client, "/v1/boards/all", limit=1))["offset"]
            moments.append((await now(), counts.copy(), offset))
        for at, then, offset in moments:
            for board in ("posts", "all"):
                pages = [await get(client, f"/v1/boards/{board}", as_of=at, limit=2)]
                while pages[-1]["next_cursor"]:
                    cursor = pages[-1]["next_cursor"]
                    pages.append(await get(client, f"/v1/boards/{board}", as_of=at, limit=2, cursor=cursor))
                rows = [tuple(record.values()) for page in pages for record in page["records"]]
                assert rows == ranked(then)
                assert {page["total_score"] for page in pages} == {then.total()}
                assert (pages[0]["as_of"], pages[0]["rank_count"]) == (at, len(then))
            assert (await get(client, "/v1/boards/all", as_of=at))["offset"] == offset


async def test_a_read_of_the_past_takes_one_round_trip(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One packet brings everything that the read needs from the store."""
    async with journaling(valkey_url) as client:
        await like(client, "a")
        at = await now()
        await get(client, "/v1/boards/all", as_of=at)
        trips: list[list[Any]] = []
        call, calls = Store.call, Store.calls

        async def one(self: Store, key: str, *words: Any) -> Any:
            trips.append([key])
            return await call(self, key, *words)

        async def several(self: Store, commands: Any) -> list[Any]:
            trips.append([key for key, _ in commands])
            return await calls(self, commands)

        monkeypatch.setattr(Store, "call", one)
        monkeypatch.setattr(Store, "calls", several)
        for path in ("/v1/boards/all", "/v1/boards/all/records/a", "/boards/all"):
            trips.clear()
            assert (await client.get(path, params={"as_of": at})).status_code == 200
            assert len([trip for trip in trips if any(":all" in key or "{all" in key for key in trip)]) == 1, trips


async def test_a_record_has_a_past_a_history_and_an_explanation(valkey_url: str) -> None:
    """The answers have the record's score and rank at each time, and the parts of the score."""
    async with journaling(valkey_url) as client:
        await like(client, "a", "b", "b")
        first = await now()
        await like(client, "a", "a")
        second = await now()
        then = await get(client, "/v1/boards/all/records/a", as_of=first, around=1)
        assert (then["score"], then["rank"], then["gap"], len(then["records"])) == (1, 2, 1, 2)
        history = await get(client, "/v1/boards/all/records/a/history", to=second, step="1h")
        assert [step["rank"] for step in history["records"][0]["steps"]] == [*[None] * 24, 1]
        both = await get(client, "/v1/boards/all/history", key=["a", "b"], to=second, step="1d")
        assert [record["steps"][-1]["score"] for record in both["records"]] == [3, 2]
        explanation = await get(client, "/v1/boards/posts/records/a/explanation", as_of=second)
        assert sum(part["score"] for part in explanation["parts"]) == explanation["score"] == 3
        assert [change["amount"] for change in explanation["changes"]] == [2, 1]
        assert (await client.get("/v1/boards/all/records/a%2Fhistory")).status_code == 404


async def test_a_hidden_member_is_hidden_in_the_past_too(valkey_url: str) -> None:
    """The member's record, history and explanation are hidden as well."""
    async with server(valkey_url, rolling_board(), journal="sqlite", anonymous_admin=True, open=True) as client:
        await like(client, "a", "b")
        at = await now()
        assert (await client.patch("/v1/boards/posts/records/a", json={"hidden": True})).is_success
        page = await get(client, "/v1/boards/posts", as_of=at)
        assert [record["key"] for record in page["records"]] == ["b"]
        for path in ("", "/explanation"):
            gone = await client.get(f"/v1/boards/posts/records/a{path}", params={"as_of": at})
            assert gone.status_code == 404
        history = await get(client, "/v1/boards/posts/records/a/history", to=at, step="1d")
        assert history["records"][0]["steps"][-1]["rank"] is None


async def test_a_page_of_the_past_finds_names(valkey_url: str) -> None:
    """The start of a name finds members that are on the board now. Other members are found by their whole name.

    The ranks are those at the requested time.
    """
    async with server(valkey_url, rolling_board(), journal="sqlite", anonymous_admin=True, open=True) as client:
        await like(client, "Ada", "Ada", "Alan", "Grace", "Grace", "Grace")
        at = await now()
        await like(client, "Alan", "Alan", "Alan", "Ada Lovelace")
        item = r'<li data-member="([^"]*)"><bdi>[^<]*</bdi> <span>([^<]*)</span>'
        for name, members in {"a": [("Ada", "rank 2"), ("Alan", "rank 3")], "Ada Lovelace": [], "<b>": []}.items():
            html = (await client.get("/boards/posts", params={"as_of": at, "find": name})).text
            assert re.findall(item, html) == members, name
            assert ("No member of that time matches" in html) == (not members)
            assert "<b>\u201d" not in html
            assert f'<input type="hidden" name="as_of" value="{at}">' in html


YEAR = text_of(datetime.now(UTC) + timedelta(days=365))
REFUSED = {
    "the future": ({"as_of": YEAR}, "parameter_invalid", "future"),
    "no time": ({"as_of": "noon"}, "parameter_invalid", "zone"),
    "no zone": ({"as_of": "2026-01-01T00:00:00"}, "parameter_invalid", "zone"),
    "long ago": ({"as_of": "2020-01-01T00:00:00Z"}, "past_unavailable", "since"),
    "another cursor": ({"as_of": "2020-01-01T00:00:00Z", "cursor": "xx"}, "cursor_invalid", "next_cursor"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_questions_that_the_journal_can_not_answer_are_refused(valkey_url: str, name: str) -> None:
    """Instead of a wrong page, the answer has the reason."""
    query, code, reason = REFUSED[name]
    async with journaling(valkey_url) as client:
        await like(client, "a")
        await get(client, "/v1/boards/posts", as_of=await now())  # this page waits until SQL has the like
        problem = (await client.get("/v1/boards/posts", params=query)).json()
        assert (problem["code"], reason in problem["detail"]) == (code, True), problem


async def test_without_a_journal_there_is_no_past(valkey_url: str) -> None:
    """The answer names the setting `LIVE_JOURNAL`."""
    async with server(valkey_url) as client:
        for path in ("/v1/boards/posts?as_of=2026-01-01T00:00:00Z", "/v1/boards/posts/records/a/history"):
            problem = (await client.get(path)).json()
            assert (problem["code"], "LIVE_JOURNAL" in problem["detail"]) == ("past_unavailable", True)


async def test_another_server_keeps_the_journal_only_if_it_has_claimed_it(valkey_url: str) -> None:
    """The server answers as long as no server is recorded as the keeper of the journals.

    Once another server is recorded, the past is unavailable on this server.
    """
    settings = fresh_settings(valkey_url, journal="sqlite")
    store: Any = connect(valkey_url, settings)
    sink = SystemKeys(settings.key_prefix).sink
    async with serving(settings, FOREVER) as client:
        await like(client, "a")
        at = await now()
        assert (await get(client, "/v1/boards/all", as_of=at))["rank_count"] == 1
        await store.delete(sink)
        assert (await get(client, "/v1/boards/all", as_of=at, limit=1))["rank_count"] == 1
        await store.set(sink, "another")
        answer = await client.get("/v1/boards/all", params={"as_of": at, "limit": 2})
        assert (answer.status_code, answer.json()["code"]) == (404, "past_unavailable")
    await store.aclose()


async def test_a_board_with_an_event_clock_is_read_by_that_clock(valkey_url: str) -> None:
    """The answer has everything that was counted before the board's clock reached the requested time."""
    board = rolling_board(clock="event", board="old")
    async with server(valkey_url, board, journal="sqlite") as client:
        for hour, member in enumerate("abc"):
            event = {"board": "old", "key": member, "time": f"2024-02-01T0{hour}:30:00Z"}
            assert (await client.post("/v1/events", json=event)).json()["accepted"] == 1
        for hour, rows in enumerate(["", "a", "ab", "abc"]):
            page = await get(client, "/v1/boards/old", as_of=f"2024-02-01T0{hour}:00:00Z")
            assert [record["key"] for record in page["records"]] == list(rows)
        html = (await client.get("/boards/old/records/a")).text
        assert "<b>Rank</b>" in html


async def test_a_season_in_one_body_is_read_race_by_race(valkey_url: str) -> None:
    """Each race has its own time. The history begins with the first race, however old it is."""
    board = built(
        id="season", title="season", source=frozenset({"points"}), window=Forever(), operator="incr", ties="first",
        clock="event",
    )  # fmt: skip
    races = [(f"2023-{month:02}-05T15:00:00Z", ("ann", "bob", "cem")[month % 3], month) for month in range(1, 13)]
    async with server(valkey_url, board, journal="sqlite") as client:
        assert (await get(client, "/v1/boards/season/history"))["since"] is None
        events = [{"type": "points", "key": member, "amount": points, "time": time} for time, member, points in races]
        assert (await client.post("/v1/events", json=events)).json()["accepted"] == 12
        counts: Counter[str] = Counter()
        for time, key, points in races:
            page = await get(client, "/v1/boards/season", as_of=time)
            assert [(one["key"], one["score"], one["rank"]) for one in page["records"]] == ranked(counts), time
            counts[key] += points
            seen = await get(client, f"/v1/boards/season/records/{key}/explanation", as_of=time.replace("15:", "16:"))
            assert (seen["score"], seen["changes"][0]["amount"]) == (counts[key], counts[key])
        found = await get(client, "/v1/boards/season/history", key="ann", **{
            "from": races[0][0], "to": races[-1][0], "step": "30d",
        })  # fmt: skip
        assert found["records"][0]["steps"][-1]["score"] == 3 + 6 + 9
        assert (await get(client, "/v1/boards/season/history"))["since"] == "2023-01-05T15:00:00.000Z"
        html = (await client.get("/boards/season")).text
        assert "over the last" not in html


async def test_a_correction_counts_at_its_time(valkey_url: str) -> None:
    """If the journal does not say when a correction counts, the answer names no time that the journal has."""
    board = built(
        id="season", title="season", source=frozenset({"points"}), window=Forever(), operator="incr", ties="first",
        clock="event",
    )  # fmt: skip
    path, minute = "/v1/boards/season", "2023-01-05T15:00:{:02}Z"
    async with server(valkey_url, board, journal="sqlite", anonymous_admin=True) as client:
        for second in range(1, 11):
            event = {"type": "points", "key": "ann", "time": minute.format(second)}
            assert (await client.post("/v1/events", json=event)).json()["accepted"] == 1
        change = {"add": 5, "reason": "a mistake", "time": "2023-01-05T15:01:00Z"}
        (await client.patch(f"{path}/records/ann", json=change)).raise_for_status()
        for at, score in ((minute.format(55), 10), ("2023-01-05T15:01:01Z", 15)):
            page = await get(client, path, as_of=at)
            assert [(one["key"], one["score"]) for one in page["records"]] == [("ann", score)], at
            assert (await get(client, f"{path}/records/ann/explanation", as_of=at))["score"] == score
            times = {"from": minute.format(20), "to": at, "step": "1s"}
            steps = (await get(client, f"{path}/history", key="ann", **times))["records"][0]["steps"]
            assert steps[-1]["score"] == score

        def without_times(writer: BoardWriter, board: Board, plan: Plan, *given: Any, **named: Any) -> Any:
            for group in plan.slots.values():
                group.times, group.events = [], SlotEvents(times=[None])
            return request_of(writer, board, plan, *given, **named)

        request_of = BoardWriter._request
        with replaced(BoardWriter, "_request", without_times):
            change["time"] = "2023-01-05T15:03:00Z"
            (await client.patch(f"{path}/records/ann", json=change)).raise_for_status()
        unknown = {"as_of": "2023-01-05T15:02:55Z"}
        for place in (path, f"{path}/records/ann", f"{path}/records/ann/explanation"):
            answer = await client.get(place, params=unknown)
            assert (answer.status_code, answer.json()["code"]) == (404, "past_unavailable")
            assert "does not say when" in answer.json()["detail"]
        assert (await get(client, path, as_of="2023-01-05T15:03:01Z"))["records"][0]["score"] == 20


NOW = 1_763_636_400  # 2025-11-20T11:00:00Z


async def test_the_page_of_a_record_shows_its_rank_over_the_window(valkey_url: str) -> None:
    """The chart appears once the journal has the record's rank at the ends of two slots."""
    board = rolling_board("10s", "1s")
    async with server(valkey_url, board, journal="sqlite") as client:

        async def shown() -> str | None:
            await like(client, "a", "b", "b")
            text = (await client.get("/boards/posts/records/a")).text
            return text if text.count("<figure") > 1 else None

        text = await eventually(shown)
        assert "best 2, worst 2" in text


async def test_a_board_of_all_time_has_charts_too(valkey_url: str) -> None:
    """They show the last day, or the time since the board began."""
    async with server(valkey_url, read_board("posts", {"window": "forever"}), journal="sqlite") as client:

        async def shown() -> str | None:
            await like(client, "a", "b", "b")
            text = (await client.get("/boards/posts/records/b")).text
            return text if "<figure" in text else None

        assert "best 1, worst 1" in await eventually(shown)


def test_recent_slots_are_few_and_reach_until_now() -> None:
    """The slots are as short as the time allows."""
    for age, length in ((0, 10), (599, 10), (3599, 60), (86_400, 1800), (10**9, 1800)):
        slots = recent_slots(NOW - age, NOW)
        assert len(slots) <= 62, age
        assert {slot.end - slot.start for slot in slots} == {length}, age
        assert slots[-1].start <= NOW < slots[-1].end, age
        assert slots[0].start <= max(NOW - age, NOW - 86_400) < slots[0].end, age


def test_a_line_breaks_where_the_record_was_not_on_the_board() -> None:
    """Better values are higher. A single value gives no line."""
    places = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    chart = line_of([3, 1, None, 2, 3], places, write, 1, low_best=True)
    assert chart is not None
    assert (chart.best, chart.worst) == (1, 3)
    assert chart.path == "M0.00,95.00H20.00V5.00H40.00M60.00,50.00H80.00V95.00H100.00"
    assert list(chart.ticks) == [("1", "5.00"), ("2", "50.00"), ("3", "95.00")]
    assert chart.end == "95.00"
    assert line_of([None, 1], places[:3], write, 1, low_best=True) is None
    scores = line_of([10, 30, None], places[:4], write, 0, low_best=False)
    assert scores is not None
    assert (scores.path, scores.end) == ("M0.00,65.00H20.00V5.00H40.00", "")
    assert list(scores.ticks) == [("0", "95.00"), ("10", "65.00"), ("20", "35.00"), ("30", "5.00")]
    level = line_of([7, 7], places[:3], write, 0, low_best=False)
    assert level is not None
    assert level.path == "M0.00,50.00H20.00V50.00H40.00"


def test_the_time_axis_has_few_and_round_times() -> None:
    """No time is close to the end, where the axis says "now"."""
    for length in (90, 3600, 86_400, 7 * 86_400, 400 * 86_400):
        ticks = time_ticks(NOW - length, NOW)
        assert 1 <= len(ticks) <= 6, length
        assert all(0 <= float(tick.x) < 90 for tick in ticks), length
        assert len({tick.form for tick in ticks}) == 1, length
    day = [f"{datetime.fromtimestamp(tick.time, UTC):%d %H:%M}" for tick in time_ticks(NOW - 86_400, NOW)]
    assert day == ["19 12:00", "19 18:00", "20 00:00", "20 06:00"]


def write(value: int, _step: int) -> str:
    """Write a value of an axis."""
    return str(value)


def test_what_happened_to_a_record_follows_from_its_ranks() -> None:
    """The newest event comes first. Small steps are no events.

    A step that takes or loses rank 1, or enters or leaves the top ten, is named after that, and not after its size.
    """
    ranks = [14, None, 12, 11, 9, 5, 1, 1, 4, 7, 12, 11]
    assert events_of(ranks) == [
        (10, "leaves_top", 12, 5), (9, "falls", 7, 3), (8, "loses_first", 4, 3), (6, "takes_first", 1, 4),
        (5, "climbs", 5, 4), (4, "enters_top", 9, 2),
    ]  # fmt: skip
    assert [event.name for event in events_of(ranks[:4])] == ["joins_board", "leaves_board"]


def test_axes_have_few_and_round_values() -> None:
    """The last value of an axis is beyond the highest given value, so an axis has at least two values."""
    for low, high, values in (
        (0, 0, [0, 1]), (0, 283, [0, 100, 200, 300]), (-10, 30, [-10, 0, 10, 20, 30, 40]), (1, 14, [5, 10, 15]),
        (7, 9, [7, 8, 9, 10]), (0, 9_999, [0, 5000, 10_000]), (1, 10**15, [5 * 10**14, 10**15, 15 * 10**14]),
    ):  # fmt: skip
        assert round_values(low, high) == values, (low, high)


async def test_questions_beyond_a_limit_are_refused_immediately(valkey_url: str) -> None:
    """Of 150 questions at once, some are answered and the other questions get 503.

    Afterwards, questions are answered again.
    """
    async with journaling(valkey_url) as client:
        await like(client, "a")
        at = await now()
        requests = [client.get("/v1/boards/posts", params={"as_of": at, "start": number}) for number in range(150)]
        answers = await asyncio.gather(*requests)
        assert {answer.status_code for answer in answers} == {200, 503}
        assert {answer.json()["code"] for answer in answers if answer.status_code == 503} == {"overloaded"}
        assert (await client.get("/v1/boards/posts", params={"as_of": at})).status_code == 200


def _end(_connection: Connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _never_end(_connection: Connection) -> None:
    while True:
        time.sleep(0.1)


async def test_a_process_that_ended_is_replaced(tmp_path: Path) -> None:
    """A process may end because it ran out of memory. The next query runs in a new process."""
    make_journal(tmp_path)
    past = Past(Settings(data_dir=tmp_path), Turns(PAST_AT_ONCE, 32))
    try:
        with pytest.raises(JournalError):
            await past.run("a", _end)
        assert await past.run("a", identity)
    finally:
        await past.aclose()


async def test_a_question_that_takes_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the refused query, other queries get their turn."""
    monkeypatch.setattr(live.journal.past.pool, "run_limited", partial(run_limited, longest=0.2))
    make_journal(tmp_path)
    past = Past(Settings(data_dir=tmp_path), Turns(PAST_AT_ONCE, 32))
    try:
        with pytest.raises(ProblemError, match="past_too_large"):
            await past.run("a", _never_end)
        assert await past.run("a", identity)
    finally:
        await past.aclose()


def test_a_cache_keeps_the_two_forms_of_the_past_apart() -> None:
    """A cache may keep the reply for a minute.

    It must not give the compressed form to clients that do not accept gzip.
    """
    reply = past_reply("a" * 5000)
    assert (b"content-encoding", b"gzip") in reply.gzipped.headers
    for form in (reply, reply.gzipped):
        assert (b"vary", b"Accept-Encoding") in form.headers


async def test_without_members_the_history_says_when_it_begins(valkey_url: str) -> None:
    """A page of an earlier time is unavailable."""
    async with journaling(valkey_url) as client:
        await like(client, "a")

        async def drained() -> dict[str, Any] | None:
            found = await get(client, "/v1/boards/all/history")
            assert found["records"] == []
            return found if found["since"] else None

        found = await eventually(drained)
        assert (await get(client, "/v1/boards/all", as_of=found["since"]))["records"] == []
        earlier = datetime.fromisoformat(found["since"]) - timedelta(milliseconds=1)
        refused = await client.get("/v1/boards/all", params={"as_of": text_of(earlier)})
        assert refused.json()["code"] == "past_unavailable"
        refused = await client.get("/v1/boards/all/history?step=1m")
        assert refused.json()["code"] == "parameter_invalid"
