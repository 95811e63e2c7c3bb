"""A browser that sends likes before it has a cookie is one visitor, in whatever order the answers arrive."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import permutations

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.producer import post
from tests.harness.server import server

pytestmark = pytest.mark.security

BOARDS = parse_boards("""
[[board]]
id = "liked"
like_button = true
[[board]]
id = "songs"
window = "forever"
types = ["vote"]
votes = { per_key = 1, per_actor = 1 }
like_button = true
""")
SCRIPT = {"Accept": "application/json"}


@asynccontextmanager
async def likeable(store: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server with Ada on both boards."""
    async with server(store, *BOARDS, like_rate=10_000) as client:
        await post(client, {"key": "Ada", "board": "liked"}, {"key": "Ada", "board": "songs", "actor": "x"})
        yield client


def url_of(client: httpx.AsyncClient) -> str:
    """The origin of the server."""
    return str(client.base_url).rstrip("/")


class Jar:
    """The cookies of a browser: the oldest cookie first, as the browser sends them."""

    def __init__(self, url: str) -> None:
        self.cookies: dict[str, str] = {}
        headers = {"Origin": url, "Sec-Fetch-Site": "same-origin", **SCRIPT}
        self._http = httpx.AsyncClient(base_url=url, headers=headers)

    async def send(self, path: str, member: str, board: str) -> httpx.Response:
        """Send a like with the cookies that the browser has now. The answer does not arrive yet."""
        cookies = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        answer = await self._http.post(path.format(board), data={"key": member}, headers=cookies)
        self._http.cookies.clear()
        return answer

    def store(self, answer: httpx.Response) -> None:
        """Store the cookies of an answer that arrives. A new value does not make a cookie younger."""
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            if "Max-Age=0" in line:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


FIRST, REPEATED = "/boards/{}/likes", "/boards/{}/likes?visitor=new"


def orders(requests: int) -> list[tuple[int, ...]]:
    """All orders in which the redirects of some requests arrive and are followed: each number occurs twice."""
    return sorted(set(permutations([*range(requests)] * 2)))


async def likes_before_the_cookie(url: str, order: Sequence[int], *boards: str) -> None:
    """Send one like for each board before an answer arrives.

    Then the redirects arrive and are followed in the order `order`. Only one like may count.
    """
    async with aclosing(Jar(url)) as jar:
        redirects = [await jar.send(FIRST, "Ada", board) for board in boards]
        assert [answer.status_code for answer in redirects] == [307] * len(boards)
        has_arrived: set[int] = set()
        counted = 0
        for number in order:
            if number not in has_arrived:
                has_arrived.add(number)
                jar.store(redirects[number])
                continue
            answer = await jar.send(REPEATED, "Ada", boards[number])
            jar.store(answer)
            counted += answer.status_code == 200 and answer.json()["counted"]
        oldest = redirects[order[0]].headers["set-cookie"].partition("=")[0]
        assert counted == 1, order
        assert list(jar.cookies) == [oldest], order


@pytest.mark.parametrize("board", ["liked", "songs"])
async def test_likes_before_the_cookie_are_of_one_visitor(
    valkey_url: str, board: str, chance: random.Random, effort: int
) -> None:
    """A visitor double-clicks, or sends a form from two tabs.

    All orders of two answers are tried, and some orders of five answers.
    """
    drawn = [tuple(chance.sample([*range(5)] * 2, 10)) for _ in range(5 * effort)]
    async with likeable(valkey_url) as client:
        for order in (*orders(2), *drawn):
            await likes_before_the_cookie(url_of(client), order, *[board] * len(set(order)))
        score = (await client.get(f"/v1/boards/{board}/records/Ada")).json()["score"]
        assert score == 1 + len(orders(2)) + len(drawn)
