"""Boards of a limited admin can read only permitted event types, and do not change answers to other producers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from tests.harness.boards import rolling_board
from tests.harness.ingest import make_key, scores, summary
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

pytestmark = pytest.mark.security
FOREVER: Final = {"window": "forever"}


class Server:
    """A server with three API keys: one for all boards, one for three boards, and one that only posts."""

    def __init__(self, http: httpx.AsyncClient, keys: dict[str, str]) -> None:
        self._http = http
        self._keys = keys

    async def ask(self, name: str, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request with an API key."""
        return await self._http.request(method, path, headers={"Authorization": f"Bearer {self._keys[name]}"}, **more)

    async def put(self, name: str, board: str, **choices: Any) -> tuple[int, str]:
        """Define a board; returns the status and the code of a refusal."""
        answer = await self.ask(name, "PUT", f"/v1/boards/{board}", json={**FOREVER, **choices})
        return answer.status_code, answer.json().get("code", "")

    async def post(self, name: str, *events: dict[str, Any]) -> tuple[int, int, list[tuple[Any, ...]]]:
        """Post events; returns the counts and refusals."""
        answer = await self.ask(name, "POST", "/v1/events", json=list(events))
        assert answer.status_code == 200, answer.text
        return summary(answer.json())


@asynccontextmanager
async def server(store: str, sources: tuple[str, ...] | None = ("vote",)) -> AsyncIterator[Server]:
    """Run a server with a limited admin, who may read these event types."""
    settings = fresh_settings(store)
    both = ("admin", "post")
    keys = {
        "boss": await make_key(settings, "boss", verbs=both),
        "lim": await make_key(settings, "lim", verbs=both, boards=("mine", "also", "both"), sources=sources),
        "shop": await make_key(settings, "shop"),
    }
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url, timeout=180) as http:
        yield Server(http, keys)


@pytest.mark.slow
async def test_reading_an_event_type_needs_a_right(valkey_url: str) -> None:
    """By default, an admin of some boards may read no event type.

    `sources` allows some types, or all types with `*`.
    """
    refused, made, changed = (403, "scope_forbidden"), (201, ""), (200, "")
    async with server(valkey_url, None) as at:
        assert await at.put("lim", "mine", types=["vote"]) == refused
        assert await at.put("lim", "mine") == refused
        assert await at.put("boss", "mine", types=["like"], category=["a"]) == made
        patch = await at.ask("lim", "PATCH", "/v1/boards/mine", json={"title": "Other"})
        assert patch.status_code == 200  # the board reads this type already, so the admin adds no type
        wider = await at.ask("lim", "PATCH", "/v1/boards/mine", json={"category": None})
        assert wider.status_code == 403
    async with server(valkey_url) as at:
        assert await at.put("lim", "mine", types=["vote"]) == made
        assert await at.put("lim", "mine", types=["vote", "like"]) == refused
        assert await at.put("lim", "mine", types=["vote"], title="x") == changed
        assert await at.put("lim", "also") == refused
    async with server(valkey_url, ("*",)) as at:
        assert await at.put("lim", "mine", types=["anything", "like"]) == made


async def test_a_union_needs_rights_to_its_parts(valkey_url: str) -> None:
    """An admin may define a union only with rights to all its parts."""
    async with server(valkey_url) as at:
        await at.put("boss", "theirs", types=["like"])
        assert await at.put("lim", "mine", types=["vote"]) == (201, "")
        assert await at.put("lim", "both", union=["mine", "theirs"]) == (403, "scope_forbidden")
        assert await at.put("lim", "also", types=["vote"]) == (201, "")
        assert await at.put("lim", "both", union=["mine", "also"]) == (201, "")


async def test_the_owner_of_a_part_can_always_delete_it(valkey_url: str) -> None:
    """The union keeps its scores and its other parts. A new board with the same id does not feed it."""
    async with server(valkey_url) as at:
        await at.put("lim", "mine", types=["vote"])
        await at.put("boss", "theirs", types=["like"])
        assert await at.put("boss", "sum", union=["mine", "theirs"]) == (201, "")
        await at.post("shop", {"key": "a", "type": "vote"}, {"key": "a"})
        assert (await at.ask("lim", "DELETE", "/v1/boards/mine")).status_code == 204
        assert await at.put("lim", "mine", types=["vote"], operator="best") == (201, "")
        await at.post("shop", {"key": "a", "type": "vote", "amount": 7}, {"key": "a"})
        assert await scores(at._http, "sum") == {"a": 3}
        assert await scores(at._http, "mine") == {"a": 7}
        assert await at.put("boss", "sum", union=["mine", "theirs"], title="Sum") == (200, "")
        assert (await at.ask("lim", "PATCH", "/v1/boards/mine", json={"idle_ttl": "1h"})).status_code == 200


async def test_a_board_adds_no_refusals_to_answers_for_others(valkey_url: str) -> None:
    """An answer has refusals of a vote only if the event names the board, or the answer goes to the board's owner."""
    async with server(valkey_url, ("like", "vote")) as at:
        assert await at.put("lim", "mine", types=["like", "vote"], votes={"per_actor": 1}) == (201, "")
        like, named = {"key": "a"}, {"key": "a", "board": "mine"}
        assert await at.post("shop", like) == (1, 0, [])
        assert await at.post("shop", {**like, "actor": "x"}, {**like, "actor": "x"}) == (2, 0, [])
        assert await at.post("shop", named) == (0, 0, [(0, "actor_required", "mine")])
        assert await at.post("shop", {"key": "a", "type": "vote"}) == (0, 0, [(0, "type_unknown")])
        mine = await at.post("lim", like)
        assert mine == (0, 0, [(0, "actor_required", "mine")])
        await at.ask("lim", "PATCH", "/v1/boards/mine", json={"frozen": True})

        async def is_frozen() -> bool:
            return (await at.post("lim", named))[2] == [(0, "frozen", "mine")]

        await eventually(is_frozen)
        assert await at.post("shop", like) == (1, 0, [])


@pytest.mark.slow
async def test_an_api_key_can_limit_amounts(valkey_url: str) -> None:
    """An API key can have a lower limit than the board. This limit holds only for boards that add amounts up.

    An event that counted before is a duplicate, even with an amount over the limit.
    """
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop", max_amount=10)
    best = rolling_board(board="best")
    async with run_server(settings, [rolling_board(), best]) as url, httpx.AsyncClient(base_url=url) as http:
        http.headers["Authorization"] = f"Bearer {key}"
        events = [{"key": "a", "amount": amount, "board": "posts"} for amount in (10, -10, 11, -11)]
        answer = (await http.post("/v1/events", json=events)).json()
        assert summary(answer) == (2, 0, [(2, "amount_too_large", "posts"), (3, "amount_too_large", "posts")])
        assert "from -10 to 10" in answer["rejected"][0]["detail"]
        event = {"key": "a", "amount": 1, "id": "1", "board": "posts"}
        assert summary((await http.post("/v1/events", json=event)).json()) == (1, 0, [])
        assert summary((await http.post("/v1/events", json={**event, "amount": 99})).json()) == (0, 1, [])
