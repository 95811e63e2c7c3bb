"""`live erase --member` leaves nothing of a member in the store and in SQL, and changes no other member."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import Connection, select

import live.journal.log.timelines
import live.maintenance.erase
from live.domain.board_file import parse_boards
from live.journal.database import existing_journal
from live.journal.log.entries import decompress
from live.journal.schema import METADATA
from live.maintenance.draining import draining, is_settled
from live.maintenance.erase import Erasing
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.board.manage import erasure
from live.store.board.manage.erasure import forget_member
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.client import Store
from live.store.registry.audit_trail import AuditTrail
from tests.harness.journaled import Journaled
from tests.harness.mutation import must_be_caught, mutated, replaced
from tests.harness.scripts import connected
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually, until_early
from tests.maintenance.test_erase import (
    CONTEST,
    EVE,
    contents_in_sql,
    contents_of_board,
    drift_of,
    machine,
    recovered_as,
    vote_of,
)
from tests.maintenance.test_erase import fill as fill_contest
from tests.web.api.test_corrections import OF_LIKES, correct
from tests.web.api.test_trail import command

NAME, SIP = "Persephone Quill", "Zebulon"
BOARDS = (
    OF_LIKES
    + """[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, registered = true }
[[board]]
id = "all"
union = ["posts", "more"]
weights = [3, 1]
[[board]]
id = "more"
types = ["none"]
[[board]]
id = "unjournaled"
types = ["like"]
journal = "off"
"""
)
NO_FILE = "the store has no append-only file: delete its older snapshots, and make a new one with BGSAVE"
KINDS = ("posts", "seconds", "days", "best", "last", "contest", "all", "unjournaled")


async def fill(client: httpx.AsyncClient, store: Store, names: SystemKeys) -> None:
    """Create everything that the store and the journal can hold about a member, for two members."""
    # The server keeps samples of refused events only while an administrator wants them.
    await store.call(names.refusals_wanted, "SET", names.refusals_wanted, 1)
    await client.post("/v1/events", json={"key": NAME, "type": "nothing"})
    for name, amount in ((NAME, 9), (SIP, 5)):
        metadata = {"metadata": {"about": name}}
        for _ in range(2):
            event = {"key": name, "amount": amount, "source": "shop", "id": name}
            await client.post("/v1/events", json=event)
        for board in ("best", "last"):
            await client.post("/v1/events", json={"key": name, "amount": amount + 1, "board": board, **metadata})
        await client.put(f"/v1/boards/contest/records/{name}", json=metadata)
        await client.post("/v1/events", json={"key": name, "type": "vote", "actor": "me"})
        assert (await correct(client, "posts", name, add=1)).is_success
        for hidden in (True, False):
            await client.patch(f"/v1/boards/days/records/{name}", json={"hidden": hidden})
        await client.put(f"/v1/items/{name}", json={"title": f"The {name}"})
    await client.put("/v1/items", json=[{"key": NAME, "title": f"The {NAME}"}, {"key": SIP, "title": SIP}])


async def places_of(store: Store, settings: Settings, name: str) -> set[str]:
    """Every store key and table that has the bytes of a name."""
    wanted, found = name.encode(), set()
    async for key in store.names(f"{settings.key_prefix}:*"):
        if wanted in key.encode() + await store.call(key, "DUMP", key):
            found.add(key)

    def read(connection: Connection) -> None:
        for table in METADATA.sorted_tables:
            for row in connection.execute(select(table)).mappings():
                data = decompress(row["crc"], row["data"]) if "crc" in row else b""
                if wanted in data or any(name in value for value in row.values() if isinstance(value, str)):
                    found.add(table.name)

    with existing_journal(settings, writes=False) as database:
        database.work(read)
        for file in database.path.parent.glob(f"{database.path.name}*"):
            if wanted in file.read_bytes():
                found.add(file.name)
    return found


async def drained(settings: Settings, store: Store) -> None:
    """Wait until SQL has the audit log, and every entry of the journals."""

    async def is_done() -> bool:
        try:
            status = json.loads(await command(settings, "journal", "--json"))
        except AssertionError:
            return False  # the server has not made the tables in PostgreSQL yet
        return bool(status["boards"]) and not [
            key async for key in store.names(f"{settings.key_prefix}:*:journal:*") if await store.call(key, "XLEN", key)
        ]

    await eventually(is_done)
    await asyncio.sleep(1.1)  # the server copies titles and the audit log to SQL once a second


async def erased(valkey_url: str, tmp_path: Path) -> Settings:
    """Erase a member while a server runs, and look for it everywhere."""
    await until_early("day")
    settings = fresh_settings(valkey_url, journal="sqlite", anonymous_admin=True)
    async with connected(valkey_url, settings) as store, serving(settings, *parse_boards(BOARDS)) as client:
        await fill(client, store, SystemKeys(settings.key_prefix))
        await asyncio.sleep(0.005)
        before = datetime.now(UTC).isoformat()
        await drained(settings, store)

        async def is_in_sql() -> bool:
            return await places_of(store, settings, NAME) >= {"segment", "definition"}

        await eventually(is_in_sql)
        places = await places_of(store, settings, NAME)
        assert len(places) > 20
        assert any("{:refusals}" in place for place in places)
        shown = {kind: (await client.get(f"/v1/boards/{kind}")).json() for kind in KINDS}
        assert all([row["key"] for row in page["records"]] == [NAME, SIP] for page in shown.values())
        preview = json.loads(await command(settings, "erase", "--member", NAME, "--dry-run", "--json"))
        assert preview["title"]
        assert {one["board"] for one in preview["boards"] if one["in_store"]} == set(KINDS)
        await command(settings, "backup", str(tmp_path / "backup"))
        answer = json.loads(await command(settings, "erase", "--member", NAME, "--yes", "--json"))
        assert answer["left"] in ("", NO_FILE)
        await drained(settings, store)
        assert await places_of(store, settings, NAME) == set()
        await command(settings, "backup", str(tmp_path / "later"))
        for folder, tables in (("backup", {"segment", "definition"}), ("later", set())):
            copied = msgspec.structs.replace(settings, data_dir=tmp_path / folder)
            assert await places_of(store, copied, NAME) & {"segment", "checkpoint", "definition"} == tables, folder
        for kind in KINDS:
            page = (await client.get(f"/v1/boards/{kind}")).json()
            kept = [row for row in shown[kind]["records"] if row["key"] == SIP]
            assert [{**row, "rank": 1} for row in kept] == page["records"], kind
            assert (page["epoch"], page["offset"]) > (shown[kind]["epoch"], shown[kind]["offset"])
            if kind != "unjournaled":
                past = (await client.get(f"/v1/boards/{kind}", params={"as_of": before})).json()
                assert [row["key"] for row in past["records"]] == [SIP], kind
            assert (await client.get(f"/v1/boards/{kind}/records/{NAME}")).status_code == 404
        await command(settings, "erase", "--member", NAME, "--yes", status=1)
        last = (await AuditTrail(store).last(1))[0]
        assert (last.what, set(last.before)) == ("erased", {"member_sha256", "salt"})
        await client.post("/v1/events", json={"key": NAME, "amount": 2})
        assert (await client.get(f"/v1/boards/posts/records/{NAME}")).json()["score"] == 2
        await drained(settings, store)
        await command(settings, "check")
        await command(settings, "journal", "--verify")
        assert (await command(settings, "export", "seconds", "--events")).count(NAME) == 1, (
            "the export has earlier events of the member, or not the later one"
        )
        assert NAME not in await command(settings, "export", "seconds", "--as-of", before)
    return settings


async def test_nothing_is_left_of_a_member(valkey_url: str, tmp_path: Path) -> None:
    """On boards of every kind, other members stay as they are, also in the past. The erased member can come back."""
    settings = await erased(valkey_url, tmp_path)
    async with connected(valkey_url, settings) as store:
        assert "segment" in await places_of(store, settings, SIP)
        await command(settings, "erase", "--member", SIP, "--yes")
        assert await places_of(store, settings, SIP) == set(), "the name is left although no server runs"


@pytest.mark.mutant
async def test_a_past_that_is_not_rewritten_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant erases the member from the store and appends the entry, but does not rewrite SQL."""
    with must_be_caught("SQL keeps the name"), replaced(live.journal.log.timelines, "forget_by", lambda *_: None):
        await erased(valkey_url, tmp_path)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory with a short path, because the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        yield Path(name)


async def erase_a(board: Journaled) -> str:
    """Erase the member `a` as the command does while no server runs. Return what is left to do."""
    for database in board.databases:
        await database.aclose()
    async with draining(board.client, board.settings) as (journal, drainer):
        return (await Erasing(board.client, board.settings, journal, drainer).erase_member("a"))[1]


async def voted_meanwhile(board: Journaled) -> None:
    """Vote for a member just before the step that deletes it. One vote is in SQL by then, one is in the store."""
    await fill_contest(board)
    voters = ["zoe", "tim"]

    async def late(*given: Any) -> bool:
        if voters:
            await board.ledger.writer.add([vote_of("a", voters.pop())], [("shop", 1)])
            if voters:
                await is_settled(board.client)
        return await forget_member(*given)

    with replaced(live.maintenance.erase, "forget_member", late):
        assert await erase_a(board) == ""
    assert not voters
    secret = board.ledger.state.secret
    gone = {voter_digests(secret, who, "a")[1] for who in ("zoe", "tim", "joe", EVE)}
    votes = {*await board.client.hgetall(board.ledger.state.keys.table().votes)}
    assert not gone & votes, "the store has a vote for the member"
    assert not [data for data in contents_in_sql(board.databases[0]) if any(digest in data for digest in gone)]
    assert {voter_digests(secret, who, "")[0] for who in ("zoe", "tim", "joe", EVE)} <= votes
    assert await drift_of(board, board.ledger) == []


async def test_a_vote_just_before_the_deletion_is_deleted_too(folder: Path) -> None:
    """The store deletes the member only if the journal has no entry that the command has not searched."""
    async with machine(folder, CONTEST) as board:
        await voted_meanwhile(board)


@pytest.mark.mutant
async def test_a_deletion_after_other_entries_is_detected(folder: Path) -> None:
    """The mutant deletes the member although votes have arrived since the search."""
    wrong = erasure.FORGET.changed(
        mutated(erasure.FORGET.source, {"request.last ~= link_of(board)": "request.last == ''"})
    )
    async with machine(folder, CONTEST) as board:
        with must_be_caught("a vote for the member stays"), replaced(erasure, "FORGET", wrong):
            await voted_meanwhile(board)


async def completed(board: Journaled, name: str) -> None:
    """Kill an erasure from two boards with the same rows, before it erases from the second. Then run it again."""
    await fill_contest(board)
    ledger = await recovered_as(board, name)
    done: list[Any] = []

    async def killed(*given: Any) -> bool:
        if done:
            await is_settled(board.client)
            raise ConnectionResetError
        done.append(given)
        return await forget_member(*given)

    with replaced(live.maintenance.erase, "forget_member", killed), pytest.raises(ConnectionResetError):
        await erase_a(board)
    assert await erase_a(board) == ""
    for one in (board.ledger, ledger):
        assert await drift_of(board, one) == [], "the store differs from the journal"
        votes = {*await board.client.hgetall(one.state.keys.table().votes)}
        assert not votes & {voter_digests(one.state.secret, who, "a")[1] for who in ("joe", EVE)}
        assert {voter_digests(one.state.secret, who, "b")[1] for who in ("joe", EVE)} <= votes
        assert contents_of_board(board.databases[0], board, one).digests == votes
    assert not await board.client.exists(board.client.system.erasures)


@pytest.mark.parametrize("name", ["other", "qother"])
async def test_a_killed_erasure_from_boards_with_the_same_rows_is_completed(folder: Path, name: str) -> None:
    """The first journal in the order of names completes an erasure, so its entry comes last."""
    async with machine(folder, CONTEST) as board:
        await completed(board, name)


@pytest.mark.mutant
async def test_a_digest_that_has_been_replaced_in_shared_rows_is_detected(folder: Path) -> None:
    """The mutant looks for the name only, which the killed run has deleted from the rows of the other board."""

    async def none(*_: object) -> set[bytes]:
        return set()

    async with machine(folder, CONTEST) as board:
        with must_be_caught("the store differs"), replaced(Erasing, "_left_in_store", none):
            await completed(board, "other")
