"""A board of real input, 10,000 requests to a web site over 84 hours, compared with a plain count over the file."""

import asyncio
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest

from live.domain.board_file import make_board
from live.domain.choices import Choices, Ties
from live.domain.views import BoardPage
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.forked import run_live
from tests.harness.invariants import drifted
from tests.harness.real_input import REAL_INPUT, load, seconds
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REAL_INPUT.exists(), reason="the real input is not beside this checkout"),
]

HOUR = 3600
BOARDS = '[[board]]\nid = "site"\ntypes = ["request"]\nclock = "event"\nties = "key"\n'
INSTANTS = 28


def expected(events: list[dict[str, Any]], ties: str = "key") -> list[tuple[str, int]]:
    """The ranking of a 24-hour board with hourly slots after some events, by a plain count."""
    current = max(seconds(event) for event in events) // HOUR * HOUR
    counts = Counter(event["key"] for event in events if seconds(event) >= current - 24 * HOUR)
    if ties == "key":
        return sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))
    reached: dict[str, tuple[datetime, int]] = {}
    for number, event in enumerate(events):
        place = datetime.fromisoformat(event["time"]), number
        reached[event["key"]] = max(place, reached.get(event["key"], place))
    in_order = sorted(counts.items(), key=lambda item: reached[item[0]], reverse=ties == "last")
    return sorted(in_order, key=lambda item: -item[1])


async def whole_board(client: httpx.AsyncClient) -> tuple[list[tuple[str, int]], int, int | None]:
    """Read every record page by page, and check the ranks. Return the records, and the last page's count and total."""
    records: list[tuple[str, int]] = []
    cursor: str | None = ""
    page = None
    while cursor is not None:
        response = await client.get(f"/v1/boards/site?limit=700{f'&cursor={cursor}' if cursor else ''}")
        page = msgspec.json.decode(response.content, type=BoardPage)
        records += [(record.member, record.score) for record in page.records]
        assert [record.rank for record in page.records] == list(
            range(len(records) - len(page.records) + 1, len(records) + 1)
        )
        cursor = page.next_cursor
    assert page is not None
    return records, page.rank_count, page.total_score


async def compare(client: httpx.AsyncClient, sent: list[dict[str, Any]], ties: str = "key") -> None:
    """Check that ranking, scores, count and total match a plain count."""
    records, rank_count, total = await whole_board(client)
    right = expected(sent, ties)
    assert records == right
    assert rank_count == len(right)
    assert total == sum(score for _, score in right)


@pytest.mark.parametrize("ties", get_args(Ties))
async def test_the_site_log_equals_a_plain_count_at_many_instants(valkey_url: str, ties: Ties) -> None:
    """The log is replayed in order, and the board is correct after each of about 28 equal parts.

    Ties are ordered by name, or by the time of the newest request of each member.
    """
    events = load()
    board = make_board(Choices(id="site", types=("request",), clock="event", ties=ties))
    async with (
        run_server(fresh_settings(valkey_url), [board]) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        step = len(events) // INSTANTS
        for start in range(0, len(events), step):
            response = await client.post("/v1/events", json=events[start : start + step])
            answer = response.json()
            assert (answer["accepted"], answer["rejected"]) == (len(events[start : start + step]), [])
            await compare(client, events[: start + step], ties)


async def test_eight_concurrent_producers_give_the_same_ranking(valkey_url: str) -> None:
    """The producers post each slot in random order. The board is checked after every third slot."""
    chance = random.Random(11)
    slots: dict[int, list[dict[str, Any]]] = {}
    for event in load():
        slots.setdefault(seconds(event) // HOUR, []).append(event)
    board = make_board(Choices(id="site", types=("request",), clock="event", ties="key"))
    settings = fresh_settings(valkey_url)
    store = connect(valkey_url, settings)
    sent: list[dict[str, Any]] = []
    compared = 0
    async with (
        run_server(settings, [board]) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        for number, (_, events) in enumerate(sorted(slots.items())):
            chance.shuffle(events)
            chunks = [events[i::8] for i in range(8) if events[i::8]]
            answers = await asyncio.gather(*(client.post("/v1/events", json=chunk) for chunk in chunks))
            assert sum(answer.json()["accepted"] for answer in answers) == len(events)
            sent += events
            if number % 3 == 0 or number == len(slots) - 1:
                await compare(client, sent)
                compared += 1
            assert await drifted(store, Keys(settings.key_prefix, "site")) == []
    assert compared >= 24
    await store.aclose()


async def test_the_commands_replay_and_check(tmp_path: Path) -> None:
    """`live send` sends the whole file, and `live check` finds no drift after it."""
    boards = tmp_path / "boards.toml"
    boards.write_text(BOARDS, encoding="utf-8")
    settings = fresh_settings("", boards=boards, data_dir=tmp_path / "d")
    server = ServerProcess(settings, tmp_path)
    server.start()
    replayed = await asyncio.to_thread(live, server, "send", str(REAL_INPUT), "--server", server.url, "--json")
    async with httpx.AsyncClient(base_url=server.url, timeout=180) as client:
        await compare(client, load())
    found = await asyncio.to_thread(live, server, "check", "--json")

    assert (replayed["sent"], replayed["accepted"], replayed["rejected"]) == (10_000, 10_000, {})
    assert found["clean"] is True
    assert found["boards"][0]["compared"]["record"] == len(expected(load()))
    assert server.stop() == 0


def live(server: ServerProcess, *arguments: str) -> dict[str, Any]:
    """Run a `live` command with the settings of a server, and return the JSON object that it prints."""
    done = run_live(*arguments, environment=server.environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found
