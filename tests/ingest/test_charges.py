"""The rate limiter charges each event of a body once, in every format. It also charges for useless work and records."""

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest

from live.auth.rates import RateLimiter
from live.domain.board_file import parse_boards
from live.domain.limits import Client
from live.domain.producer import Principal
from tests.harness.server import run_server, serving
from tests.harness.settings import fresh_settings

COUNT: Final = 1000
EVENTS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "plain": lambda number: {"key": f"k{number}"},
    "with metadata": lambda number: {"key": f"k{number}", "metadata": {"a": number}},
    "with escapes": lambda number: {"key": f'a "quoted" name {number}'},
    "with Cyrillic letters": lambda number: {"key": f"ключ {number}"},
    "with ids and actors": lambda number: {"key": "k", "id": str(number), "source": "é", "actor": f"ä{number}"},
    "refused": lambda number: {"key": "k", "amount": str(number)},
}


def as_cloudevent(event: dict[str, Any], number: int) -> dict[str, Any]:
    """The same event as a CloudEvent, with metadata as unused data."""
    found = {"specversion": "1.0", "id": str(number), "source": "s", "type": "like", "subject": event["key"]}
    return found | ({"data": event["metadata"]} if "metadata" in event else {})


def as_bodies(events: Sequence[dict[str, Any]], *, ascii_only: bool) -> dict[str, tuple[str, bytes]]:
    """The content type and the body of each format for many events."""

    def dump(value: object) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    batch = [as_cloudevent(event, number) for number, event in enumerate(events)]
    return {
        "array": ("application/json", dump(events).encode()),
        "lines": ("application/x-ndjson", "\n".join(map(dump, events)).encode()),
        "batch": ("application/cloudevents-batch+json", dump(batch).encode()),
    }


async def charged(
    client: httpx.AsyncClient, kind: str, body: bytes, target: str = "/v1/events", **headers: str
) -> tuple[int, int]:
    """Return the status of a request, and what its producer was charged, including one event for its admission."""
    charges: list[int] = []
    charge = RateLimiter.charge

    def record(rate_limiter: RateLimiter, producer: Principal, events: int) -> None:
        charges.append(events)
        charge(rate_limiter, producer, events)

    with patch.object(RateLimiter, "charge", record):
        response = await client.post(target, content=body, headers={"Content-Type": kind, **headers})
    return response.status_code, 1 + sum(max(1, events) - 1 for events in charges)


@pytest.mark.parametrize("variant", EVENTS)
async def test_every_format_is_charged_by_its_events(valkey_url: str, variant: str) -> None:
    """One body has many events, with and without escapes, compression and an `Idempotency-Key`."""
    events = [EVENTS[variant](number) for number in range(COUNT)]
    async with serving(fresh_settings(valkey_url)) as client:
        for ascii_only in (True, False):
            for name, (kind, body) in as_bodies(events, ascii_only=ascii_only).items():
                packed = {"Content-Encoding": "gzip"}
                once = {"Idempotency-Key": f"{name}-{ascii_only}"}
                assert await charged(client, kind, body) == (200, COUNT), name
                assert await charged(client, kind, gzip.compress(body), **packed) == (200, COUNT), name
                # The server also charges for a stored response. A long response costs more than the events.
                if variant != "refused":
                    assert await charged(client, kind, body, **once) == (200, COUNT), name


@pytest.mark.parametrize("variant", EVENTS)
async def test_one_event_is_charged_as_one(valkey_url: str, variant: str) -> None:
    """The event may be an object, a line, or a CloudEvent in either mode. Records in the answer are charged too."""
    event = EVENTS[variant](1)
    cloud = as_cloudevent(event, 1)
    bodies = [
        ("application/json", json.dumps(event).encode()),
        ("application/x-ndjson", json.dumps(event).encode()),
        ("application/cloudevents+json", json.dumps(cloud).encode()),
        ("application/cloudevents+json", json.dumps(cloud | {"data": "x" * 200_000}).encode()),
        ("application/cloudevents-batch+json", json.dumps([cloud | {"data": "x" * 60_000}]).encode()),
    ]
    async with serving(fresh_settings(valkey_url)) as client:
        for kind, body in bodies:
            assert await charged(client, kind, body) == (200, 1), kind
        three = b'{"key":"a"}\n{"key":"b"}\n{"key":"c"}'
        assert await charged(client, "application/x-ndjson", three, "/v1/events?rank=true") == (200, 3 + 2)


async def test_useless_work_is_charged(valkey_url: str) -> None:
    """Useless work is bodies that are refused after they were decoded."""
    lines, packed = "application/x-ndjson", {"Content-Encoding": "gzip"}
    many = b"[" + b"1," * 100_000 + b"1]"
    async with serving(fresh_settings(valkey_url)) as client:
        assert await charged(client, "application/json", b"[]") == (200, 1)
        assert await charged(client, "application/json", many) == (413, len(many) // 256)
        assert await charged(client, "application/json", gzip.compress(many), **packed) == (413, len(many) // 256)
        assert await charged(client, "application/json", many[:-1]) == (400, len(many) // 256)
        assert await charged(client, lines, b"1\n" * 100_000) == (413, 200_000 // 256)
        assert await charged(client, lines, b"\n" * 100_000) == (400, 100_000 // 256)


async def test_a_body_counts_once_towards_the_rate_of_each_prefix(valkey_url: str) -> None:
    """A prefix is charged for the events of all its boards together. A prefix without a rate is not charged."""
    names = ("acme-a", "acme-b", "beta-a", "free-a")
    text = '[limits."acme-*"]\nrate = 9\n[limits."beta-*"]\nrate = 9\n[limits."free-*"]\nboards = 9\n'
    boards = parse_boards(text + "".join(f'[[board]]\nid = "{name}"\n' for name in names))
    spent: list[tuple[str, int]] = []

    def record(_: RateLimiter, limits: Client | Principal, events: int) -> None:
        if isinstance(limits, Client):
            spent.append((limits.rate_key, events))

    async with run_server(fresh_settings(valkey_url), boards) as url, httpx.AsyncClient(base_url=url) as client:
        with patch.object(RateLimiter, "spend", record):
            events = [{"key": "a", "board": name} for name in [*names, "acme-a", "acme-b", "acme-b"]]
            response = await client.post("/v1/events", json=events)
    assert response.json()["accepted"] == 7
    assert spent == [("boards:acme-", 5), ("boards:beta-", 1)]
