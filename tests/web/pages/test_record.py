"""The page of a record, as a client without JavaScript receives it."""

import re
from html import unescape
from typing import Any

import pytest

from live.boards.definitions import read_board
from live.domain.board import Board
from live.domain.ranking import Record
from live.domain.text import MINUS
from live.domain.window import Periods, Rolling
from live.store.board.read.slots import SlotValues
from live.web.pages.language import TAGS, languages
from live.web.pages.record import MOST_SLOTS, Chart, History, chart_of
from tests.harness.boards import built, rolling_board
from tests.harness.producer import post
from tests.harness.server import server

ENGLISH, CHINESE = (languages()[tag] for tag in TAGS)
TIMES = ("2026-11-20T09:30:00Z", "2026-11-20T11:00:00Z", "2026-11-20T12:59:59Z")
HOUR = 3600
CONTEST = read_board("contest", {"types": ["vote"], "window": "forever", "votes": {"registered": True}})


def figures(html: str) -> dict[str, str]:
    """The figures by their headings."""
    found = re.findall(r"<div(?![^>]* hidden)[^>]*><dt>(.*?)</dt><dd>(.*?)</dd>", html)
    return {re.sub("<[^>]+>", "", name): re.sub("<[^>]+>", "", value).strip() for name, value in found}


@pytest.mark.slow
async def test_a_record_has_figures_and_a_chart(valkey_url: str) -> None:
    """The figures name the records before and after. The table has the scores of the chart, the newest first."""
    async with server(valkey_url, rolling_board("3h", "1h", clock="event")) as client:
        events: list[dict[str, Any]] = [
            {"key": "a/b", "amount": amount, "time": time} for amount, time in zip((4, 10, 1), TIMES, strict=True)
        ]
        await post(client, *events, *({"key": f"k{i}", "amount": i, "time": TIMES[2]} for i in range(1, 30)))
        response = await client.get("/boards/posts/records/a%2Fb")
        assert response.status_code == 200
        html = response.text
        assert figures(html) == {
            "Rank": "15 of 30", "Score": "15", "To 14, k16": f"{MINUS}1", "To 16, k15": "tied",
        }  # fmt: skip
        assert "Score of each time slot" in html
        assert re.findall(r'<path d="(M0[^"]*)"', html) == ["M0.00,59.00H25.00V95.00H50.00V5.00H75.00"]
        table = html.partition("<details>")[2].partition("</details>")[0]
        assert re.findall(r'class="score">(\d+)<', table) == ["1", "10", "0", "4"]
        assert "20 November 2026, 12:00 UTC" in table
        assert '<a href="/boards/posts">' in html


async def test_nothing_empty_is_drawn(valkey_url: str) -> None:
    """A record alone on its board, with one point, has no chart and no gaps."""
    async with server(valkey_url) as client:
        await post(client, {"key": "a"})
        html = (await client.get("/boards/posts/records/a")).text
        assert figures(html) == {"Rank": "1 of 1", "Score": "1"}
        assert "<figure" not in html
        assert "<aside" not in html


@pytest.mark.slow
async def test_everything_on_the_page_is_escaped(valkey_url: str) -> None:
    """A member is always text."""
    member = "</title><script>alert('1')</script>{{7890*7}}&amp;"
    async with server(valkey_url) as client:
        await post(client, {"key": member})
        record = (await client.get("/v1/boards/posts")).json()["records"][0]["key"]
        assert record == member
        html = (await client.get("/boards/posts")).text
        address = unescape(re.findall(r'<bdi><a href="([^"]*)"', html)[0])
        page = (await client.get(address)).text
        assert "<script>alert" not in page
        assert "55230" not in page
        assert unescape(re.findall(r"<h1 id=\"title\"><bdi>(.*?)</bdi>", page)[0]) == member


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
        assert figures(html) == {"名次": "1 / 1", "分数": "1"}
        assert 'href="/boards/posts?lang=zh"' in html


def values_of(board: Board, *values: int | None) -> SlotValues:
    """The values of one member in the newest slots."""
    slots = [board.window.slot_at(number * HOUR) for number in range(len(values))]
    return SlotValues("e", 1, slots, ["a"], [values])


def chart(board: Board, *values: int | None) -> Chart | None:
    """The chart of a record without a journal."""
    slots = values_of(board, *values)
    return chart_of(ENGLISH, board, slots, History(slots.slots, ()), Record("a", 1, 1), len(values) * HOUR)


def test_a_chart_has_room_for_scores_below_zero() -> None:
    """The slot that is still open has no part of the line, because its sum is not complete."""
    board = built(id="b", title="b", window=Rolling(3 * HOUR, HOUR))
    drawn = chart(board, 30, -10, None, 0)
    assert drawn is not None
    assert drawn.score is not None
    assert [(point.score, point.is_open) for point in drawn.points] == [
        ("30", False), ("\u221210", False), ("0", False), ("0", True),
    ]  # fmt: skip
    assert drawn.score.path == "M0.00,5.00H25.00V95.00H50.00V72.50H75.00"
    assert [tick.text for tick in drawn.score.ticks] == ["\u221210", "0", "10", "20", "30"]
    assert drawn.ranks is None


def test_periods_have_names_instead_of_times() -> None:
    """A period without an event has no score. The chart begins with the first period that has one."""
    board = built(id="b", title="b", window=Periods(unit="hour", keep=900), operator="best")
    drawn = chart(board, *[None] * (MOST_SLOTS - 3), 4, None, 5)
    assert drawn is not None
    assert [(point.start, point.score) for point in drawn.points] == [(None, "4"), (None, ""), (None, "5")]
    assert drawn.points[-1].name == "9 January 1970, from 07:00 for an hour"
    assert chart(board, None, 5) is None


def test_lower_is_drawn_higher_where_it_is_better() -> None:
    """The axis begins near the scores, not at zero, and its values are round."""
    board = built(
        id="b", title="b", window=Periods(unit="hour", keep=9), operator="best", sort_order="asc",
        scale=3, format="duration",
    )  # fmt: skip
    drawn = chart(board, 65_000, 62_417, 63_100)
    assert drawn is not None
    assert drawn.score is not None
    assert drawn.score.path == "M0.00,95.00H33.33V5.00H66.67V28.80H100.00"
    assert [tick.text for tick in drawn.score.ticks] == ["1:03.000", "1:04.000", "1:05.000"]
