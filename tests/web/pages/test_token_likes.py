"""Votes with a viewer token, from pages of other origins that the operator allows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET, make_token, token_field

FRIEND = "https://friend.example"
BOARDS = parse_boards("""
[[board]]
id = "cup"
window = "forever"
votes = { per_key = 1, per_actor = 2 }
[[board]]
id = "other"
window = "forever"
votes = { per_key = 1 }
like_button = true
[[board]]
id = "liked"
like_button = true
[[board]]
id = "plain"
""")


@asynccontextmanager
async def voting(store: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server with Ada, Bo and Cy on each board, and an allowed origin."""
    settings = fresh_settings(store, token_secret=SECRET, allowed_origins=(FRIEND,), like_rate=10_000, open=True)
    async with run_server(settings, BOARDS) as url, httpx.AsyncClient(base_url=url) as client:
        for board in BOARDS.by_id:
            events = [{"key": member, "board": board, "actor": f"first {member}"} for member in ("Ada", "Bo", "Cy")]
            assert (await post(client, *events))["accepted"] == 3
        yield client


async def vote(client: httpx.AsyncClient, member: str, token: str, board: str = "cup", origin: str = FRIEND) -> Any:
    """Vote as a page of another origin does.

    Returns whether the vote was counted now, or the code of the refusal.
    """
    headers = [("Origin", origin), ("Sec-Fetch-Site", "cross-site"), ("Accept", "application/json"), token_field(token)]
    answer = await client.post(f"/boards/{board}/likes", data={"key": member}, headers=headers)
    if origin == FRIEND:
        assert answer.headers["access-control-allow-origin"] == FRIEND
    return answer.json()["counted"] if answer.status_code == 200 else answer.json()["code"]


def signed(voter: str | None, *boards: str, **claims: Any) -> str:
    """A token with which a voter may vote on boards."""
    return make_token(likes=boards or ("cup",), sub=voter, **claims)


async def score(client: httpx.AsyncClient, member: str, board: str = "cup") -> int:
    """The votes of a member."""
    found: int = (await client.get(f"/v1/boards/{board}/records/{member}")).json()["score"]
    return found


async def check_voters(client: httpx.AsyncClient) -> None:
    """Check that a voter has one vote for each member, and in all as many as the contest allows, with any tokens."""
    ada, bo = await score(client, "Ada"), await score(client, "Bo")
    assert await vote(client, "Ada", signed("ann")) is True
    assert await vote(client, "Ada", signed("ann", ends=1000)) in {False, "votes_used"}, (
        "a second token of a voter has new votes"
    )
    assert await vote(client, "Bo", signed("ann")) is True
    assert await vote(client, "Cy", signed("ann")) == "votes_used"
    assert await vote(client, "Ada", signed("bob")) is True
    assert (await score(client, "Ada"), await score(client, "Bo")) == (ada + 2, bo + 1)
    backend = await post(client, {"key": "Ada", "board": "cup", "actor": "ann"})
    assert backend["rejected"][0]["code"] == "quota_exceeded", "the voter of a token is not the actor of the event"


async def check_refusals(client: httpx.AsyncClient) -> None:
    """Check that nothing counts with a token that is forged, expired or for other boards, or from other origins."""
    before = await score(client, "Ada"), await score(client, "Ada", "other")
    good = signed("eve")
    forged = make_token(likes=("cup",), sub="eve", secret=SECRET[::-1])
    assert await vote(client, "Ada", forged) == "credentials_invalid"
    assert await vote(client, "Ada", signed("eve", ends=-1)) == "credentials_invalid"
    assert await vote(client, "Ada", signed(None)) == "credentials_invalid"
    assert await vote(client, "Ada", signed("e\x00e")) == "credentials_invalid"
    assert await vote(client, "Ada", signed("e" * 257)) == "credentials_invalid"
    assert await vote(client, "Ada", make_token("cup", sub="eve")) == "scope_forbidden"
    assert await vote(client, "Ada", good, "other") == "scope_forbidden"
    assert await vote(client, "Ada", good, origin="https://evil.example") == "origin_forbidden"
    assert await vote(client, "Ada", signed("eve", "plain"), "plain") == "likes_not_allowed"
    assert await vote(client, "Eve", good) == "record_not_found"
    assert (await score(client, "Ada"), await score(client, "Ada", "other")) == before
    assert await vote(client, "Ada", good) is True


async def test_a_page_of_an_allowed_origin_votes_with_a_token(valkey_url: str) -> None:
    """A browser may send the vote and read the answer. A board for tokens alone needs no like button."""
    async with voting(valkey_url) as client:
        preflight = {
            "Origin": FRIEND,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        granted = (await client.options("/boards/cup/likes", headers=preflight)).headers
        assert granted["access-control-allow-origin"] == FRIEND
        assert granted["access-control-allow-methods"] == "POST"
        assert "Authorization" in granted["access-control-allow-headers"]
        evil = (
            await client.options("/boards/cup/likes", headers=preflight | {"Origin": "https://evil.example"})
        ).headers
        assert "access-control-allow-origin" not in evil
        await check_voters(client)
        await check_refusals(client)
        assert await vote(client, "Ada", signed("ann", "liked"), "liked") is True
        assert await vote(client, "Ada", signed("ann", "liked", ends=99), "liked") is False


async def test_votes_with_tokens_are_limited_by_voter(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many voters share an address, and each has a burst of its own, whatever its tokens."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 2)
    settings = fresh_settings(valkey_url, token_secret=SECRET, allowed_origins=(FRIEND,), like_rate=1, open=True)
    async with run_server(settings, BOARDS) as url, httpx.AsyncClient(base_url=url) as client:
        await post(client, {"key": "Ada", "board": "cup", "actor": "first"})
        assert [await vote(client, "Ada", signed(f"v{number}")) for number in range(12)] == [True] * 12
        ends = range(1000, 1012)
        assert await vote(client, "Ada", signed("v0")) is False
        assert [await vote(client, "Ada", signed("v0", ends=end)) for end in ends][-1] == "rate_exceeded"
        assert await vote(client, "Ada", signed("another")) is True


async def test_a_token_with_an_odd_claim_is_refused_with_a_reason(valkey_url: str) -> None:
    """Half of a character in a claim neither ends the connection nor counts."""
    async with voting(valkey_url) as client:
        odd: list[dict[str, Any]] = [{"key": "\ud800"}, {"sub": "\ud800"}, {"boards": ["\ud800", 1]}, {"exp": []}]
        for claims in odd:
            token = make_token(**{"likes": ("cup",), "sub": "me", **claims})
            assert await vote(client, "Ada", token) == "credentials_invalid"
            answer = await client.get("/v1/boards/none", headers=[token_field(token)])
            assert answer.status_code == 404
            assert "viewer token" in answer.json()["detail"]
