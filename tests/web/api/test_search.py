"""Finding members by the start of their names or titles, on every kind of board."""

from typing import Any

import httpx
import pytest

from live.domain.board_file import parse_boards
from live.web.api import records
from tests.harness.producer import post
from tests.harness.server import server

BOARDS = parse_boards("""
[[board]]
id = "rolling"
types = ["like"]
[[board]]
id = "more"
types = ["like"]
[[board]]
id = "sliding"
types = ["like"]
window = {sliding = "1h"}
[[board]]
id = "weeks"
types = ["like"]
window = {calendar = "week", timezone = "UTC"}
[[board]]
id = "lowest"
types = ["like"]
window = "forever"
sort_order = "asc"
ties = "first"
ranks = "dense"
[[board]]
id = "both"
union = ["rolling", "more"]
[[board]]
id = "runs"
types = ["run"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}]
[[board]]
id = "pets"
types = ["vote"]
window = "forever"
votes = {registered = true, per_key = 1}
""")
NAMES = ["Anna", "anton", "ANNIKA", "\u00c9mile", "Bert", "An"]


async def names(client: httpx.AsyncClient, board: str, **query: Any) -> list[str]:
    """Return the members that a search finds on a board, and check that it looked at all names."""
    answer = (await client.get(f"/v1/boards/{board}/records", params=query)).json()
    assert answer["next_cursor"] is None
    return [record["key"] for record in answer["records"]]


async def test_members_are_found_on_every_kind_of_board(valkey_url: str) -> None:
    """Case does not matter.

    Results are in the order of ranks. A search also finds titles, and contestants without votes.
    """
    async with server(valkey_url, *BOARDS, anonymous_admin=True) as client:
        await post(client, *({"key": member, "amount": 10 - place} for place, member in enumerate(NAMES)))
        await post(client, *({"type": "run", "key": member, "fields": {"levels": 9}} for member in NAMES))
        for member in NAMES:
            assert (await client.put(f"/v1/boards/pets/records/{member}", json={})).status_code == 201
        await post(client, {"type": "vote", "key": "anton", "actor": "a"})
        for board in ("rolling", "sliding", "weeks", "both"):
            assert await names(client, board, prefix="An") == ["Anna", "anton", "ANNIKA", "An"]
        assert await names(client, "lowest", prefix="AN") == ["An", "ANNIKA", "anton", "Anna"]
        assert sorted(await names(client, "runs", prefix="an")) == ["ANNIKA", "An", "Anna", "anton"]
        assert await names(client, "pets", prefix="an") == ["anton", "ANNIKA", "An", "Anna"]
        assert await names(client, "rolling", prefix="e\u0301") == ["\u00c9mile"]
        assert await names(client, "rolling", prefix="emi") == ["\u00c9mile"]
        assert await names(client, "rolling", prefix="nobody") == []
        assert await names(client, "rolling", prefix="b", limit="1") == ["Bert"]
        assert (await client.put("/v1/items/Bert", json={"title": "Anything goes"})).status_code == 204
        assert await names(client, "rolling", prefix="any") == ["Bert"]
        assert await names(client, "rolling", prefix="GOES") == ["Bert"]
        found = (await client.get("/v1/boards/rolling/records?prefix=anton")).json()["records"]
        several = (await client.get("/v1/boards/rolling/records?key=anton")).json()["records"]
        assert found == several


async def test_a_search_is_bounded_and_goes_on(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply looks at a limited number of names. Its cursor leads to the rest. A whole name is always found."""
    monkeypatch.setattr(records, "_PIECE", 5)
    monkeypatch.setattr(records, "_MOST_PIECES", 3)
    async with server(valkey_url, *BOARDS, anonymous_admin=True) as client:
        await post(client, *({"key": f"Name {place}", "amount": 100 - place} for place in range(40)))
        for place in range(12):
            assert (await client.put(f"/v1/boards/pets/records/Name {place}", json={})).status_code == 201
        for board, most, all_names in (
            ("rolling", 100, [f"Name {place}" for place in range(40)]),
            ("rolling", 4, [f"Name {place}" for place in range(40)]),
            ("pets", 2, [f"Name {place}" for place in range(12)]),
        ):
            found: list[str] = []
            cursor = None
            while True:
                query: dict[str, Any] = {"prefix": "name", "limit": most, **({"cursor": cursor} if cursor else {})}
                answer = (await client.get(f"/v1/boards/{board}/records", params=query)).json()
                assert len(answer["records"]) <= min(most, 15)
                found += [record["key"] for record in answer["records"]]
                cursor = answer["next_cursor"]
                if cursor is None:
                    break
            assert sorted(found) == sorted(all_names)
        last = (await client.get("/v1/boards/rolling/records?prefix=Name 39")).json()
        assert [record["rank"] for record in last["records"]] == [40]
        assert last["next_cursor"] is not None


async def test_a_mistake_in_a_search_is_named(valkey_url: str) -> None:
    """A parameter is invalid, parameters do not go together, or the cursor does not come from this search."""
    async with server(valkey_url, *BOARDS) as client:
        for query, code in (
            ("prefix=", "parameter_invalid"),
            (f"prefix={'a' * 257}", "parameter_invalid"),
            ("prefix=a&key=b", "parameter_invalid"),
            ("key=b&cursor=x", "parameter_invalid"),
            ("prefix=a&limit=101", "parameter_invalid"),
            ("prefix=a&cursor=x", "cursor_invalid"),
            ("prefix=a&cursor=WzEsIDJd", "cursor_invalid"),
        ):
            answer = await client.get(f"/v1/boards/rolling/records?{query}")
            assert answer.json()["code"] == code, query
