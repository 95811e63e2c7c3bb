"""Changing the rules of a board over HTTP."""

import httpx

from live.domain.board_file import parse_boards
from tests.harness.server import server

BOARDS = """
[[board]]
id = "best"
types = ["run"]
operator = "best"
ties = "first"
window = "forever"
[[board]]
id = "off"
types = ["run"]
journal = "off"
"""


async def rows(client: httpx.AsyncClient, board: str = "best", **query: str) -> list[tuple[str, int]]:
    """The ranking of a board."""
    page = (await client.get(f"/v1/boards/{board}", params=query)).json()
    return [(record["key"], record["score"]) for record in page["records"]]


async def test_a_board_gets_other_rules(valkey_url: str) -> None:
    """`dry` says what would happen, and changes nothing. Then the server counts all events by the new rules."""
    async with server(valkey_url, *parse_boards(BOARDS), journal="sqlite", anonymous_admin=True) as client:

        async def run(member: str, amount: int) -> None:
            event = {"type": "run", "key": member, "amount": amount}
            assert (await client.post("/v1/events", json=event)).json()["rejected"] == []

        await run("ann", 5)
        await run("bob", 7)
        await run("ann", 3)
        assert await rows(client) == [("bob", 7), ("ann", 5)]
        told = await client.patch("/v1/boards/best?dry=true", json={"operator": "incr"})
        assert told.status_code == 200, told.text
        assert (told.json()["counts_again"], told.json()["members"]) == (True, 1)
        plain = await client.patch("/v1/boards/best?dry=true", json={"title": "Other"})
        assert (plain.json()["counts_again"], await rows(client)) == (False, [("bob", 7), ("ann", 5)])
        assert told.json()["examples"] == [{"key": "ann", "before": 5, "after": 8}]
        assert await rows(client) == [("bob", 7), ("ann", 5)]
        done = await client.patch("/v1/boards/best", json={"operator": "incr", "title": "Sums"})
        assert done.status_code == 200, done.text
        assert (done.json()["operator"], done.json()["title"]) == ("incr", "Sums")
        assert await rows(client) == [("ann", 8), ("bob", 7)]
        await run("bob", 2)
        assert await rows(client) == [("bob", 9), ("ann", 8)]
        done = await client.patch("/v1/boards/best", json={"operator": "set", "ties": "last", "sort_order": "asc"})
        assert await rows(client) == [("bob", 2), ("ann", 3)]
        kept = await client.patch("/v1/boards/off", json={"ties": "last"})
        assert (kept.status_code, kept.json()["code"]) == (409, "board_fixed")
