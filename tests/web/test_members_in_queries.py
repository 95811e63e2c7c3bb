"""Each path with a member has a form with the member in the query, because some proxies refuse `%2F` in a path."""

from urllib.parse import quote

import pytest

from live.boards.definitions import read_board
from live.web.operations import by_query
from tests.harness.producer import post
from tests.harness.server import server

PATHS = (
    "/v1/boards/posts/records/{key}",
    "/v1/boards/posts/records/{key}/slots",
    "/v1/records/{key}",
    "/v1/items/{key}",
    "/boards/posts/records/{key}",
)


@pytest.mark.parametrize("member", ["a/b", "é&key=c", "x"])
async def test_both_forms_of_a_path_answer_the_same(valkey_url: str, member: str) -> None:
    """Other parameters go on to work."""
    async with server(valkey_url, anonymous_admin=True) as client:
        await post(client, {"key": member, "amount": 3}, {"key": "other"})
        item = await client.put("/v1/item", params={"key": member}, json={"title": "T"})
        assert item.status_code == 204, item.text
        for path in PATHS:
            named = await client.get(path.replace("{key}", quote(member, safe="")))
            asked = await client.get(by_query(path), params={"key": member})
            assert (asked.status_code, asked.headers["content-type"]) == (200, named.headers["content-type"]), path
            if path.startswith("/v1"):
                assert asked.json() == named.json()
        around = await client.get("/v1/boards/posts/record", params={"key": member, "around": 1})
        assert [record["key"] for record in around.json()["records"]] == [member, "other"]
        assert (await client.delete("/v1/item", params={"key": member})).status_code == 204
        assert (await client.get("/v1/item", params={"key": member})).status_code == 404


async def test_a_contestant_is_registered_by_query(valkey_url: str) -> None:
    """Administrators change records with the same form."""
    board = read_board("songs", {"types": ["vote"], "window": "forever", "votes": {"registered": True}})
    async with server(valkey_url, board, anonymous_admin=True) as client:
        path, params = "/v1/boards/songs/record", {"key": "AC/DC"}
        assert (await client.put(path, params=params, json={})).is_success
        assert (await client.patch(path, params=params, json={"hidden": True})).is_success
        assert (await client.delete(path, params=params)).is_success


@pytest.mark.parametrize("query", ["", "?key=a&key=b", "?keys=a"])
async def test_a_query_names_one_member(valkey_url: str, query: str) -> None:
    """Without a member, the message says what to add."""
    async with server(valkey_url) as client:
        answer = await client.get(f"/v1/boards/posts/record{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "parameter_invalid")
        assert "key" in answer.json()["detail"]


async def test_links_of_a_page_keep_the_member(valkey_url: str) -> None:
    """A visitor who chooses a theme or a language comes back to the page."""
    async with server(valkey_url) as client:
        await post(client, {"key": "a/b"})
        page = await client.get("/boards/posts/record", params={"key": "a/b"})
        assert 'value="/boards/posts/record?key=a%2Fb"' in page.text
