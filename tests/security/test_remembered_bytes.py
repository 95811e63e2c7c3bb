"""What a process remembers of what strangers send: no name, header field or query fills its memory."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import clear_cache, quote  # type: ignore[attr-defined]

import pytest

from live.domain.board_file import parse_boards
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.wire import connected, post, request, statuses

pytestmark = [pytest.mark.security, pytest.mark.slow]

BOARDS: Final = parse_boards("""
[[board]]
id = "posts"
like_button = true
""")
LONG: Final = 50_000  # characters; one character is an emoji, so Python needs four bytes for each
MOST: Final = 1_300_000  # the most bytes that the process may remember of all requests
REPEATED: Final = 40

Attack = Callable[[int], bytes]


def name(number: int, size: int = LONG) -> str:
    """A name that no other request uses."""
    return f"{number}-\U0001f600".ljust(size, "x")


def path(number: int) -> str:
    """Return the name with this number, percent-encoded for a path."""
    return quote(name(number))


def get(target: Callable[[int], str]) -> Attack:
    """A GET of a path that depends on the number of the request."""
    return lambda number: request("GET", target(number))


def with_field(field: str, value: Callable[[int], str], target: str = "/v1/boards/posts") -> Attack:
    """A GET with a header field that depends on the number."""
    return lambda number: request("GET", target, (field, value(number)))


def send(event: Callable[[int], dict[str, Any]], value: str = "x") -> Attack:
    """A POST of an event that depends on the number, with a header field of another length each time."""
    return lambda number: post(
        json.dumps(event(number), ensure_ascii=False).encode(), ("X-Trace", value * (1 + number % 50))
    )


ATTACKS: Final[dict[str, Attack]] = {
    "titles": get(lambda number: f"/v1/items?key={path(number)}"),
    "a title": get(lambda number: f"/v1/items/{path(number)}"),
    "a record": get(lambda number: f"/v1/boards/posts/records/{path(number)}"),
    "a record with neighbours": get(lambda number: f"/v1/boards/posts/records/{path(number)}?around=5"),
    "records": get(lambda number: f"/v1/boards/posts/records?key={path(number)}"),
    "slots": get(lambda number: f"/v1/boards/posts/records/{path(number)}/slots"),
    "records on all boards": get(lambda number: f"/v1/records/{path(number)}"),
    "the page of a record": get(lambda number: f"/boards/posts/records/{path(number)}"),
    "a page with a member": get(lambda number: f"/boards/posts?key={path(number)}"),
    "a page with a query": get(lambda number: f"/boards/posts?lang=en&lang={path(number)}"),
    "a cursor": get(lambda number: f"/v1/boards/posts?cursor={path(number)}"),
    "a board": get(lambda number: f"/v1/boards/{path(number)}"),
    "a tag": with_field("If-None-Match", lambda number: f'"{path(number)}"'),
    "an origin": with_field("Origin", lambda number: f"http://{number}{'x' * 50_000}"),
    "a language": with_field("Accept-Language", path, "/boards/posts"),
    "a host": lambda number: request("GET", "/").replace(b"Host: x", b"Host: %d%b" % (number, b"x" * 50_000)),
    "a field of a POST": send(lambda _number: {"key": "a"}, "x" * 1000),
    "a board of an event": send(lambda number: {"key": "a", "board": name(number, 15_000)}),
    "a type of an event": send(lambda number: {"key": "a", "type": name(number, 200)}),
    "a source of an event": send(lambda number: {"key": "a", "id": "1", "source": name(number, 200)}),
}


async def growth(store: str, attack: Attack, repeated: int) -> int:
    """Return how many bytes a process remembers after many requests, which have different bytes."""
    settings = fresh_settings(store, anonymous_admin=True, rate=0)
    async with serving(settings, *BOARDS) as client:
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 200
        assert (await client.put("/v1/items/a", json={"title": "A"})).status_code == 204

        async def repeat(requests: list[bytes]) -> None:
            async with connected(str(client.base_url)) as wire:
                for sent in requests:
                    await wire.send(sent)
                    assert statuses([await wire.answer()])[0] < 500

        requests = [attack(number) for number in range(5 + repeated)]  # the requests are made before the tracing begins
        await repeat(requests[:5])
        tracemalloc.start()
        try:
            clear_cache()  # the cache of `urllib.parse` for the last 128 URLs
            before = tracemalloc.get_traced_memory()[0]
            await repeat(requests[5:])
            clear_cache()
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", ATTACKS)
async def test_nothing_remembers_the_bytes_of_strangers(valkey_url: str, kind: str, effort: int) -> None:
    """The requests of each kind hold several megabytes together, and the process remembers next to nothing of them."""
    assert await growth(valkey_url, ATTACKS[kind], REPEATED * effort) < MOST
