"""What only contests show, and the links between the pages of a ranking."""

import html
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import httpx
import pytest

from live.domain.board_file import parse_boards
from live.store.board.read import contestants
from live.web.pages import likes
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

BOARDS = parse_boards("""
[[board]]
id = "pets"
types = ["vote"]
window = "forever"
votes = { registered = true, per_key = 1 }
like_button = true
[[board]]
id = "shared"
types = ["vote"]
window = "forever"
ranks = "competition"
votes = { closes = "2100-01-01T00:00:00Z" }
[[board]]
id = "days"
types = ["vote"]
window = { calendar = "day", keep = 2 }
votes = { registered = true, per_key = 1 }
[[board]]
id = "posts"
""")


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a server with contests and one other board."""
    async with (
        run_server(fresh_settings(valkey_url, anonymous_admin=True), BOARDS) as url,
        httpx.AsyncClient(base_url=url) as own,
    ):
        yield own


async def register(client: httpx.AsyncClient, *members: str, board: str = "pets") -> None:
    """Register contestants."""
    for member in members:
        assert (await client.put(f"/v1/boards/{board}/records/{member}", json={})).status_code == 201


def members(page: str) -> list[str]:
    """Return the members in the table of a page."""
    return [html.unescape(member) for member in re.findall(r'<tr data-member="([^"]*)"', page)]


def link(page: str, words: str) -> str | None:
    """The address of a link by its text, unless it is hidden."""
    found = re.search(rf'<a [^>]*href="([^"]*)"( hidden)?>{re.escape(words)}</a>', page)
    return html.unescape(found[1]) if found and not found[2] else None


async def ballots(client: httpx.AsyncClient, most: int = 20) -> list[list[str]]:
    """Follow the links to more contestants; returns the members of each page."""
    path, found = "/boards/pets", []
    for _ in range(most):
        page = (await client.get(path)).text
        found.append(members(page))
        following = link(page, "More contestants")
        if following is None:
            return found
        path = f"/boards/pets{following}"
    raise AssertionError("the links do not end")


async def test_contestants_without_votes_are_listed_once(client: httpx.AsyncClient) -> None:
    """Each contestant is listed once even if the contestants are read from the store in several pieces."""
    every = [f"m{number:03}" for number in range(120)]
    await register(client, *every)
    await post(client, {"board": "pets", "key": "m007", "actor": "a"}, {"board": "pets", "key": "m077", "actor": "a"})
    pages = await ballots(client)
    assert [page[:2] for page in pages] == [["m007", "m077"]] * len(pages)
    assert [len(page) - 2 for page in pages] == [50, 50, 18]
    assert sorted({member for page in pages for member in page}) == every
    path = link((await client.get("/boards/pets")).text, "More contestants")
    await post(client, *({"board": "pets", "key": f"m{number:03}", "actor": "a"} for number in range(5)))
    second = members((await client.get(f"/boards/pets{path}")).text)
    assert second[7:] == pages[1][2:], "votes for earlier contestants moved the place"


async def test_large_contests_are_read_in_pieces(client: httpx.AsyncClient) -> None:
    """A page looks at a limited number of contestants, and links to the rest."""
    # The store keeps so many members in a hash table, without an order.
    every = [f"m{number:03}" for number in range(700)]
    await register(client, *every)
    with patch.object(contestants, "_PIECE", 100), patch.object(contestants, "_MOST_PIECES", 2):
        pages = await ballots(client, most=40)
    assert sorted(member for page in pages for member in page) == every
    assert max(map(len, pages)) == 50


async def test_hidden_and_withdrawn_contestants_are_not_listed(client: httpx.AsyncClient) -> None:
    """A contestant that has lost its votes is listed again."""
    await register(client, "Ada", "Bo", "Cy")
    await client.patch("/v1/boards/pets/records/Ada", json={"hidden": True})
    await client.delete("/v1/boards/pets/records/Bo")
    await post(client, {"board": "pets", "key": "Cy", "actor": "a"})
    assert members((await client.get("/boards/pets")).text) == ["Cy"]
    await post(client, {"board": "pets", "key": "Cy", "actor": "a", "amount": -1})
    assert members((await client.get("/boards/pets")).text) == ["Cy"]
    await client.patch("/v1/boards/pets/records/Ada", json={"hidden": False})
    assert members((await client.get("/boards/pets")).text) == ["Ada", "Cy"]


async def test_contestants_follow_the_last_ranked_row(client: httpx.AsyncClient) -> None:
    """A page lists contestants without votes only if it has the last ranked row."""
    await register(client, "Ada", "Bo", "Cy")
    await post(client, *({"board": "pets", "key": member, "actor": "a"} for member in ("Ada", "Bo")))
    assert members((await client.get("/boards/pets?limit=1")).text) == ["Ada"]
    assert members((await client.get("/boards/pets?limit=1&start=1")).text) == ["Bo", "Cy"]


async def test_each_period_begins_from_zero(client: httpx.AsyncClient) -> None:
    """A contest of periods lists its contestants in the current period."""
    await register(client, "Ada", "Bo", board="days")
    await post(client, {"board": "days", "key": "Bo", "actor": "a"})
    assert members((await client.get("/boards/days")).text) == ["Bo", "Ada"]


async def test_a_wrong_place_is_refused(client: httpx.AsyncClient) -> None:
    """The message names the parameter `contestants`."""
    for text in ("x", "WyJhIiwiYiJd", "WyIxIiwiYiIsMV0", "%%"):
        answer = await client.get("/boards/pets", params={"contestants": text})
        assert (answer.status_code, "contestants" in answer.text) == (400, True)


async def test_pages_lead_to_every_record(client: httpx.AsyncClient) -> None:
    """Links lead forward and back and keep the parameters of the page. A page beyond the last page links back."""
    await post(client, *({"board": "posts", "key": f"m{number:03}", "amount": 500 - number} for number in range(120)))
    path, found = "/boards/posts?lang=en", []
    for words in ("51 to 100", "101 to 150", None):
        page = (await client.get(path)).text
        found += members(page)
        assert ("board.js" in page) == (words == "51 to 100"), "not exactly the first page loads the script for updates"
        if words:
            following = link(page, words)
            assert following is not None
            path = f"/boards/posts{following}"
    assert found == [f"m{number:03}" for number in range(120)]
    assert link(page, "51 to 100") == "?start=50&lang=en"
    beyond = (await client.get("/boards/posts?start=500&limit=7")).text
    assert (members(beyond), link(beyond, "113 to 119"), link(beyond, "120 to 126")) == ([], None, "?limit=7&start=119")
    assert "There are no records from 501 on." in beyond
    assert link((await client.get("/boards/posts?start=20&limit=50")).text, "1 to 50") == "?limit=50"
    assert link((await client.get("/boards/pets")).text, "51 to 100") is None
    assert (await client.get("/boards/posts?start=-1")).status_code == 400


async def result(client: httpx.AsyncClient) -> str:
    """The first places, once voting is over."""
    with patch.object(likes, "is_closed", lambda _: True):
        page = (await client.get("/boards/shared", headers={"Cache-Control": "no-cache"})).text
    found = re.search(r'class="podium"[^>]*>(.*?)</ol>', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", found[1]).split()) if found else ""


async def test_a_contest_that_is_over_shows_its_winner(client: httpx.AsyncClient) -> None:
    """The page shows all members that share the first rank. Without votes there is no winner."""
    assert await result(client) == ""
    await post(client, *({"board": "shared", "key": member, "actor": "a"} for member in ("Ada", "B & o")))
    assert await result(client) == "Tied first Ada 1 50.0% Tied first B &amp; o 1 50.0%"
    await post(client, *({"board": "shared", "key": "B & o", "actor": actor} for actor in "bc"))
    assert await result(client) == "Winner B &amp; o 3 75.0%, 2 ahead rank 2 Ada 1 25.0%"


@pytest.mark.parametrize("grace", ["0s", "1h"])
async def test_a_vote_in_time_counts_in_the_grace(client: httpx.AsyncClient, grace: str) -> None:
    """Only a producer can say when a vote was. The page and the API say when the result is final."""
    closes = datetime.now(UTC) - timedelta(seconds=30)
    opens, final = closes - timedelta(minutes=5), closes + timedelta(hours=grace == "1h")
    choices = {"types": ["vote"], "window": "forever", "votes": {}}
    (await client.put("/v1/boards/hall", json=choices)).raise_for_status()
    await post(client, {"board": "hall", "key": "Ada", "actor": "x"})
    hours = {"opens": opens.isoformat(), "closes": closes.isoformat(), "grace": grace}
    (await client.patch("/v1/boards/hall", json={"votes": hours})).raise_for_status()

    async def vote(actor: str, time: datetime | None = None) -> list[str]:
        """Send a vote; returns the codes of refusals."""
        event = {"board": "hall", "key": "Bo", "actor": actor}
        sent = await post(client, event if time is None else {**event, "time": time.isoformat()})
        return [refusal["code"] for refusal in sent["rejected"]]

    tick = timedelta(milliseconds=1)
    in_time = [] if grace == "1h" else ["closed"]
    assert [await vote("a", closes - tick), await vote("b", opens)] == [in_time, in_time]
    assert [await vote("c", closes), await vote("d")] == [["closed"], ["closed"]]
    assert await vote("e", opens - tick) == ["not_open"]
    page, facts = (await client.get("/boards/hall")).text, (await client.get("/v1/boards/hall")).json()
    assert datetime.fromisoformat(facts["final_at"]) - final < timedelta(milliseconds=1)
    assert [record["score"] for record in facts["records"]] == ([2, 1] if grace == "1h" else [1])
    assert ("Counting the last votes</span>" in page) == (grace == "1h")
    assert ("Ended <time" in page, "Winner" in page) == (grace == "0s", grace == "0s")
