"""A hall: hundreds of phones behind one address vote at nearly the same time, through a real nginx."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board_file import parse_boards
from live.web.middleware import requester_of
from live.web.pages import likes
from live.web.parts import live_of
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.nginx import NGINX, TRUSTED, nginx
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

SONGS: Final = ("Aurora", "Borealis", "Cascade")
BOARDS: Final = parse_boards("""
[[board]]
id = "songs"
window = "forever"
votes = { per_key = 1, per_actor = 3 }
like_button = true
""")
CONNECTIONS: Final = 16
# The test plays another proxy in front of nginx, because this machine has no network with several addresses.
BEHIND_ANOTHER: Final = (("X-Forwarded-For   $remote_addr", "X-Forwarded-For   $proxy_add_x_forwarded_for"),)


class Router(httpx.AsyncHTTPTransport):
    """The connections of all phones. Requests wait here, because httpx takes long to find a connection for many."""

    def __init__(self) -> None:
        super().__init__(limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS))
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async with self._free:
            answer = await super().handle_async_request(request)
            await answer.aread()  # the connection is free again
        return answer


class Phone:
    """A browser with its own cookies. If `patient`, it sends each vote until the vote is counted, as the page does."""

    def __init__(self, transport: httpx.AsyncBaseTransport, url: str, address: str, *, patient: bool) -> None:
        headers = {"Origin": url, "Sec-Fetch-Site": "same-origin", "Accept": "application/json"}
        headers |= {"X-Forwarded-For": address} if address else {}
        self._http = httpx.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=60)
        self._patient = patient
        self.refused = 0

    async def vote(self, song: str) -> bool | None:
        """Vote for a song. Return whether the vote was counted now, and not before; None if it was refused."""
        while True:
            answer = await self._http.post("/boards/songs/likes", data={"key": song}, follow_redirects=True)
            if answer.status_code == 200:
                return cast("bool", answer.json()["counted"])
            assert (answer.status_code, answer.json()["code"]) == (429, "rate_exceeded"), answer.text
            self.refused += 1
            if not self._patient:
                return None
            await asyncio.sleep(int(answer.headers["retry-after"]) + random.random())


async def fill(url: str, addresses: Sequence[str], seconds: float, *, patient: bool) -> int:
    """Let a phone at each address vote at some time, and some of them once more. Return how many votes were refused.

    Check that each vote counts once.
    """
    before = await scores(url)
    async with Router() as transport:
        phones = [Phone(transport, url, address, patient=patient) for address in addresses]
        chosen = [random.choice(SONGS) for _ in phones]

        async def come(phone: Phone, song: str) -> bool | None:
            await asyncio.sleep(random.uniform(0, seconds))
            counted = await phone.vote(song)
            if random.random() < 0.1 and await phone.vote(song):
                return None
            return counted

        counted = await asyncio.gather(*(come(phone, song) for phone, song in zip(phones, chosen, strict=True)))
    assert counted == [True] * len(phones), "a vote is refused, lost, or counts twice"
    assert await scores(url) - before == Counter(chosen)
    return sum(phone.refused for phone in phones)


async def scores(url: str) -> Counter[str]:
    """The votes of each song."""
    async with httpx.AsyncClient(base_url=url) as reader:
        records = (await reader.get("/v1/boards/songs")).json()["records"]
    return Counter({record["key"]: record["score"] for record in records})


def one_address(count: int) -> list[str]:
    """The same IPv4 address for each phone."""
    return ["203.0.113.7"] * count


def one_network(count: int) -> list[str]:
    """A different address of one IPv6 /64 network for each phone."""
    return [f"2001:db8:0:1::{number:x}" for number in range(count)]


async def hall(
    store: str, folder: Path, addresses: Sequence[str], seconds: float = 0, *, patient: bool = True, **limits: Any
) -> int:
    """Open a hall for phones. Return how many votes were refused."""
    settings = fresh_settings(store, trusted_proxies=TRUSTED, open=True, **limits)
    async with run_server(settings, BOARDS) as server, httpx.AsyncClient(base_url=server) as producer:
        await post(producer, *({"key": song, "type": "songs", "board": "songs", "actor": song} for song in SONGS))
        with nginx(server, folder, *BEHIND_ANOTHER) as url:
            return await fill(url, addresses, seconds, patient=patient)


@pytest.mark.parametrize("network", [one_address, one_network])
async def test_a_vote_is_charged_once_to_its_address(valkey_url: str, tmp_path: Path, network: Any) -> None:
    """A whole burst of first votes is counted at once: the request that brings the cookie costs nothing of it."""
    limits: dict[str, Any] = {"like_rate": 2, "patient": False}
    await hall(valkey_url, tmp_path / "right", network(30), **limits)
    right = likes._make_cookie

    async def wrong(request: Request) -> Response:
        await live_of(request).voting.admit(requester_of(request).network, None)
        return await right(request)

    with must_be_caught("the request without a cookie is charged too"), replaced(likes, "_make_cookie", wrong):
        await hall(valkey_url, tmp_path / "wrong", network(30), **limits)


async def test_refused_votes_count_later_and_once(valkey_url: str, tmp_path: Path) -> None:
    """More phones than the burst: the others are refused for some seconds, and lose nothing."""
    assert await hall(valkey_url, tmp_path, one_network(60), like_rate=2) > 0


@pytest.mark.alone
@pytest.mark.parametrize("network", [one_address, one_network])
async def test_five_hundred_phones_vote_within_a_minute(valkey_url: str, tmp_path: Path, network: Any) -> None:
    """With the default limits, phones that vote within half a minute are all counted before a minute is over."""
    started = time.monotonic()
    assert await hall(valkey_url, tmp_path, network(500), 30) == 0
    assert time.monotonic() - started < 60
