"""`live merge` gives the events of one member to another on boards of every kind.

The journal is in PostgreSQL if that is installed, otherwise in SQLite.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from live.domain.board_file import parse_boards
from live.settings import Settings
from live.store.connection.client import Store
from live.store.registry.audit_trail import AuditTrail
from tests.harness.postgres import has_postgres, running_postgres
from tests.harness.scripts import connected
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import until_early
from tests.maintenance.test_erase_member import BOARDS, drained
from tests.web.api.test_trail import command

OLD, NEW, OTHER = "Jon Smith", "John Smith", "Zoe"
KINDS = ("posts", "seconds", "days", "best", "last", "all")


async def send(client: httpx.AsyncClient, member: str, amount: int) -> None:
    """Send an event to all boards. Boards that keep single amounts also keep the event's metadata."""
    answer = await client.post("/v1/events", json={"key": member, "amount": amount, "metadata": {"of": member}})
    assert answer.json()["accepted"] == 1, answer.text


async def scores_of(client: httpx.AsyncClient, board: str, **query: str) -> dict[str, int]:
    """The scores on a board."""
    answer = await client.get(f"/v1/boards/{board}", params=query)
    return {row["key"]: row["score"] for row in answer.json()["records"]}


class Machine:
    """A server with boards of every kind, and the command."""

    def __init__(self, store: Store, client: httpx.AsyncClient, settings: Settings) -> None:
        self.store, self.client, self.settings = store, client, settings

    async def merge(self, *words: str) -> dict[str, Any]:
        """Run `live merge`. The board with votes refuses, so it exits with 1. Returns what changed on each board."""
        printed = await command(self.settings, "merge", *words, "--yes", "--json", status=1)
        return {one["board"]: one for one in json.loads(printed)["boards"]}

    async def scores(self, **query: str) -> list[dict[str, int]]:
        """The scores on each board."""
        return [await scores_of(self.client, board, **query) for board in KINDS]

    async def check(self) -> None:
        """Check that store and journal agree."""
        await drained(self.settings, self.store)
        await command(self.settings, "check")


@pytest.fixture(scope="module")
def journal() -> Iterator[str]:
    """Return the journal that the tests of this file share."""
    if not has_postgres():
        yield "sqlite"
        return
    with running_postgres() as server:
        yield server.url


@asynccontextmanager
async def machine(valkey_url: str, journal: str) -> AsyncIterator[Machine]:
    """Yield the machine, with three members. One of the members also has a vote."""
    await until_early("day")
    settings = fresh_settings(valkey_url, journal=journal, anonymous_admin=True)
    boards = parse_boards(BOARDS.replace("cap = 2", "cap = 9"))
    async with connected(valkey_url, settings) as store, serving(settings, *boards) as client:
        await client.put(f"/v1/boards/contest/records/{OLD}", json={})
        await client.post("/v1/events", json={"key": OLD, "type": "vote", "actor": "me"})
        for member, amount in ((OTHER, 6), (OLD, 5), (NEW, 3), (OLD, 4)):
            await send(client, member, amount)
        await drained(settings, store)
        yield Machine(store, client, settings)


def expected(sums: dict[str, int], best: dict[str, int], last: dict[str, int]) -> list[dict[str, int]]:
    """The scores on each board, in the order of `KINDS`."""
    return [sums, sums, sums, best, last, {member: 3 * score for member, score in sums.items()}]


async def test_one_member_gets_what_the_other_one_has(valkey_url: str, journal: str) -> None:
    """A dry run says the same as the merge. The past stays as it was, and later events stay where they were sent."""
    async with machine(valkey_url, journal) as made:
        client, before = made.client, datetime.now(UTC).isoformat()
        was = await made.scores()
        preview = await made.merge(OLD, NEW, "--dry-run")
        assert await made.scores() == was
        done = await made.merge(OLD, NEW)
        assert preview == done
        assert "votes" in done["contest"]["fault"]
        assert (done["posts"]["before"], done["posts"]["after"]) == ({NEW: 3, OLD: 9}, {NEW: 12, OLD: 0})
        assert await made.scores() == expected({OTHER: 6, NEW: 12}, {OTHER: 6, NEW: 5}, {OTHER: 6, NEW: 3})
        assert await scores_of(client, "unjournaled") == {OTHER: 6, NEW: 12}
        assert (await client.get(f"/v1/boards/best/records/{NEW}")).json()["metadata"] == {"of": OLD}
        await send(client, NEW, 4)  # between the best amounts of the two members
        await send(client, OLD, 2)
        await made.check()
        left = expected({OTHER: 6, NEW: 16, OLD: 2}, {OTHER: 6, NEW: 5, OLD: 2}, {OTHER: 6, NEW: 4, OLD: 2})
        assert await made.scores() == left
        explained = (await client.get(f"/v1/boards/posts/records/{NEW}/explanation")).text
        assert f"merge: {OLD} into {NEW}" in explained
        assert await made.scores(as_of=before) == was
        entries = await AuditTrail(made.store).last(2)
        assert [entry.what for entry in entries] == ["merged", "begun"]
        assert (entries[0].key, entries[0].before["posts"]) == (OLD, {NEW: 3, OLD: 9})
        assert (entries[1].key, entries[1].before, entries[1].after) == (OLD, {"into": NEW}, {"act": "merged"})
        await command(made.settings, "merge", "nobody", NEW, "--yes", status=1)


async def test_a_recovery_has_what_a_merge_and_an_erasure_left(valkey_url: str, journal: str) -> None:
    """After a merge and an erasure, the store loses everything.

    The recovery brings back nothing of the erased member.
    """
    async with machine(valkey_url, journal) as made:
        await made.merge(OLD, NEW)
        await command(made.settings, "erase", "--member", OTHER, "--yes")
        await send(made.client, NEW, 1)
        await made.check()
        was = await made.scores()
        assert was == expected({NEW: 13}, {NEW: 5}, {NEW: 1})
    async with connected(valkey_url, made.settings) as store:
        async for name in store.names(f"{made.settings.key_prefix}:*"):
            await store.delete(name)
        await command(made.settings, "recover", "--from", "journal", status=1)  # a board has no journal
        async with serving(made.settings, *parse_boards(BOARDS.replace("cap = 2", "cap = 9"))) as client:
            again = Machine(store, client, made.settings)
            assert await again.scores() == was
            await again.check()
