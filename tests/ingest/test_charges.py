"""The rate limiter charges each event of a body once, in every format. It also charges for useless work and records."""

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest

from live.auth.rate_limiter import RateLimiter
from live.domain.board_file import parse_boards
from live.domain.decoding import STEP, Steps, decode_ndjson
from live.domain.limits import PrefixLimits
from live.domain.producer import Principal
from live.ingest import intake
from live.ingest.intake import CheckedHead, Intake
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import run_server, serving
from tests.harness.settings import fresh_settings

COUNT: Final = 1000
EVENTS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "plain": lambda number: {"key": f"k{number}"},
    "with metadata": lambda number: {"key": f"k{number}", "metadata": {"a": number}},
    "with long metadata": lambda number: {"key": f"k{number}", "metadata": {"a": "x" * 500}},
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
    async with serving(fresh_settings(valkey_url, max_waiting=10**6)) as client:
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
    """Useless work is blanks, empty gzip members, and bodies that are refused only after they were decoded."""
    one = b'{"key":"a"}'
    lines, packed = "application/x-ndjson", {"Content-Encoding": "gzip"}
    async with serving(fresh_settings(valkey_url)) as client:
        assert await charged(client, "application/json", b"[]") == (200, 1)
        blank = b"\n" * 1_000_000 + one
        charge = (sum(1 for _ in decode_ndjson(blank, COUNT)) - 2) * STEP
        assert charge > 500
        assert await charged(client, lines, blank) == (200, charge)
        assert (await charged(client, lines, gzip.compress(blank), **packed))[1] > 500
        assert (await charged(client, lines, gzip.compress(b"") * 20_000 + gzip.compress(one), **packed))[1] > 5000
        status, charge = await charged(client, "application/json", b"[" + b"1," * 400_000 + b"1]")
        assert (status, charge > COUNT) == (413, True)
        status, charge = await charged(client, lines, one + b"\n" + b"\xff" * 500_000)
        assert (status, charge > COUNT) == (400, True)


def by_steps(self: Intake, head: CheckedHead, body: bytes) -> Steps:
    """A mutant of `Intake._decode` that charges every step as if it had decoded 64 events."""
    steps, work = intake._read(head, body, self._settings), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            self._rate_limiter.charge(head.producer, max(work, len(end.value.events) + len(end.value.rejections)))
            return end.value  # type: ignore[no-any-return]
        work += STEP
        yield


def by_events(self: Intake, head: CheckedHead, body: bytes) -> Steps:
    """A mutant of `Intake._decode` that charges nothing but the events."""
    decoded = yield from intake._read(head, body, self._settings)
    self._rate_limiter.charge(head.producer, len(decoded.events) + len(decoded.rejections))
    return decoded


@pytest.mark.mutant
async def test_other_charges_are_caught(valkey_url: str) -> None:
    """A charge by steps costs too much, and a charge by events alone too little."""
    with must_be_caught("a body is charged by its steps"), replaced(Intake, "_decode", by_steps):
        await test_every_format_is_charged_by_its_events(valkey_url, "with metadata")
    with must_be_caught("useless work is free"), replaced(Intake, "_decode", by_events):
        await test_useless_work_is_charged(valkey_url)


async def test_a_body_counts_once_towards_the_rate_of_each_prefix(valkey_url: str) -> None:
    """A prefix is charged for the events of all its boards together. A prefix without a rate is not charged."""
    names = ("acme-a", "acme-b", "beta-a", "free-a")
    text = '[limits."acme-*"]\nrate = 9\n[limits."beta-*"]\nrate = 9\n[limits."free-*"]\nboards = 9\n'
    boards = parse_boards(text + "".join(f'[[board]]\nid = "{name}"\n' for name in names))
    spent: list[tuple[str, int]] = []

    def record(_: RateLimiter, limits: PrefixLimits | Principal, events: int) -> None:
        if isinstance(limits, PrefixLimits):
            spent.append((limits.prefix, events))

    async with run_server(fresh_settings(valkey_url), boards) as url, httpx.AsyncClient(base_url=url) as client:
        with patch.object(RateLimiter, "spend", record):
            events = [{"key": "a", "board": name} for name in [*names, "acme-a", "acme-b", "acme-b"]]
            response = await client.post("/v1/events", json=events)
    assert response.json()["accepted"] == 7
    assert spent == [("acme-", 5), ("beta-", 1)]
