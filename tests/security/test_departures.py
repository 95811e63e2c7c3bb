"""Clients that leave in the middle of a request: the server does not take this for a failure, and logs nothing."""

import pytest
from structlog.testing import capture_logs

from live.domain.board_file import parse_boards
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.wire import JSON, connected, request

pytestmark = pytest.mark.security

BOARDS = parse_boards("""
[[board]]
id = "liked"
like_button = true
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_actor = 1 }
""")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
LEFT = (("Content-Length", "20"), ("Expect", "100-continue"))
BODIES = {
    "a like": ("POST", "/boards/liked/likes", (FORM, ("Origin", "http://localhost"))),
    "events": ("POST", "/v1/%65vents", (JSON,)),
    "a board": ("PUT", "/v1/boards/new", (JSON,)),
    "a change of a board": ("PATCH", "/v1/boards/liked", (JSON,)),
    "a contestant": ("PUT", "/v1/boards/contest/records/a", (JSON,)),
    "a record": ("PATCH", "/v1/boards/liked/records/a", (JSON,)),
    "a title": ("PUT", "/v1/items/a", (JSON,)),
    "titles": ("PUT", "/v1/items", (JSON,)),
}


async def leave(store: str) -> list[str]:
    """Leave in the middle of the body on every route that reads a body; returns the lines that the server logs."""
    with capture_logs() as lines:
        async with run_server(fresh_settings(store, anonymous_admin=True), BOARDS) as url:
            for method, target, fields in BODIES.values():
                for is_reset in (False, True):
                    async with connected(url) as wire:
                        head = request(method, target, *fields, *LEFT)
                        # Only under the host name `localhost` may requests without an API key change boards.
                        await wire.send(head.replace(b"Host: x", b"Host: localhost"))
                        assert b" 100 " in await wire.answer(), "the route does not read the body"
                        await wire.send(b"{")
                        if is_reset:
                            wire.writer.transport.abort()
    return [str(line["event"]) for line in lines if line["log_level"] in {"warning", "error", "critical"}]


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_not_logged(valkey_url: str) -> None:
    """The server logs nothing, on any route."""
    assert await leave(valkey_url) == []
