"""`live merge` gives the events of one member to another on boards of every kind, and can undo a merge.

The journal is in PostgreSQL if that is installed. Otherwise, and with the mutant, it is in SQLite.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import live.maintenance.merge
from live.domain.board_file import parse_boards
from live.journal.state.fold import apply
from live.settings import Settings
from live.store.connection.client import Store
from live.store.registry.audit_trail import AuditTrail
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.postgres import has_postgres, running_postgres
from tests.harness.scripts import connected
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import until_early
from tests.maintenance.test_erase_member import BOARDS, drained
from tests.web.writes.test_trail import command

OLD, NEW, OTHER = "Jon Smith", "John Smith", "Zoe"
KINDS = ("posts", "seconds", "days", "best", "last", "all")


async def send(client: httpx.AsyncClient, key: str, amount: int) -> None:
    """Send an event to all boards. Boards that keep single amounts also keep the event's metadata."""
    answer = await client.post("/v1/events", json={"key": key, "amount": amount, "metadata": {"of": key}})
    assert answer.json()["accepted"] == 1, answer.text


async def scores_of(client: httpx.AsyncClient, board: str, **query: str) -> dict[str, int]:
    """The scores on a board."""
    answer = await client.get(f"/v1/boards/{board}", params=query)
    return {row["key"]: row["score"] for row in answer.json()["records"]}


class Machine:
    """A server with boards of every kind, and the command."""

    def __init__(self, store: Store, client: httpx.AsyncClient, settings: Settings, boards: Path) -> None:
        self.store, self.client, self.settings = store, client, settings
        self.boards = ("--boards", str(boards))

    async def merge(self, *words: str, status: int = 1) -> dict[str, Any]:
        """Run `live merge`. Returns the number of the merge, and what changed on each board."""
        printed = await command(self.settings, "merge", *words, "--yes", "--json", *self.boards, status=status)
        answer = json.loads(printed)
        return {"merge": answer["merge"], **{one["board"]: one for one in answer["boards"]}}

    async def scores(self, **query: str) -> list[dict[str, int]]:
        """The scores on each board."""
        return [await scores_of(self.client, board, **query) for board in KINDS]

    async def check(self) -> None:
        """Check that store and journal agree."""
        await drained(self.settings, self.store)
        await command(self.settings, "audit", *self.boards)
        await command(self.settings, "reconcile", *self.boards)


@pytest.fixture(scope="module")
def journal() -> Iterator[str]:
    """Return the journal that the tests of this file share."""
    if not has_postgres():
        yield "sqlite"
        return
    with running_postgres() as server:
        yield server.url


@asynccontextmanager
async def machine(valkey_url: str, tmp_path: Path, journal: str = "sqlite") -> AsyncIterator[Machine]:
    """Yield the machine, with three members. One of the members also has a vote."""
    await until_early("day")
    settings = fresh_settings(valkey_url, journal=journal, anonymous_admin=True)
    file = tmp_path / "boards.toml"
    file.write_text(BOARDS.replace("cap = 2", "cap = 9"))
    boards = parse_boards(file.read_text())
    async with connected(valkey_url, settings) as store, serving(settings, *boards) as client:
        await client.put(f"/v1/boards/contest/records/{OLD}", json={})
        await client.post("/v1/events", json={"key": OLD, "type": "vote", "actor": "me"})
        for key, amount in ((OTHER, 6), (OLD, 5), (NEW, 3), (OLD, 4)):
            await send(client, key, amount)
        await drained(settings, store)
        yield Machine(store, client, settings, file)


def expected(sums: dict[str, int], best: dict[str, int], last: dict[str, int]) -> list[dict[str, int]]:
    """The scores on each board, in the order of `KINDS`."""
    return [sums, sums, sums, best, last, {key: 3 * score for key, score in sums.items()}]


async def merged(made: Machine) -> None:
    """Merge two members, count more events, and undo the merge."""
    client, before = made.client, datetime.now(UTC).isoformat()
    was = await made.scores()
    preview = await made.merge(OLD, NEW, "--dry-run")
    assert await made.scores() == was
    done = await made.merge(OLD, NEW)
    assert {**preview, "merge": 0} == {**done, "merge": 0}
    assert "votes" in done["contest"]["fault"]
    assert "journal" in done["unjournaled"]["fault"]
    assert (done["posts"]["before"], done["posts"]["after"]) == ({NEW: 3, OLD: 9}, {NEW: 12, OLD: 0})
    assert await made.scores() == expected({OTHER: 6, NEW: 12}, {OTHER: 6, NEW: 5}, {OTHER: 6, NEW: 4})
    assert (await client.get(f"/v1/boards/best/records/{NEW}")).json()["metadata"] == {"of": OLD}
    await send(client, NEW, 4)  # between the best amounts of the two members
    await made.check()
    explained = (await client.get(f"/v1/boards/posts/records/{NEW}/explanation")).text
    assert f"merge {done['merge']}: {OLD} into {NEW}" in explained
    undone = await made.merge("--undo", str(done["merge"]), status=0)
    assert undone["posts"]["after"] == {OLD: 9, NEW: 7}
    left = expected({OTHER: 6, OLD: 9, NEW: 7}, {OTHER: 6, OLD: 5, NEW: 4}, {OTHER: 6, OLD: 4, NEW: 4})
    assert await made.scores() == left
    for member in (OLD, NEW):
        assert (await client.get(f"/v1/boards/best/records/{member}")).json()["metadata"] == {"of": member}
    assert await made.merge("--undo", str(done["merge"])) == {"merge": done["merge"]}
    await made.check()
    assert await made.scores(as_of=before) == was
    entries = await AuditTrail(made.store, made.settings.key_prefix).last(6)
    assert [entry.what for entry in entries] == ["unmerged", "begun"] * 2 + ["merged", "begun"]
    assert (entries[4].key, entries[4].before["posts"]) == (OLD, {NEW: 3, OLD: 9})
    assert (entries[5].key, entries[5].before, entries[5].after) == (OLD, {"into": NEW}, {"act": "merged"})


async def test_a_merge_can_be_undone(valkey_url: str, tmp_path: Path, journal: str) -> None:
    """Later events stay with the member that they named.

    The past stays as it was. A later merge must be undone first.
    """
    async with machine(valkey_url, tmp_path, journal) as made:
        await merged(made)
        was = await made.scores()
        first, second = await made.merge(OLD, NEW), await made.merge(NEW, OTHER)
        assert await made.scores() == expected({OTHER: 22}, {OTHER: 6}, {OTHER: 4})
        assert "first" in (await made.merge("--undo", str(first["merge"])))["posts"]["fault"]
        for one in (second, first):
            await made.merge("--undo", str(one["merge"]), status=0)
        assert await made.scores() == was
        await made.check()
        await command(made.settings, "merge", "--undo", "5", "--yes", *made.boards, status=1)


async def test_a_rebuild_has_what_a_merge_and_an_erasure_left(valkey_url: str, tmp_path: Path, journal: str) -> None:
    """After a merge and an erasure, the store loses everything.

    The rebuild brings back nothing of the erased member.
    """
    async with machine(valkey_url, tmp_path, journal) as made:
        await made.merge(OLD, NEW)
        await command(made.settings, "erase", "--member", OTHER, "--yes", *made.boards)
        await send(made.client, NEW, 1)
        await made.check()
        was = await made.scores()
        assert was == expected({NEW: 13}, {NEW: 5}, {NEW: 1})
    async with connected(valkey_url, made.settings) as store:
        async for name in store.names(f"{made.settings.key_prefix}:*"):
            await store.delete(name)
        await command(made.settings, "rebuild", *made.boards)
        async with serving(made.settings, *parse_boards(BOARDS.replace("cap = 2", "cap = 9"))) as client:
            again = Machine(store, client, made.settings, tmp_path / "boards.toml")
            assert await again.scores() == was
            await again.check()


@pytest.mark.mutant
async def test_an_undo_that_forgets_later_events_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant's undo gives both members what they had before the merge."""
    right = live.maintenance.merge.Retraced.__init__

    def only_the_merge(own: Any, before: Any, merge: Any, entries: Any) -> None:
        held = list(entries)
        right(own, before, merge, held[:1])
        own._actual = own._other.__class__(
            **{name: getattr(own._actual, name) for name in own._actual.__struct_fields__}
        )
        for head, body in held[1:]:
            apply(own._actual, head, body)

    async with machine(valkey_url, tmp_path) as made:
        mutant = replaced(live.maintenance.merge.Retraced, "__init__", only_the_merge)
        with must_be_caught("later events are lost"), mutant:
            await merged(made)
