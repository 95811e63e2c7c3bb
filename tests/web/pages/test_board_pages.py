"""Pages of every kind of board, as a client without JavaScript receives them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest
from msgspec import UNSET, Raw

from live.domain.board_file import parse_boards
from live.web import responses
from live.web.pages import board as board_pages
from live.web.pages import drawing
from live.web.pages.language import languages
from live.web.pages.rendering import Visit, render
from live.web.pages.trends import NO_TRENDS, Trends
from live.web.pages.words import metadata_words, moment, moment_words
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

ENGLISH = languages()["en"]
CLIMB = """
[[board]]
id = "climb"
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
ranks = "competition"
"""
WEEK = """
[[board]]
id = "week"
window = {calendar = "week", timezone = "Asia/Shanghai", keep = 2}
clock = "event"
ranks = "dense"
"""
CONTEST = """
[[board]]
id = "cakes"
title = "Best <cake>"
window = "forever"
votes = {per_actor = 4, opens = 2026-01-01T00:00:00Z, closes = 2099-06-01T14:30:00+02:00}
"""
SONGS = """
[[board]]
id = "songs"
types = ["vote"]
window = "forever"
votes = {per_key = 1, registered = true}
"""
UNION = """
[[board]]
id = "north"
types = ["n"]
[[board]]
id = "south"
types = ["s"]
[[board]]
id = "all"
union = ["north", "south"]
"""
WEEKS = ({"key": "a", "time": "2025-11-05T12:00:00Z"}, {"key": "b", "time": "2025-11-12T12:00:00Z"},
         {"key": "c", "time": "2025-11-19T12:00:00Z"}, {"key": "d", "time": "2025-11-26T12:00:00Z"})  # fmt: skip


@asynccontextmanager
async def server(store: str, boards: str, *events: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """A server with boards of a file, and events on them."""
    settings = fresh_settings(store, store_timeout=1, anonymous_admin=True)
    async with (
        run_server(settings, parse_boards(boards)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for event in events:
            assert (await post(client, event))["accepted"] == 1
        yield client


def rows(html: str) -> list[list[str]]:
    """The text of each cell of the tables."""
    lines = re.findall(r"<tr data-member=.*?</tr>", html, re.DOTALL)
    cells = (re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line, re.DOTALL) for line in lines)
    return [[unescape(re.sub("<.*?>", "", cell)) for cell in line] for line in cells]


def links(html: str) -> dict[str, str]:
    """Return the links to other periods."""
    return {rel: unescape(href) for rel, href in re.findall(r'<a rel="(\w+)" href="([^"]*)">', html)}


async def test_fields_are_columns(valkey_url: str) -> None:
    """Each field of a packed score has a column. Metadata is below the record's name, and equal scores share a rank."""
    events = [
        {"key": "a", "fields": {"levels": 7, "seconds": 1200}, "metadata": {"team": "<b>&", "age": 41, "ok": True}},
        {"key": "b", "fields": {"levels": 7, "seconds": 1200}},
        {"key": "c", "fields": {"levels": 6, "seconds": 10}, "metadata": {}},
    ]
    async with server(valkey_url, CLIMB, *({"board": "climb", **event} for event in events)) as client:
        html = (await client.get("/boards/climb")).text

        assert re.findall(r'data-field="(\w+)">(\w+)</th>', html) == [("levels", "levels"), ("seconds", "seconds")]
        assert rows(html) == [
            ["1", "ateam: <b>& · age: 41", "7", "1,200"],
            ["1", "b", "7", "1,200"],
            ["3", "c", "6", "10"],
        ]
        assert "<b>&" not in html
        assert "total-score" not in html
        front = (await client.get("/")).text
        assert [[row[0], *row[2:]] for row in rows(front)] == [
            ["1", "7", "1,200"],
            ["1", "7", "1,200"],
            ["3", "6", "10"],
        ]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("{}", []),
        ('{"a":"b","n":-1.50,"t":true,"f":false,"x":null,"o":{"a":1},"l":[1]}', ["a: b", "n: -1.5"]),
        ('{ "a" : "b\\u00e9" }', ["a: bé"]),
        ('{"a":""}', ["a: "]),
        ('{"z":1,"10":2,"9":3,"01":4,"4294967295":5}', ["9: 3", "10: 2", "z: 1", "01: 4", "4294967295: 5"]),
        ('{"a":1e21,"b":1e-7,"c":1e20,"d":1e-6}', ["a: 1e+21", "b: 1e-7", "c: 100000000000000000000", "d: 0.000001"]),
        ('{"a":-0.0,"b":12345678901234567890,"c":1e999}', ["a: 0", "b: 12345678901234567000", "c: Infinity"]),
        ('{"a":"' + "x" * 41 + '"}', ["a: " + "x" * 39 + "…"]),
        ('{"a":"' + "😀" * 40 + '"}', ["a: " + "😀" * 40]),
        ('{"' + "n" * 33 + '":1}', ["n" * 31 + "…: 1"]),
        ("{" + ",".join(f'"a{i}":{i}' for i in range(9)) + "}", [*(f"a{i}: {i}" for i in range(8)), "…"]),
    ],
)  # fmt: skip
def test_metadata_is_shown_as_text(metadata: str, words: list[str]) -> None:
    """The page shows texts, and numbers as ECMAScript formats them. Long values are cut."""
    assert metadata_words(Raw(metadata.encode())) == words


def test_invalid_metadata_is_not_shown() -> None:
    """The metadata is missing, is not an object, or is nested too deeply."""
    deep = '{"a":' + "[" * 2000 + "]" * 2000 + "}"
    assert [metadata_words(one) for one in (UNSET, Raw(b"[1]"), Raw(b"x"), Raw(deep.encode()))] == [[]] * 4


async def test_a_page_shows_the_current_period(valkey_url: str) -> None:
    """The page names the period and its time zone, and links to the previous period.

    Before the first event, the page has no period.
    """
    async with server(valkey_url, WEEK) as client:
        html = (await client.get("/boards/week")).text
        assert "by week in Asia/Shanghai" in html
        assert "?period=previous" in html
        assert links(html) == {}, "the page shows a link to another period"

        await post(client, *({"board": "week", **event} for event in WEEKS))
        html = (await client.get("/boards/week")).text
        assert "week 48 of 2025 in Asia/Shanghai" in html
        assert links(html) == {"prev": "?period=previous"}
        assert "board.js" in html
        assert not re.search(r"data-paces", html)


async def test_a_past_period_is_static(valkey_url: str) -> None:
    """The page of a past period has no script.

    It has links to the neighbouring periods that are kept, and to the current period.
    """
    async with server(valkey_url, WEEK, *({"board": "week", **event} for event in WEEKS)) as client:
        for name, member, expected_links in (
            ("previous", "c", {"prev": "?period=2025-W46", "up": "?period=current"}),
            ("2025-W47", "c", {"prev": "?period=2025-W46", "up": "?period=current"}),
            ("2025-W46", "b", {"up": "?period=current", "next": "?period=2025-W47"}),
            ("2025-W48", "d", {"prev": "?period=2025-W47", "up": "?period=current"}),
        ):
            for path in ("/boards/week", "/embed/week"):
                html = (await client.get(path, params={"period": name})).text
                assert [cells[1] for cells in rows(html)] == [member]
                assert links(html) == expected_links
                assert "board.js" not in html
                assert "Not live" in html
                assert "watching" not in html, "the page shows a viewer count, which nothing keeps up to date"
        assert "board.js" in (await client.get("/boards/week?period=current")).text


async def test_a_link_to_a_repeated_hour_works(valkey_url: str) -> None:
    """The plus sign in the name is encoded, because a plain plus sign would be decoded as a space."""
    board = '[[board]]\nid="hours"\nclock="event"\nwindow={calendar="hour", timezone="Europe/Berlin"}'
    times = ("2025-10-26T00:10:00Z", "2025-10-26T01:10:00Z", "2025-10-26T02:10:00Z", "2025-10-26T03:10:00Z")
    async with server(valkey_url, board, *({"board": "hours", "key": time, "time": time} for time in times)) as client:
        html = (await client.get("/boards/hours?period=2025-10-26T02")).text
        second = (await client.get("/boards/hours" + links(html)["next"])).text
        assert "26 October 2025, from 02:00 +01:00 for an hour in Europe/Berlin" in second
        assert rows(second) == [["1", times[1], "1"]]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/boards/week?period=x", 400), ("/boards/week?period=2025-W45", 404), ("/boards/week?period=2025-W49", 404),
        ("/boards/climb?period=previous", 400), ("/boards/week,climb?period=previous", 400),
        ("/boards/week,none", 404), ("/boards/week,", 404), ("/boards/,", 400), ("/boards/week,week", 400),
        ("/boards/a,b,c,d,e,f,g", 400),
    ],
)  # fmt: skip
async def test_unknown_periods_and_boards_are_refused_with_a_page(valkey_url: str, path: str, status: int) -> None:
    """The period is invalid or dropped, or boards are unknown, repeated or too many."""
    async with server(valkey_url, WEEK + CLIMB, *({"board": "week", **event} for event in WEEKS)) as client:
        response = await client.get(path)
        assert (response.status_code, response.headers["content-type"]) == (status, "text/html; charset=utf-8")


@pytest.mark.slow
async def test_a_contest_has_its_own_words(valkey_url: str) -> None:
    """The page speaks of contestants and votes, and says when voting opens and closes."""
    votes = ({"board": "cakes", "key": member, "actor": actor} for member, actor in ("ax", "ay", "bx"))
    async with server(valkey_url, CONTEST, *votes) as client:
        html = (await client.get("/boards/cakes")).text
        assert 'Contestants <b id="rank-count">2</b>' in html
        assert 'Votes <b id="total-score">3</b>' in html
        assert '<time datetime="2026-01-01T00:00:00+00:00">1 January 2026, 00:00 UTC</time>' in html
        assert 'until <time datetime="2099-06-01T12:30:00+00:00">1 June 2099, 12:30 UTC</time>' in html
        assert '<th scope="col" class="number">Votes, share</th>' in html
        card = re.sub("<[^>]*>", "", (await client.get("/")).text)
        assert "of all time Votes 3 Contestants 2" in card


@pytest.mark.slow
async def test_a_contest_of_registered_members_counts_them(valkey_url: str) -> None:
    """The page shows the number of all contestants and the number of contestants with votes."""
    contest = CONTEST.replace("per_actor = 4", "per_actor = 4, registered = true")
    async with server(valkey_url, contest) as client:
        for member in ("x", "y", "z"):
            assert (await client.put(f"/v1/boards/cakes/records/{member}", json={})).status_code == 201
        html = (await client.get("/boards/cakes")).text
        assert "Contestants <b>3</b>" in html
        assert 'With votes <b id="rank-count">0</b>' in html


def test_a_time_is_shown_in_words() -> None:
    """Seconds are shown only if they are not zero."""
    assert moment_words(ENGLISH, moment(1_763_733_600_000)) == "21 November 2025, 14:00 UTC"
    assert moment_words(ENGLISH, moment(1_763_733_605_000)) == "21 November 2025, 14:00:05 UTC"


async def test_a_page_shows_the_row_of_a_member(valkey_url: str) -> None:
    """The query names the member. Its row is among the others, or at the foot of the table. The member is escaped."""
    events: list[dict[str, Any]] = [{"board": "week", **event} for event in WEEKS]
    events += [{"board": "north", "key": "<b>", "amount": 9}, {"board": "north", "key": "m&m"}]
    events += [{"board": "climb", "key": member, "fields": {"levels": 5, "seconds": 1}} for member in ("m&m", "n")]
    async with server(valkey_url, WEEK + CLIMB + UNION, *events) as client:

        async def own(path: str) -> list[str]:
            html = (await client.get(path)).text
            found = re.findall(r'<tr data-member="[^"]*" class="[^"]*own">.*?</tr>', html, re.DOTALL)
            return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in found]

        assert await own("/boards/north") == []
        assert await own("/boards/north?key=m%26m") == ["2 m&amp;m 1"]
        assert await own("/boards/north?key=m%26m&limit=1") == ["2 m&amp;m 1"]
        assert "<tfoot>" in (await client.get("/boards/north?key=m%26m&limit=1")).text
        assert "<tfoot>" not in (await client.get("/boards/north?key=m%26m")).text
        assert await own("/embed/north,climb?key=m%26m") == ["2 m&amp;m 1", "1 m&amp;m 5 1"]
        assert await own("/boards/climb?key=nobody") == ["nobody"]


async def test_readers_who_follow_members_share_a_page(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is drawn once for all of them. Each gets what it would get if the page was drawn for this reader alone."""
    drawn = []

    async def counted(visit: Visit, template: str, *given: Any, **values: Any) -> Any:
        drawn.append(template)
        return await render(visit, template, *given, **values)

    async def steady(*_: Any, **__: Any) -> Trends:
        return NO_TRENDS  # the process may read a new baseline between two pages

    monkeypatch.setattr(drawing, "render", counted)
    monkeypatch.setattr(board_pages, "trends_of", steady)
    monkeypatch.setattr(responses, "_SERVES", 60.0)
    members = ["ann", "<b>\"&'", "a b+c%20", "key=1", "\U0001d518"]
    events: list[dict[str, Any]] = [
        {"board": "north", "key": member, "amount": 90 - at} for at, member in enumerate([*members, "last"])
    ]
    async with server(valkey_url, UNION + SONGS, *events) as client:
        for member in ("voteless", *members):
            assert (await client.put(f"/v1/boards/songs/records/{quote(member, safe='')}", json={})).status_code == 201
        item = {"title": "Last <i>", "url": "https://example.org/?a&b"}
        assert (await client.put("/v1/items/last", json=item)).status_code == 204
        followed = [quote_plus(member) for member in (*members, "last", "nobody", "voteless")]
        for path in ("/boards/north?limit=5", "/boards/north?limit=3&start=2", "/boards/songs?lang=zh-Hans"):
            drawn.clear()
            shared = [(await client.get(f"{path}&key={member}")).text for member in followed]
            assert len(drawn) == 1
            alone = [(await client.get(f"{path}&key={member}&find=")).text for member in followed]
            assert len(drawn) == 1 + len(followed)
            assert shared == [page.replace("&amp;find=", "") for page in alone]
            assert len(set(shared)) == len(followed)


async def test_boards_can_be_shown_side_by_side(valkey_url: str) -> None:
    """Each board has a section with its own ids. The list of boards links to a page with a union and its parts."""
    events = ({"board": "north", "key": "a"}, {"board": "south", "key": "b"})
    async with server(valkey_url, UNION, *events) as client:
        path = re.findall(r'<a href="(/boards/[^"]*,[^"]*)"', (await client.get("/")).text)
        assert path == ["/boards/all,north,south"]
        html = (await client.get(path[0])).text

        assert re.findall(r'data-board="(\w+)"', html) == ["all", "north", "south"]
        assert [cells[1] for cells in rows(html)] == ["a", "b", "a", "b"]
        ids = re.findall(r' id="([^"]+)"', html)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r' aria-labelledby="([^"]+)"', html)) <= set(ids)
        assert html.count("<h1") == 1
        assert re.findall(r'<h2[^>]*><a href="([^"]+)"', html) == ["/boards/all", "/boards/north", "/boards/south"]
        framed = (await client.get("/embed/north,south")).text
        assert re.findall(r'<h2[^>]*><a href="([^"]+)"', framed) == ["/embed/north", "/embed/south"]


async def test_a_union_of_too_many_boards_is_not_linked(valkey_url: str) -> None:
    """At most six boards are shown side by side."""
    parts = [f"p{number}" for number in range(6)]
    boards = "".join(f'[[board]]\nid = "{part}"\n' for part in parts) + f'[[board]]\nid = "all"\nunion = {parts}\n'
    async with server(valkey_url, boards) as client:
        assert "Side by side" not in (await client.get("/")).text
        assert (await client.get(f"/boards/{','.join(parts)}")).status_code == 200


@pytest.mark.slow
async def test_pages_are_served_while_the_store_is_unavailable(own_store: StoreProcess) -> None:
    """The pages say that they are stale. The pages of boards have Retry-After."""
    async with server(own_store.url, WEEK + CONTEST, {"board": "week", **WEEKS[0]}) as client:
        own_store.kill()
        for path in ("/boards/week", "/boards/week?period=previous", "/boards/week,cakes"):
            response = await client.get(path)
            assert (response.status_code, response.headers["retry-after"]) == (503, "2")
            assert "Stale: the store is unreachable" in unescape(response.text)
        assert (await client.get("/")).status_code == 200


@pytest.mark.slow
async def test_tables_are_accessible(valkey_url: str) -> None:
    """A table has a caption, headings with a scope, and a status. It has no inline styles or scripts."""
    async with server(valkey_url, WEEK + CLIMB + CONTEST) as client:
        html = (await client.get("/boards/week,climb,cakes")).text
        assert html.count("<table") == html.count("<caption") == 3
        assert html.count('role="status"') == 1, "the page does not have exactly one status"
        assert re.findall(r"<th(?! scope=)", html.replace("<thead", "")) == []
        assert "the first 20 by levels, then seconds" in html
        assert re.findall(r"<style| style=|<script(?! type=\"module\" src=)| on\w+=", html) == []
