"""Too deeply nested JSON is a client error on every route and at every depth, never a server error."""

import base64
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.server import server

pytestmark = [pytest.mark.slow, pytest.mark.security]

BOARDS = """
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, registered = true }
[[board]]
id = "posts"
"""
LEVELS = 32
# Each parser gives up at a different depth, somewhere below a thousand levels.
DEPTHS = [*range(LEVELS - 1, LEVELS + 3), *range(850, 1010), 2000, 10_000]
CHANGES = [
    ("PUT", "/v1/boards/fresh"),
    ("PATCH", "/v1/boards/fresh"),
    ("PUT", "/v1/boards/contest/records/a"),
    ("PATCH", "/v1/boards/posts/records/a"),
]
EVENTS = {
    "plain": ("application/json", b'{"key":"a","metadata":%b}'),
    "array": ("application/json", b'[{"key":"a"},{"key":"a","metadata":%b}]'),
    "lines": ("application/x-ndjson", b'{"key":"a","metadata":%b}'),
    "CloudEvent": (
        "application/cloudevents+json",
        b'{"specversion":"1.0","id":"1","source":"s","type":"like","subject":"a","data":%b}',
    ),
}


def nested(levels: int) -> bytes:
    """Nested objects."""
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def contest(store: str) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """A server with a contest and a plain board."""
    return server(store, *parse_boards(BOARDS), rate=0, anonymous_admin=True)


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_deeply_nested_change_is_refused(valkey_url: str, method: str, path: str) -> None:
    """A body with more than 32 levels is refused as `malformed_body`. The content of any other body is validated."""
    async with contest(valkey_url) as client:
        for depth in DEPTHS:
            response = await client.request(
                method, path, content=nested(depth), headers={"Content-Type": "application/json"}
            )
            if depth > LEVELS:
                assert (response.status_code, response.json()["code"]) == (HTTPStatus.BAD_REQUEST, "malformed_body")
                assert "32 levels" in response.json()["detail"]
            else:
                assert response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
                assert b"levels" not in response.content


@pytest.mark.parametrize("kind", EVENTS)
async def test_deeply_nested_events_are_refused(valkey_url: str, kind: str) -> None:
    """Each answer is 400 or 200, never a server error.

    At the greatest depth, a JSON body is refused as a whole. In a body of lines, only the line is refused.
    """
    media_type, body = EVENTS[kind]
    async with contest(valkey_url) as client:
        for depth in DEPTHS:
            response = await client.post(
                "/v1/events", content=body % nested(depth), headers={"Content-Type": media_type}
            )
            assert response.status_code in {HTTPStatus.OK, HTTPStatus.BAD_REQUEST}, (depth, response.text)
        last = "event_invalid" if kind == "lines" else "malformed_body"
        assert last in response.text


async def test_a_deeply_nested_cursor_is_refused(valkey_url: str) -> None:
    """The answer is 400."""
    async with contest(valkey_url) as client:
        for depth in (900, 960, 2000):
            word = base64.urlsafe_b64encode(b'["after",1,"",' + b"[" * depth + b"]" * depth + b"]").rstrip(b"=")
            response = await client.get(f"/v1/boards/posts?cursor={word.decode()}")
            assert (response.status_code, response.json()["code"]) == (HTTPStatus.BAD_REQUEST, "cursor_invalid")
