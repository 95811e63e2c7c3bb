"""Likes wait for earlier likes of the same visitor, and a rate that refuses likes is logged once a minute."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from live.auth.rates import RateLimiter
from live.auth.visitors import Voting
from live.domain.reader import BoardScope, Reader
from live.errors import ProblemError
from live.store.connection.client import connect
from tests.harness.settings import fresh_settings


async def refused(voting: Voting, network: str, voter: Reader | None = None) -> list[MutableMapping[str, Any]]:
    """Send likes until one is refused. Return what was logged meanwhile."""
    with capture_logs() as lines:
        try:
            while True:
                await voting.admit(network, voter)
        except ProblemError as problem:
            assert "the setting like_rate" in problem.detail  # noqa: PT017 - an earlier like may be refused already
    return list(lines)


def voter(name: str, signer: str) -> Reader:
    """The reader of a viewer token."""
    reader = Reader(likes=BoardScope.of(("songs",)), voter=name)
    reader.signer = signer
    return reader


async def test_a_rate_that_refuses_is_logged_once_a_minute(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the setting."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 1)
    settings = fresh_settings(valkey_url, like_rate=1)
    client, now = connect(valkey_url, settings), 0.0
    limiter = RateLimiter(client, settings)
    voting = Voting(limiter, settings, lambda: now)
    (line,) = await refused(voting, "192.0.2.1")
    assert "raise LIVE_LIKE_RATE" in line["event"]
    assert line["log_level"] == "warning"
    now = 59.0
    assert await refused(voting, "192.0.2.2") == []
    now = 60.0
    assert len(await refused(voting, "192.0.2.3")) == 1
    await limiter.close()
    await client.aclose()


async def test_each_voter_of_each_signer_has_a_rate(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same `sub` may mean different people in tokens of different signers."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 1)
    settings = fresh_settings(valkey_url, like_rate=1)
    client = connect(valkey_url, settings)
    limiter = RateLimiter(client, settings)
    voting = Voting(limiter, settings)
    for one in (None, voter("ann", "one"), voter("ann", "other"), voter("bob", "one")):
        await voting.admit("192.0.2.1", one)
    await refused(voting, "192.0.2.9", voter("ann", "one"))
    await limiter.close()
    await client.aclose()


async def test_a_visitor_has_one_vote_in_flight(valkey_url: str) -> None:
    """A second vote of the visitor waits. Votes of others do not."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    voting = Voting(RateLimiter(client, settings), settings)
    flying: list[str] = []
    most = 0
    landing, two = asyncio.Event(), asyncio.Event()

    async def fly(visitor: str) -> None:
        nonlocal most
        async with voting.turn(visitor):
            flying.append(visitor)
            most = max(most, flying.count(visitor))
            if len(flying) == 2:
                two.set()
            await landing.wait()
            flying.remove(visitor)

    flights = [asyncio.create_task(fly(visitor)) for visitor in ("ann", "ann", "bob", "ann")]
    await two.wait()
    assert sorted(flying) == ["ann", "bob"]
    landing.set()
    await asyncio.gather(*flights)
    assert most == 1
    await client.aclose()
