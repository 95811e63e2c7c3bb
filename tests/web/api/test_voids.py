"""Taking one event back over HTTP."""

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from live.domain.board_file import parse_boards
from live.domain.producer import LIKES
from live.maintenance.void import Outcome
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import Keys
from live.store.connection.client import connect
from live.web import elsewhere
from live.web.api import admin
from tests.harness.server import server, serving
from tests.harness.settings import fresh_settings

BOARDS = """
[[board]]
id = "best"
types = ["run"]
operator = "best"
window = "forever"
[[board]]
id = "off"
types = ["run"]
journal = "off"
"""
PATH = "/v1/boards/best/events/cheat%2F1"


async def rows(client: httpx.AsyncClient, board: str = "best", **query: str) -> list[tuple[str, int]]:
    """The ranking of a board."""
    page = (await client.get(f"/v1/boards/{board}", params=query)).json()
    return [(record["key"], record["score"]) for record in page["records"]]


async def test_one_event_is_taken_back_by_its_id(valkey_url: str) -> None:
    """The second best returns, the past stays as it was, and the audit log says who did it."""
    async with server(valkey_url, *parse_boards(BOARDS), journal="sqlite", anonymous_admin=True) as client:

        async def run(member: str, amount: int, name: str) -> None:
            event = {"type": "run", "key": member, "amount": amount, "id": name, "source": "track"}
            assert (await client.post("/v1/events", json=event)).json()["rejected"] == []

        await run("ann", 5, "fair")
        await run("ann", 90, "cheat/1")
        await run("bob", 7, "other")
        await asyncio.sleep(0.002)
        then = datetime.now(UTC).isoformat(timespec="milliseconds")
        await asyncio.sleep(0.002)

        assert (await client.delete(PATH)).json()["code"] == "event_not_found", "the event has another source"
        missing = await client.delete("/v1/boards/nothing/events/x")
        assert missing.json()["code"] == "board_not_found"
        kept = await client.delete("/v1/boards/off/events/other", params={"source": "track"})
        assert (kept.status_code, kept.json()["code"]) == (409, "event_kept")

        done = await client.delete(PATH, params={"source": "track"})
        assert done.status_code == 200, done.text
        assert (done.json()["events"], done.json()["examples"]) == (1, [{"key": "ann", "before": 90, "after": 5}])
        assert await rows(client) == [("bob", 7), ("ann", 5)]
        assert await rows(client, as_of=then) == [("ann", 90), ("bob", 7)]
        explained = (await client.get("/v1/boards/best/records/ann/explanation")).json()
        assert [change["amount"] for change in explained["changes"]] == [5]
        await run("ann", 90, "cheat/1")
        assert await rows(client) == [("bob", 7), ("ann", 5)], "an event that is sent again is a duplicate"

        again = await client.delete(PATH, params={"source": "track"})
        assert (again.status_code, again.json()["code"]) == (404, "event_not_found")
        done_, begun = (await client.get("/v1/trail")).json()["trail"]
        assert ([done_["what"], begun["what"]], done_["before"]) == (["voided", "begun"], begun["before"])
        names = done_["before"]
        assert (names["id"], names["producer"]) == ("cheat/1", "")
        assert names["source_sha256"] == hashlib.sha256(f"{names['salt']}track".encode()).hexdigest()
        (logged,) = done_["after"]["boards"]
        assert (logged["events"], logged["members"]) == (1, 1)
        assert not {"ann", "track"}.intersection(str(done_).split("'")), "a member or a source could not be erased"


async def test_an_event_that_may_be_older_than_the_journal_is_kept(valkey_url: str) -> None:
    """Nobody knows whether the board has counted it. The answer says since when the journal has everything."""
    settings = fresh_settings(valkey_url, journal="sqlite", anonymous_admin=True)
    async with serving(settings, *parse_boards(BOARDS)) as client:
        event = {"type": "run", "key": "ann", "amount": 5, "id": "fair"}
        assert (await client.post("/v1/events", json=event)).json()["rejected"] == []
        assert (await client.delete("/v1/boards/best/events/unfair")).status_code == 404
        store, keys = connect(valkey_url, settings), Keys(settings.key_prefix, "best")
        epoch = (await store.call(keys.meta, "HGET", keys.meta, "epoch")).decode()
        assert await begin_journal(store, keys, epoch, again=True)
        await store.aclose()
        kept = await client.delete("/v1/boards/best/events/unfair")
        assert (kept.status_code, kept.json()["code"]) == (409, "event_kept")
        assert "journal began again at" in kept.json()["detail"]
        assert (await client.get("/v1/trail")).json()["trail"] == []


async def test_a_void_that_is_cancelled_is_in_the_audit_log(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The board has given the event back, but the client did not wait for the answer. A like is not named."""
    done, forever = asyncio.Event(), asyncio.Event()

    async def hang(*work: Any, dry: bool) -> list[Outcome]:
        await elsewhere.void(*work, dry=dry)
        done.set()
        await forever.wait()
        return []

    monkeypatch.setattr(admin, "void", hang)
    async with server(valkey_url, *parse_boards(BOARDS), journal="sqlite", anonymous_admin=True) as client:
        event = {"type": "run", "key": "ann", "amount": 5, "id": "ann", "source": "eve"}
        assert (await client.post("/v1/events", json=event)).json()["rejected"] == []
        request = asyncio.create_task(client.delete("/v1/boards/best/events/ann", params={"source": "eve"}))
        await done.wait()
        request.cancel()
        await asyncio.wait([request])
        assert await rows(client) == []
        (begun,) = (await client.get("/v1/trail")).json()["trail"]
        assert (begun["what"], begun["after"]) == ("begun", {"act": "voided"})
    like = admin._named("\nann", admin.EventParameters(producer=LIKES, source="eve"))
    assert sorted(like) == ["event_sha256", "producer", "salt"]


async def test_events_are_counted_twice_at_most(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look comes first, which counts none. So a void counts the events of a board with and without the event."""
    work = list[bool]()

    async def count(*arguments: Any, dry: bool) -> list[Outcome]:
        work.append(dry)
        return await elsewhere.void(*arguments, dry=dry)

    monkeypatch.setattr(admin, "void", count)
    async with server(valkey_url, *parse_boards(BOARDS), journal="sqlite", anonymous_admin=True) as client:
        await client.post("/v1/events", json={"type": "run", "key": "ann", "amount": 5, "id": "x"})
        assert (await client.delete("/v1/boards/best/events/y")).status_code == 404
        assert (await client.delete("/v1/boards/best/events/x")).status_code == 200
    assert work == [False]
