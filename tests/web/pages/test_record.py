"""The page of a record, as a client without JavaScript receives it."""

import re
from html import unescape
from typing import Any

import pytest

from live.boards.definition import read_board
from live.domain.board import Board
from live.domain.window import Periods, Rolling
from live.store.board.read.slots import SlotValues
from live.web.pages.language import TAGS, languages
from live.web.pages.record import MOST_SLOTS, chart_of
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import server

ENGLISH, CHINESE = (languages()[tag] for tag in TAGS)
TIMES = ("2026-11-20T09:30:00Z", "2026-11-20T11:00:00Z", "2026-11-20T12:59:59Z")
HOUR = 3600
CONTEST = read_board("contest", {"types": ["vote"], "window": "forever", "votes": {"registered": True}})
NONE = "\u2013"


def figures(html: str) -> dict[str, str]:
    """The figures by their headings."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html)
    return {name: re.sub("<[^>]+>", "", value) for name, value in found}


@pytest.mark.slow
async def test_a_record_has_figures_a_chart_and_neighbours(valkey_url: str) -> None:
    """The chart has a bar for each slot, and the table the same scores, the newest first."""
    async with server(valkey_url, rolling_board("3h", "1h", clock="event")) as client:
        events: list[dict[str, Any]] = [
            {"key": "a/b", "amount": amount, "time": time} for amount, time in zip((4, 10, 1), TIMES, strict=True)
        ]
        await post(client, *events, *({"key": f"k{i}", "amount": i, "time": TIMES[2]} for i in range(1, 30)))
        response = await client.get("/boards/posts/records/a%2Fb")
        assert response.status_code == 200
        html = response.text
        assert figures(html) == {
            "Rank": "15 of 30", "Score": "15", "Behind the next": "1", "Ahead of the one below": "0",
        }  # fmt: skip
        assert re.findall(r'<rect x="(\d)\.1" width=".8" y="([\d.]+)" height="([\d.]+)"', html) == [
            ("0", "60.00", "40.00"), ("1", "100.00", "0.00"), ("2", "0.00", "100.00"), ("3", "90.00", "10.00"),
        ]  # fmt: skip
        table = html.partition("<details>")[2].partition("</details>")[0]
        assert re.findall(r'class="score">(\d+)<', table) == ["1", "10", "0", "4"]
        assert "20 November 2026, 12:00 UTC" in table
        neighbours = re.findall(r'<tr data-key="([^"]*)"', html)
        assert len(neighbours) == 11
        assert neighbours.count("a/b") == 1
        assert '<a href="/boards/posts/records/k14">' in html


@pytest.mark.slow
async def test_everything_on_the_page_is_escaped(valkey_url: str) -> None:
    """A member is always text."""
    key = "</title><script>alert('1')</script>{{7890*7}}&amp;"
    async with server(valkey_url) as client:
        await post(client, {"key": key})
        record = (await client.get("/v1/boards/posts")).json()["records"][0]["key"]
        assert record == key
        html = (await client.get("/boards/posts")).text
        address = unescape(re.findall(r'<bdi><a href="([^"]*)"', html)[0])
        page = (await client.get(address)).text
        assert "<script>alert" not in page
        assert "55230" not in page
        assert unescape(re.findall(r"<h1 id=\"title\"><bdi>(.*?)</bdi>", page)[0]) == key


@pytest.mark.parametrize("path", ["posts/records/none", "posts/records/%00", "none/records/a", "posts/records/hidden"])
async def test_a_missing_record_is_explained(valkey_url: str, path: str) -> None:
    """The member is unknown or hidden, no member can have the name, or the board is unknown."""
    async with server(valkey_url, anonymous_admin=True) as client:
        await post(client, {"key": "hidden"})
        await client.patch("/v1/boards/posts/records/hidden", json={"hidden": True})
        response = await client.get(f"/boards/{path}", headers={"Accept": "text/html"})
        assert response.status_code == 404
        assert "There is no such" in response.text


async def test_a_hidden_contestant_has_no_record(valkey_url: str) -> None:
    """Neither the page nor the API shows a hidden member, although the contest still has its name and metadata."""
    async with server(valkey_url, CONTEST, anonymous_admin=True) as client:
        for member in ("ann", "bob"):
            await client.put(f"/v1/boards/contest/records/{member}", json={"metadata": {"city": "Graz"}})
        await client.patch("/v1/boards/contest/records/ann", json={"hidden": True})
        for path in ("/boards/contest/records/", "/v1/boards/contest/records/"):
            statuses = [(await client.get(path + member)).status_code for member in ("ann", "bob")]
            assert statuses == [404, 200], path


async def test_a_window_without_slots_has_no_chart(valkey_url: str) -> None:
    """A packed score has its fields as figures."""
    fields = [{"field": "levels", "max": 99}, {"field": "seconds", "order": "asc", "max": 5000}]
    board = read_board("posts", {"window": "forever", "operator": "best", "score": fields})
    async with server(valkey_url, board) as client:
        await post(client, {"key": "a", "fields": {"levels": 7, "seconds": 1200}})
        html = (await client.get("/boards/posts/records/a")).text
        assert figures(html) == {"Rank": "1 of 1", "levels": "7", "seconds": "1,200"}
        assert "<figure" not in html


async def test_the_page_is_also_in_chinese(valkey_url: str) -> None:
    """The links of the page keep the language."""
    async with server(valkey_url) as client:
        await post(client, {"key": "一"})
        html = (await client.get("/boards/posts/records/一?lang=zh")).text
        assert figures(html) == {"名次": "1 / 1", "分数": "1", "距上一名": NONE, "领先下一名": NONE}
        assert 'href="/boards/posts?lang=zh"' in html


def values_of(board: Board, *values: int | None) -> SlotValues:
    """The values of one member in the newest slots."""
    slots = [board.window.slot_at(number * HOUR) for number in range(len(values))]
    return SlotValues("e", 1, slots, ["a"], [values])


def test_a_chart_has_room_for_scores_below_zero() -> None:
    """Bars start at zero."""
    board = Board(id="b", title="b", window=Rolling(3 * HOUR, HOUR))
    chart = chart_of(ENGLISH, board, values_of(board, 30, -10, None, 0))
    assert chart is not None
    assert [(bar.y, bar.height, bar.score) for bar in chart.bars] == [
        ("0.00", "75.00", "30"), ("75.00", "25.00", "\u221210"), ("75.00", "0.00", "0"), ("75.00", "0.00", "0"),
    ]  # fmt: skip
    assert [bar.is_open for bar in chart.bars] == [False, False, False, True]
    assert (chart.title, chart.highest) == ("Score over the last 3 hours", "30")
    assert list(chart.ticks) == [(-10, "100.00"), (0, "75.00"), (10, "50.00"), (20, "25.00"), (30, "0.00")]
    assert list(chart.marks) == [1, 2, 3]


def test_a_chart_says_how_many_slots_it_shows_if_not_all() -> None:
    """Bars of periods have names instead of times, and no score where there was no event."""
    board = Board(id="b", title="b", window=Periods(unit="hour", keep=900), operator="best")
    chart = chart_of(ENGLISH, board, values_of(board, *[None] * (MOST_SLOTS - 1), 5))
    assert chart is not None
    assert chart.title == "Score in the newest 200 slots"
    assert (chart.bars[0].start, chart.bars[0].score) == (None, NONE)
    assert chart.bars[-1].name == "9 January 1970, from 07:00 for an hour"
    assert chart_of(ENGLISH, board, values_of(board, 5)) is None
