"""GET /v1/boards and below: pages, cursors, conditional requests, one record with its neighbours."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.packing import Field, Packing
from live.domain.window import Forever, Periods
from live.web.api.boards import Cursor, decode_cursor, encode_cursor
from tests.harness.boards import built, rolling_board
from tests.harness.clock import datetime_of
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings


@asynccontextmanager
async def server(
    store: str, *events: dict[str, Any], boards: Sequence[Board] = (), **changes: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a server with the given boards, or else with the board `posts`, and with some events."""
    async with (
        run_server(fresh_settings(store, **changes), boards or [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        if events:
            await post(client, *events)
        yield client


async def test_the_list_of_boards_has_each_definition(valkey_url: str) -> None:
    """The list has each board with its definition. The lengths of its window are in seconds."""
    week = Periods(unit="week", timezone="Asia/Shanghai")
    both = built(
        id="both",
        title="Both",
        window=week,
        clock="event",
        ties="last",
        ranks="dense",
        source=frozenset(),
        union={"a": 1, "b": -2},
    )
    plain: dict[str, Any] = {
        "operator": "incr", "sort_order": "desc", "ties": "key", "ranks": "ordinal", "clock": "server",
        "types": ["like"], "category": [], "union": {}, "score": [], "votes": None, "cap": None,
        "max_amount": 10**9, "max_members": 10**7, "like_button": False, "journal": "events",
        "frozen": False, "idle_ttl": None, "visibility": "public", "unit": "", "scale": 0, "format": "number",
    }  # fmt: skip
    async with server(valkey_url, boards=[rolling_board(), both]) as client:
        assert (await client.get("/v1/boards")).json() == {
            "boards": [
                {"board": "posts", "title": "posts", "window": {"kind": "rolling", "length": 86400, "slot": 3600}}
                | plain,
                {
                    **plain, "board": "both", "title": "Both", "clock": "event", "ties": "last", "ranks": "dense",
                    "types": [], "union": {"a": 1, "b": -2}, "max_amount": None,
                    "window": {
                        "kind": "periods", "unit": "week", "timezone": "Asia/Shanghai", "week_start": "monday",
                        "day_start": "00:00", "last": None, "keep": 10, "grace": 0,
                    },
                },
            ]
        }  # fmt: skip


async def test_the_list_of_boards_says_what_they_take(valkey_url: str) -> None:
    """The list has the rules of votes, categories, fields of the score, and how many records are kept."""
    contest = built(
        id="contest", title="c", votes=Votes(per_key=1, closes=datetime_of(1_767_225_600_000)), window=Forever()
    )
    best = built(
        id="best", title="b", operator="best", cap=5, categories=frozenset({"b", "a"}), window=Forever(),
        score=Packing((Field(name="levels", high=9), Field(name="time", sort_order="asc", low=1, high=99))),
    )  # fmt: skip
    async with server(valkey_url, boards=[contest, best]) as client:
        votes, kept = (await client.get("/v1/boards")).json()["boards"]
    assert votes["votes"] == {"per_key": 1, "closes": "2026-01-01T00:00:00Z"}
    assert (kept["cap"], kept["max_amount"], kept["category"]) == (5, None, ["a", "b"])
    assert kept["score"] == [{"field": "levels", "max": 9}, {"field": "time", "order": "asc", "min": 1, "max": 99}]


async def test_an_empty_board_is_a_board(valkey_url: str) -> None:
    """A board without records has an epoch and offset 0."""
    async with server(valkey_url) as client:
        page = (await client.get("/v1/boards/posts")).json()

        assert page.pop("epoch")
        assert page.pop("definition") == rolling_board().definition_tag
        assert page == {
            "board": "posts", "title": "posts", "offset": 0, "period": None, "rank_count": 0, "total_score": 0,
            "entrant_count": None, "viewer_count": 0, "records": [], "next_cursor": None, "prev_cursor": None,
        }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 7, 30, 100])
async def test_pages_follow_each_other(valkey_url: str, limit: int) -> None:
    """A walk in either direction meets every record once, in order, and ends with a null cursor, even among ties."""
    events = [{"key": f"k{number:02}", "amount": 1 + number // 10} for number in range(30)]
    async with server(valkey_url, *events) as client:
        walked: list[dict[str, Any]] = []
        more: str | None = ""
        while more is not None:
            page: dict[str, Any] = (await client.get(f"/v1/boards/posts?limit={limit}{more}")).json()
            assert (page["rank_count"], page["total_score"]) == (30, 60)
            assert len(page["records"]) <= limit
            walked += page["records"]
            more = page["next_cursor"] and f"&cursor={page['next_cursor']}"
            if len(walked) == len(page["records"]):
                assert page["prev_cursor"] is None
        back, cursor = list[dict[str, Any]](page["records"]), page["prev_cursor"]
        while cursor is not None:
            page = (await client.get(f"/v1/boards/posts?limit={limit}&cursor={cursor}")).json()
            assert page["next_cursor"] is not None
            back, cursor = page["records"] + back, page["prev_cursor"]
        assert back == walked

    assert [(record["key"], record["score"]) for record in walked] == sorted(
        ((event["key"], event["amount"]) for event in events), key=lambda item: (-int(str(item[1])), str(item[0]))
    )
    assert [record["rank"] for record in walked] == list(range(1, 31))


async def test_a_cursor_survives_changes_of_its_record(valkey_url: str) -> None:
    """If the record at the end of a page leaves or moves, the walk goes on from the record's old position."""
    async with server(valkey_url, *({"key": member, "amount": 5} for member in "abcd")) as client:
        first = (await client.get("/v1/boards/posts?limit=2")).json()
        await post(client, {"key": "b", "amount": -5}, {"key": "a", "amount": 9})
        second = (await client.get(f"/v1/boards/posts?limit=2&cursor={first['next_cursor']}")).json()

        assert [record["key"] for record in second["records"]] == ["c", "d"]


NO_CURSORS = {
    "not a cursor": ["", "x", "!!!", "bnVsbA", "WzEsMl0", "A" * 5000, "é"],
    "an invalid score": [encode_cursor(Cursor("after", 2**53 + 1, b"a", None))],
    "an invalid direction": [encode_cursor(Cursor("beside", 1, b"a", None))],  # type: ignore[arg-type]
    "a name that is too long": [encode_cursor(Cursor("after", 1, b"a" * 1033, None))],
    "a period on a board without periods": [encode_cursor(Cursor("after", 1, b"a", 1))],
    "a period out of range": [encode_cursor(Cursor("after", 1, b"a", far)) for far in (10**30, -(10**17))],
}


@pytest.mark.parametrize("cursor", [cursor for cursors in NO_CURSORS.values() for cursor in cursors])
async def test_an_invalid_cursor_is_refused(valkey_url: str, cursor: str) -> None:
    """Boards with periods and without them answer an invalid cursor with 400."""
    async with server(valkey_url, boards=[rolling_board(), hours()]) as client:
        response = await client.get("/v1/boards/posts", params={"cursor": cursor})
        assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")
        response = await client.get("/v1/boards/hours", params={"cursor": cursor})
        assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")


@pytest.mark.parametrize("member", ["a", "é/?#%", "\U0001f600", 'quote"', "k" * 1024])
def test_a_cursor_holds_any_position(member: str) -> None:
    """A cursor decodes to the position that was encoded, even to a negative score, and needs no escapes in a URL."""
    for cursor in (Cursor("after", -3, member.encode(), None), Cursor("before", 2**53, bytes(range(248, 256)), -3600)):
        word = encode_cursor(cursor)
        assert decode_cursor(word) == cursor
        assert quote(word, safe="") == word


async def test_a_page_can_begin_at_any_position(valkey_url: str) -> None:
    """`start` skips records. After the last record, the page is empty."""
    async with server(valkey_url, *({"key": f"k{number}", "amount": 9 - number} for number in range(9))) as client:
        whole = (await client.get("/v1/boards/posts")).json()["records"]
        for start in (0, 1, 7, 8, 9, 10**9 - 1):
            page = (await client.get(f"/v1/boards/posts?limit=2&start={start}")).json()
            assert page["records"] == whole[start : start + 2]
            assert (page["next_cursor"] is None) is (start >= 7)
        assert (await client.get("/v1/boards/posts?start=-1")).json()["code"] == "parameter_invalid"


@pytest.mark.parametrize(
    ("score", "keys"),
    [(100, "abc"), (5, "abc"), (4, "abc"), (3, "bcd"), (2, "cde"), (1, "cde"), (0, "de"), (-1, "de"), (-9, "e")],
)
async def test_a_page_can_surround_a_score(valkey_url: str, score: int, keys: str) -> None:
    """Half of the records of the page come before the position of the score."""
    events = [{"key": member, "amount": amount} for member, amount in zip("abcde", (5, 4, 3, 1, -2), strict=True)]
    async with server(valkey_url, *events) as client:
        page = (await client.get(f"/v1/boards/posts?limit=3&score={score}")).json()
        assert "".join(record["key"] for record in page["records"]) == keys
        assert [record["rank"] for record in page["records"]] == ["abcde".index(member) + 1 for member in keys]
        assert (page["prev_cursor"] is None) == keys.startswith("a")
        assert (page["next_cursor"] is None) == keys.endswith("e")


@pytest.mark.parametrize(
    "score", ["", "x", "1.5", "--1", "+1", "9007199254740993", "-9007199254740993", "٣", "1" * 5000]
)
async def test_an_invalid_score_is_refused(valkey_url: str, score: str) -> None:
    """Only whole numbers in the exact range are valid."""
    async with server(valkey_url) as client:
        response = await client.get("/v1/boards/posts", params={"score": score})
        assert (response.status_code, response.json()["code"]) == (400, "parameter_invalid")
        assert response.json()["detail"] == "`score` must be a whole number within ±2^53"


HOUR = 3600
START = 1_767_225_600  # 1 January 2026 00:00 UTC


def hours(**choices: Any) -> Board:
    """A board with a ranking for each hour of event time."""
    return built(
        id="hours",
        title="hours",
        source=frozenset({"like"}),
        window=Periods(unit="hour", keep=2),
        clock="event",
        **choices,
    )


def at(hour: int, member: str, amount: int = 1) -> dict[str, Any]:
    """A like in an hour of the test day."""
    return {"key": member, "amount": amount, "time": f"2026-01-01T{hour:02}:30:00Z"}


async def test_each_period_has_its_own_ranking(valkey_url: str) -> None:
    """A request names the current, the previous or another period. A walk stays in the period where it began."""
    events = [at(5, "a", 3), at(5, "b", 2), at(6, "b", 9), at(7, "c"), at(5, "c")]
    async with server(valkey_url, *events[:4], boards=[hours()]) as client:
        answer = await post(client, events[4])
        assert [rejection["code"] for rejection in answer["rejected"]] == ["late"]

        async def page(query: str) -> tuple[Any, ...]:
            found = (await client.get(f"/v1/boards/hours?{query}")).json()
            records = [(record["key"], record["score"]) for record in found["records"]]
            return found["period"], records, found["rank_count"], found["total_score"]

        assert await page("") == await page("period=current") == ("2026-01-01T07", [("c", 1)], 1, 1)
        assert await page("period=previous") == ("2026-01-01T06", [("b", 9)], 1, 9)
        assert await page("period=2026-01-01T05") == ("2026-01-01T05", [("a", 3), ("b", 2)], 2, 5)
        first = (await client.get("/v1/boards/hours?limit=1&period=2026-01-01T05")).json()
        assert (first["period_start"], first["period_end"]) == ("2026-01-01T05:00:00Z", "2026-01-01T06:00:00Z")
        cursor = first["next_cursor"]
        assert await page(f"limit=1&cursor={cursor}") == ("2026-01-01T05", [("b", 2)], 2, 5)
        assert await page("period=2026-01-01T05&score=2&limit=1") == ("2026-01-01T05", [("b", 2)], 2, 5)

        await post(client, at(8, "d"))
        for query in (f"cursor={cursor}", "period=2026-01-01T05", "period=2026-01-01T09"):
            response = await client.get(f"/v1/boards/hours?{query}")
            assert (response.status_code, response.json()["code"]) == (404, "period_not_found")


@pytest.mark.parametrize(
    "period", ["", "x", "last", "2026-01-01", "2026-W01", "2026-13-01T00", "9999-12-31T23", "0001-01-01T00"]
)
async def test_an_invalid_period_is_refused(valkey_url: str, period: str) -> None:
    """A name of another unit, an invalid day, or a year out of range is invalid."""
    async with server(valkey_url, at(5, "a"), boards=[hours()]) as client:
        for path in ("", "/records/a", "/records"):
            response = await client.get(f"/v1/boards/hours{path}", params={"period": period, "key": "a"})
            assert (response.status_code, response.json()["code"]) == (400, "parameter_invalid")


async def test_a_board_without_periods_has_only_the_current_one(valkey_url: str) -> None:
    """Other periods are invalid. A board of event time has no period before its first event."""
    async with server(valkey_url, boards=[rolling_board(), hours()]) as client:
        current = (await client.get("/v1/boards/posts?period=current")).json()
        assert (current["period"], "period_start" in current) == (None, False)
        refused = await client.get("/v1/boards/posts?period=previous")
        assert (refused.status_code, refused.json()["code"]) == (400, "parameter_invalid")
        none = await client.get("/v1/boards/hours?period=previous")
        assert (none.status_code, none.json()["code"]) == (404, "period_not_found")
        assert (await client.get("/v1/boards/hours")).json()["period"] is None


async def test_the_tag_of_a_page_contains_the_period(valkey_url: str) -> None:
    """A new period changes the tag, even if nothing changed in the store."""
    async with server(valkey_url, at(5, "a"), boards=[hours()]) as client:
        known = {"If-None-Match": (await client.get("/v1/boards/hours")).headers["etag"]}
        assert known["If-None-Match"].endswith(f':{START + 5 * HOUR}"')
        assert (await client.get("/v1/boards/hours", headers=known)).status_code == 304


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=1.5", "limit=", "limit=٣"])
async def test_a_parameter_out_of_range_is_refused(valkey_url: str, query: str) -> None:
    """The detail names the parameter and its range."""
    async with server(valkey_url) as client:
        response = await client.get(f"/v1/boards/posts?{query}")
        assert (response.status_code, response.json()["code"]) == (400, "parameter_invalid")
        assert response.json()["detail"] == "`limit` must be a whole number from 1 to 1000"


async def test_the_tag_of_a_page_contains_the_definition(valkey_url: str) -> None:
    """A page names its definition, and so does its tag: a page of another definition has another tag."""
    for title in ("One", "Two"):
        board = msgspec.structs.replace(rolling_board(), title=title)
        async with server(valkey_url, boards=[board]) as client:
            for path in ("/v1/boards/posts", "/v1/boards/posts?limit=1"):
                answer = await client.get(path)
                assert answer.json()["definition"] == board.definition_tag
                assert answer.headers["etag"].endswith(f':0:{board.definition_tag}"')


async def test_a_page_that_did_not_change_is_304(valkey_url: str) -> None:
    """With the previous `ETag`, the answer is 304 until the board changes."""
    async with server(valkey_url, {"key": "a"}) as client:
        first = await client.get("/v1/boards/posts")
        again = await client.get("/v1/boards/posts", headers={"If-None-Match": f'W/"x", {first.headers["etag"]}'})
        await post(client, {"key": "a"})
        changed = await client.get("/v1/boards/posts", headers={"If-None-Match": first.headers["etag"]})

        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert changed.status_code == 200


async def test_one_record_has_its_gap_and_neighbours(valkey_url: str) -> None:
    """The answer has the record's score, rank, gap to the next rank, and neighbours on each side."""
    events: list[dict[str, Any]] = [
        {"key": "a", "amount": 9},
        {"key": "b", "amount": 4},
        {"key": "c", "amount": 4},
        {"key": "d"},
    ]
    async with server(valkey_url, *events) as client:
        alone = (await client.get("/v1/boards/posts/records/c")).json()
        near = (await client.get("/v1/boards/posts/records/b?around=1")).json()
        first = (await client.get("/v1/boards/posts/records/a?around=100")).json()

        assert (alone["score"], alone["rank"], alone["gap"], alone["rank_count"]) == (4, 3, 0, 4)
        assert [record["key"] for record in alone["records"]] == ["c"]
        assert (near["rank"], near["gap"]) == (2, 5)
        assert [(record["key"], record["rank"]) for record in near["records"]] == [("a", 1), ("b", 2), ("c", 3)]
        assert (first["rank"], first["gap"], len(first["records"])) == (1, None, 4)


@pytest.mark.parametrize("member", ["/a/b?c=d#e", "100%", "%2F", "//", "...", "a b", "ключ", "\U0001f600", "records/x"])
async def test_members_in_paths_are_percent_encoded(valkey_url: str, member: str) -> None:
    """Any member can be requested."""
    async with server(valkey_url, {"key": member}) as client:
        response = await client.get(f"/v1/boards/posts/records/{quote(member, safe='').replace('.', '%2E')}")
        assert (response.status_code, response.json().get("key")) == (200, member)


async def test_a_member_that_is_not_on_the_board_is_404(valkey_url: str) -> None:
    """The member was never liked, or has a score of zero."""
    async with server(valkey_url, {"key": "a"}) as client:
        await post(client, {"key": "a", "amount": -1})
        for member in ("a", "b"):
            response = await client.get(f"/v1/boards/posts/records/{member}")
            assert (response.status_code, response.json()["code"]) == (404, "record_not_found")


@pytest.mark.parametrize("path", ["/v1/boards/none", "/v1/boards/none/records/a", "/v1/boards/none/live"])
async def test_an_unknown_board_is_404(valkey_url: str, path: str) -> None:
    """Each route of a board answers `board_not_found`."""
    async with server(valkey_url) as client:
        response = await client.get(path)
        assert (response.status_code, response.json()["code"]) == (404, "board_not_found")
        assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/events/", "/v1/boards/", "/v1/nothing"])
async def test_an_unknown_path_is_404(valkey_url: str, path: str) -> None:
    """The answer is 404 and, below `/v1/`, a problem document."""
    async with server(valkey_url) as client:
        response = await client.get(path)
        assert response.status_code == 404
        if path != "/v1":
            assert response.json()["code"] in {"not_found", "board_not_found"}
