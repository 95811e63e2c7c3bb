"""The audit log: every act of an administrator, by API and by command, once, in an unbroken chain."""

import asyncio
import json
from functools import partial
from typing import Any, Final

import httpx
from sqlalchemy import Connection, text

from live.domain.board_file import parse_boards
from live.journal.database import existing_journal
from live.journal.log.audit_trail import read_trail, trail_faults
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect
from live.store.registry.audit_trail import AuditEntry, AuditTrail
from live.web.contract.documents import openapi_document
from tests.harness.commands import run_command
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

BOARDS = """
[[board]]
id = "posts"
window = "forever"
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, registered = true }
"""
RECORD = "/v1/boards/contest/records/Ada"
JUNE = "/v1/boards/june"
# For each operation of an administrator: its name, method, path and body, and the entry that it leaves.
ACTS: list[tuple[str, str, str, Any, dict[str, Any]]] = [
    ("putBoard", "PUT", JUNE, {"title": "June"}, {"what": "created", "board": "june", "after": {"title": "June"}}),
    ("patchBoard", "PATCH", JUNE, {"title": "Juni"},
     {"what": "changed", "board": "june", "before": {"title": "June"}, "after": {"title": "Juni"}}),
    ("patchBoard", "PATCH", JUNE, {"frozen": True},
     {"what": "frozen", "board": "june", "before": {"title": "Juni"}, "after": {"title": "Juni", "frozen": True}}),
    ("deleteBoard", "DELETE", JUNE, None,
     {"what": "deleted", "board": "june", "before": {"title": "Juni", "frozen": True}}),
    ("putRecord", "PUT", RECORD, {"song": "one"},
     {"what": "registered", "board": "contest", "key": "Ada", "after": {"song": "one"}}),
    ("putRecord", "PUT", RECORD, {"song": "two"},
     {"what": "registered", "board": "contest", "key": "Ada", "before": {"song": "one"}, "after": {"song": "two"}}),
    ("patchRecord", "PATCH", RECORD, {"hidden": True, "reason": "spam"},
     {"what": "hidden", "board": "contest", "key": "Ada", "reason": "spam"}),
    ("patchRecord", "PATCH", RECORD, {"hidden": False}, {"what": "shown", "board": "contest", "key": "Ada"}),
    ("deleteRecord", "DELETE", RECORD, None,
     {"what": "withdrawn", "board": "contest", "key": "Ada", "before": {"song": "two"}}),
    ("patchRecord", "PATCH", "/v1/boards/posts/records/a", {"score": 7, "reason": "counted twice"},
     {"what": "corrected", "board": "posts", "key": "a", "reason": "counted twice", "before": {"score": 9},
      "after": {"score": 7}}),
    ("putItem", "PUT", "/v1/items/a", {"title": "A"},
     {"what": "titled", "key": "a", "after": {"key": "a", "title": "A"}}),
    ("putItems", "PUT", "/v1/items", {"items": [{"key": "b", "title": "B"}, {"key": "c", "title": "C"}]},
     {"what": "titled", "before": {"items": []},
      "after": {"count": 2, "items": [{"key": "b", "title": "B"}, {"key": "c", "title": "C"}]}}),
    ("deleteItem", "DELETE", "/v1/items/a", None,
     {"what": "untitled", "key": "a", "before": {"key": "a", "title": "A"}}),
]  # fmt: skip


MANY_STEPS: Final = {"voided", "erased", "compacted", "repaired", "recovered"}


async def act(client: httpx.AsyncClient, method: str, path: str, body: Any) -> list[dict[str, Any]]:
    """Do something as an administrator. Returns the whole audit log, newest first."""
    answer = await client.request(method, path, json=body, headers={"X-Request-Id": f"{method}-1"})
    assert answer.is_success, answer.text
    trail: list[dict[str, Any]] = (await client.get("/v1/trail?limit=1000")).json()["trail"]
    return trail


async def check_api(client: httpx.AsyncClient) -> None:
    """Check that every operation of the contract that changes something leaves its entry and no other entry."""
    operations = {
        operation["operationId"]
        for methods in openapi_document()["paths"].values()
        for method, operation in methods.items()
        if "administration" in operation.get("tags", ()) and method != "get"
    }
    operations.remove("deleteEvent")  # it takes many steps (see `test_voids.py`)
    # Operations on one member have another form, with the member in the query, which runs the same code.
    assert {name.removesuffix("ByQuery") for name in operations} == {name for name, *_ in ACTS}
    await client.post("/v1/events", json=[{"key": "a", "amount": 9}])
    for number, (_, method, path, body, expected) in enumerate(ACTS, 1):
        trail = await act(client, method, path, body)
        assert len(trail) == number, (method, path)
        assert trail[0].pop("at") > 0
        assert trail[0] == {"who": "anonymous", "address": "127.0.0.1", "request": f"{method}-1", **expected}
    for path, body in (("/v1/boards/none", {"title": "x"}), ("/v1/boards/posts/records/a", {"score": 1})):
        assert not (await client.patch(path, json=body)).is_success
    assert len((await client.get("/v1/trail?limit=1000")).json()["trail"]) == len(ACTS)


def faults_of(connection: Connection) -> list[str]:
    """Return what is wrong with the audit log in the journal."""
    return list(trail_faults(connection))


async def command(settings: Settings, *words: str, status: int = 0) -> str:
    """Run a command on the store and the journal of the server."""
    environment = {
        "LIVE_STORE": settings.store, "LIVE_KEY_PREFIX": settings.key_prefix, "LIVE_DATA_DIR": str(settings.data_dir),
        "LIVE_JOURNAL": settings.journal,
    }  # fmt: skip
    ended = await asyncio.to_thread(run_command, *words, **environment)
    assert ended.returncode == status, (words, ended.stderr)
    return ended.stdout


async def test_every_act_is_in_the_audit_log_once(valkey_url: str) -> None:
    """Acts come by API and by command. The journal has all of them, and a changed byte is found.

    The audit log has no secret and no erased name.
    """
    settings = fresh_settings(valkey_url, journal="sqlite", anonymous_admin=True)
    store = connect(valkey_url, settings)
    trail, keys = AuditTrail(store), Keys(settings.key_prefix, "posts")
    expected, printed = [entry["what"] for *_, entry in ACTS], list[str]()

    async def run(what: str, *words: str, status: int = 0) -> AuditEntry:
        printed.append(await command(settings, *words, status=status))
        expected.extend(["begun", what] if what in MANY_STEPS else [what])
        entries = await trail.last(1000)
        assert [entry.what for entry in reversed(entries)] == expected
        return entries[0]

    async with serving(settings, *parse_boards(BOARDS)) as client:
        await check_api(client)
        await client.put("/v1/boards/contest/records/Bo", json={})
        expected.append("registered")
        await client.post("/v1/events", json={"key": "Bo", "type": "vote", "actor": "somebody"})
        added = await run("key_added", "keys", "add", "shop", "--verbs", "admin")
        assert (added.key, added.before, added.after["verbs"]) == ("shop", None, ["admin"])
        assert printed[-1].strip().rpartition(".")[2] not in str(added)
        await run("key_revoked", "keys", "revoke", "shop")
        # The first command fails, because board "none" does not exist.
        for what, board in (("begun", ("--board", "none")), ("voided", ())):
            voiding = ("void", "--producer", "", "--since", "2020-01-01T00:00:00Z", "--yes", *board)
            await run(what, *voiding, status=int(what == "begun"))
        assert "somebody" not in str(await run("erased", "erase", "--actor", "somebody", "--yes"))
        await store.call(keys.meta, "ZADD", keys.table(None).ranking, "5", "zz")
        await run("repaired", "check", "--repair", "store")

        async def is_in_sql() -> bool:
            with existing_journal(settings, writes=False) as database:
                return len(database.work(read_trail)) == len(expected)

        await eventually(is_in_sql)
    await run("adopted", "journal", "--adopt")
    await run("compacted", "journal", "--compact", "--yes", "--board", "contest")
    await store.call(keys.meta, "HINCRBY", keys.slot(0), "a", "1")
    await run("repaired", "check", "--board", "posts", "--repair", "journal")
    shown = json.loads(await command(settings, "trail", "--json"))["trail"]
    assert [entry["what"] for entry in shown] == expected
    assert all(entry["who"] for entry in shown)
    of_posts = json.loads(await command(settings, "trail", "--json", "--board", "posts"))["trail"]
    assert {entry["board"] for entry in of_posts} == {"posts"}
    assert await command(settings, "trail", "--since", "2999-01-01T00:00:00Z") == ""
    assert "counted twice" in await command(settings, "trail")

    with existing_journal(settings) as database:
        assert database.work(faults_of) == []
        for place, change in (
            (
                "entry 10 was changed",
                "UPDATE definition SET value = replace(value, 'twice', 'once') WHERE kind = 'trail'",
            ),
            ("before entry 4", "DELETE FROM definition WHERE kind = 'trail' AND version = 3"),
        ):
            database.work(partial(Connection.execute, statement=text(change)))
            assert place in database.work(faults_of)[0]
    assert "the audit log is damaged" in await command(settings, "journal", "--verify", status=1)
    async for name in store.names(f"{settings.key_prefix}:*"):
        await store.delete(name)
    expected.clear()
    await run("recovered", "recover", "--from", "journal", "--board", "posts")
    await store.aclose()
