"""GET /v1/boards and below: pages, cursors, conditional requests, one record with its neighbours."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from live.ranking import Record
from live.web.boards import decode_cursor, encode_cursor
from tests.support import fresh_settings, post, rolling_board, run_server


@asynccontextmanager
async def server(store: str, *events: dict[str, Any], **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A server with the board `posts` and some events on it."""
    async with (
        run_server(fresh_settings(store, **changes), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        if events:
            await post(client, *events)
        yield client


async def test_the_list_of_boards(valkey_url: str) -> None:
    """Each board with what it is, its window in seconds."""
    async with server(valkey_url) as client:
        assert (await client.get("/v1/boards")).json() == {
            "boards": [{"board": "posts", "title": "posts", "window": 86400, "slot": 3600, "clock": "server"}]
        }


async def test_an_empty_board_is_a_board(valkey_url: str) -> None:
    """Without records it has an epoch and stands at offset 0."""
    async with server(valkey_url) as client:
        page = (await client.get("/v1/boards/posts")).json()

        assert page.pop("epoch")
        assert page == {
            "board": "posts", "title": "posts", "offset": 0, "rank_count": 0, "total_score": 0,
            "records": [], "next_cursor": None,
        }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 7, 30, 100])
async def test_pages_follow_each_other(valkey_url: str, limit: int) -> None:
    """A walk meets every record once, in order, and ends with a null cursor; ties are cut anywhere."""
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

    assert [(record["key"], record["score"]) for record in walked] == sorted(
        ((event["key"], event["amount"]) for event in events), key=lambda item: (-int(str(item[1])), str(item[0]))
    )
    assert [record["rank"] for record in walked] == list(range(1, 31))


async def test_a_cursor_survives_what_it_points_at(valkey_url: str) -> None:
    """The record behind which a page ended may leave or move: the walk goes on where it stood."""
    async with server(valkey_url, *({"key": key, "amount": 5} for key in "abcd")) as client:
        first = (await client.get("/v1/boards/posts?limit=2")).json()
        await post(client, {"key": "b", "amount": -5}, {"key": "a", "amount": 9})
        second = (await client.get(f"/v1/boards/posts?limit=2&cursor={first['next_cursor']}")).json()

        assert [record["key"] for record in second["records"]] == ["c", "d"]


@pytest.mark.parametrize(
    "cursor", ["", "x", "!!!", "bnVsbA", encode_cursor(Record("a", 2**53 + 1, 1)), "WzEsMl0", "A" * 5000, "é"]
)
async def test_a_cursor_that_is_none_is_refused(valkey_url: str, cursor: str) -> None:
    """What this server did not make is a 400."""
    async with server(valkey_url) as client:
        response = await client.get("/v1/boards/posts", params={"cursor": cursor})
        assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")


@pytest.mark.parametrize("key", ["a", "é/?#%", "\U0001f600", 'quote"', "k" * 1024])
def test_a_cursor_holds_any_position(key: str) -> None:
    """Encoding and decoding are inverse, also for negative scores; the word needs no escapes in a URL."""
    cursor = encode_cursor(Record(key, -3, 1))

    assert decode_cursor(cursor) == (-3, key)
    assert quote(cursor, safe="") == cursor


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=1.5", "limit=", "limit=٣"])
async def test_a_parameter_out_of_range_is_refused(valkey_url: str, query: str) -> None:
    """The answer names the parameter and its range."""
    async with server(valkey_url) as client:
        response = await client.get(f"/v1/boards/posts?{query}")
        assert (response.status_code, response.json()["code"]) == (400, "parameter_invalid")
        assert response.json()["detail"] == "`limit` is a whole number from 1 to 1000"


async def test_a_page_that_did_not_change_is_304(valkey_url: str) -> None:
    """With the ETag of before, nothing is sent until the board changes."""
    async with server(valkey_url, {"key": "a"}) as client:
        first = await client.get("/v1/boards/posts")
        again = await client.get("/v1/boards/posts", headers={"If-None-Match": f'W/"x", {first.headers["etag"]}'})
        await post(client, {"key": "a"})
        changed = await client.get("/v1/boards/posts", headers={"If-None-Match": first.headers["etag"]})

        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert changed.status_code == 200


async def test_one_record(valkey_url: str) -> None:
    """Score, rank, what it misses to the one above, and neighbours on each side."""
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


@pytest.mark.parametrize("key", ["/a/b?c=d#e", "100%", "%2F", "//", "..", "a b", "ключ", "\U0001f600", "records/x"])
async def test_keys_in_paths_are_percent_encoded(valkey_url: str, key: str) -> None:
    """Any key can be asked for."""
    async with server(valkey_url, {"key": key}) as client:
        response = await client.get(f"/v1/boards/posts/records/{quote(key, safe='').replace('.', '%2E')}")
        assert (response.status_code, response.json().get("key")) == (200, key)


async def test_a_key_that_is_not_there_is_404(valkey_url: str) -> None:
    """Never liked, or no like left."""
    async with server(valkey_url, {"key": "a"}) as client:
        await post(client, {"key": "a", "amount": -1})
        for key in ("a", "b"):
            response = await client.get(f"/v1/boards/posts/records/{key}")
            assert (response.status_code, response.json()["code"]) == (404, "record_not_found")


@pytest.mark.parametrize("path", ["/v1/boards/none", "/v1/boards/none/records/a", "/v1/boards/none/live"])
async def test_an_unknown_board_is_404(valkey_url: str, path: str) -> None:
    """Each route says the same."""
    async with server(valkey_url) as client:
        response = await client.get(path)
        assert (response.status_code, response.json()["code"]) == (404, "board_not_found")
        assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/events/", "/v1/boards/", "/v1/nothing"])
async def test_a_path_that_nobody_serves_is_404(valkey_url: str, path: str) -> None:
    """No redirect, no page: a problem document."""
    async with server(valkey_url) as client:
        response = await client.get(path)
        assert response.status_code == 404
        if path != "/v1":
            assert response.json()["code"] in {"not_found", "board_not_found"}
