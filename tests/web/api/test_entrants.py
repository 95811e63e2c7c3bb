"""The registered members of a contest."""

import asyncio
from typing import Any

import httpx

from live.domain.board_file import parse_boards
from tests.harness.producer import post
from tests.harness.server import server

CONTEST = """
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { registered = true }
[[board]]
id = "posts"
"""
PATH = "/v1/boards/contest/entrants"
COUNT = 560  # so many that the store keeps them in a hash table, and not in a compact list


async def walk(client: httpx.AsyncClient, limit: int) -> list[dict[str, Any]]:
    """Return all entrants, page by page."""
    found, cursor = list[dict[str, Any]](), ""
    while True:
        page = (await client.get(f"{PATH}?limit={limit}{cursor}")).json()
        found += page["entrants"]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_a_walk_lists_every_member_that_stays(valkey_url: str) -> None:
    """The walk lists votes and metadata, but no hidden members. It continues while other members come and leave."""
    async with server(valkey_url, *parse_boards(CONTEST), anonymous_admin=True) as client:
        assert (await client.get(PATH)).json()["entrants"] == []

        async def register(*names: str) -> None:
            for first in range(0, len(names), 50):
                puts = [
                    client.put(f"/v1/boards/contest/records/{name}", json={"n": name})
                    for name in names[first : first + 50]
                ]
                assert {response.status_code for response in await asyncio.gather(*puts)} == {201}

        stay = [f"k{number}" for number in range(COUNT)]
        await register(*stay, "leaves", "hidden")
        await post(client, {"key": "k7", "type": "vote", "actor": "a", "amount": 1})
        await client.patch("/v1/boards/contest/records/hidden", json={"hidden": True})
        entrants = await walk(client, 100)
        assert sorted(one["key"] for one in entrants) == sorted([*stay, "leaves"])
        assert {"key": "k7", "score": 1, "metadata": {"n": "k7"}} in entrants
        assert {"key": "k8", "score": 0, "metadata": {"n": "k8"}} in entrants

        first = (await client.get(f"{PATH}?limit=100")).json()
        assert len(first["entrants"]) < 200
        await client.delete("/v1/boards/contest/records/leaves")
        await register(*(f"new{number}" for number in range(100)))
        seen, cursor = {one["key"] for one in first["entrants"]}, first["next_cursor"]
        while cursor is not None:
            page = (await client.get(f"{PATH}?limit=100&cursor={cursor}")).json()
            seen |= {one["key"] for one in page["entrants"]}
            cursor = page["next_cursor"]
        assert set(stay) <= seen


async def test_what_is_no_list_of_entrants_is_refused(valkey_url: str) -> None:
    """The board has no votes or is unknown, or a parameter is wrong, such as a cursor that the list did not make."""
    async with server(valkey_url, *parse_boards(CONTEST), anonymous_admin=True) as client:
        for path, code in (
            ("/v1/boards/posts/entrants", "board_open_to_all"),
            ("/v1/boards/none/entrants", "board_not_found"),
            (f"{PATH}?limit=0", "parameter_invalid"),
            (f"{PATH}?cursor=x", "cursor_invalid"),
            (f"{PATH}?cursor=WyJ4IiwiMCJd", "cursor_invalid"),  # the cursor means ["x","0"]
        ):
            assert (await client.get(path)).json()["code"] == code
