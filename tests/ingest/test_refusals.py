"""The sample of refused events."""

import asyncio

import pytest

from live.domain.decoding import DecodedBody
from live.domain.event import IncomingEvent, Rejection
from live.ingest import refusals
from live.ingest.refusals import Refusals
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually


async def test_refused_events_are_listed_while_somebody_looks(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list and its texts have limits. While nobody looks, refused events leave nothing in the store."""
    monkeypatch.setattr(refusals, "_PAUSE", 0.01)
    settings = fresh_settings(valkey_url)
    client, keys = connect(settings.store, settings), SystemKeys(settings.key_prefix)
    sample = Refusals(client)
    long = "x" * 65
    events = [IncomingEvent(member="a"), IncomingEvent(member=long, board=long, type=long)]
    rejected = [
        Rejection(0, "key_empty", ""), Rejection(2, "late", "", board="posts"), Rejection(3, "late", "", board="posts"),
        *(Rejection(4, "early", "") for _ in range(20)),
    ]  # fmt: skip
    body = DecodedBody(events, [1, 3], [])

    async def is_published() -> bool:
        return not sample._sample

    sample.note("shop", body, rejected)
    await eventually(is_published)
    assert await sample.look() == []
    assert 29_000 < await client.call(keys.refusals_wanted, "PTTL", keys.refusals_wanted) <= 30_000

    sample.note("shop", body, rejected[:1])
    sample.note("shop", body, rejected[1:19])
    sample.note("shop", body, rejected[19:])
    sample.note("shop", body, rejected)
    await eventually(is_published)
    found = await sample.look()
    assert [(event.code, event.board, event.type, event.member) for event in reversed(found)] == [
        ("key_empty", "", "", ""), ("late", "posts", "", ""), ("late", long[:64], long[:64], long[:64]),
        *[("early", "", "", "")] * 17,
    ]  # fmt: skip
    assert {event.producer for event in found} == {"shop"}
    assert 599_000 < await client.call(keys.refusals, "PTTL", keys.refusals) <= 600_000

    for _ in range(10):
        sample.note("shop", body, rejected)
        await eventually(is_published)
    assert len(await sample.look()) == 200
    assert await client.call(keys.refusals, "LLEN", keys.refusals) == 200
    monkeypatch.setattr(refusals, "_PAUSE", 60)
    sample.note("shop", body, rejected)
    task = sample._task
    async with asyncio.timeout(60):
        await sample.close()
    assert task is not None
    assert task.cancelled()
    await client.aclose()
