"""This version can open data of the previous version, without the tables and choices that this version does not have.

`version_before/` has what that version wrote with the key prefix `before`: a journal with hourly totals, recorded
frames and a final period, and the `DUMP` of each store key. The boards `made`, `days` and `shown` have the choices
`journal = "totals"`, `journal_totals` and `replay`.

`erased.db.gz` is a backup of a contest with the votes of two actors. It also has a list of erased actors, which names
one of the two. The previous version rewrote such a backup when it rebuilt boards. This backup was not rewritten yet.
"""

import gzip
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import msgspec
import pytest

from live.boards.definition import read_board
from live.domain.board import DEFAULT_BOARD, Boards, Journaling
from live.journal import database, erasures, schema
from live.journal.database import Database
from live.journal.erasures import Erasures, digests_in
from live.journal.log.reader import contents_of
from live.journal.log.timelines import open_timelines
from live.maintenance.rebuild import Rebuilding, Wanted
from live.maintenance.status import verify
from live.store.connection.client import connect
from live.store.registry import definitions
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import server, serving
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

HERE: Final = Path(__file__).parent / "version_before"
SCORES: Final = {"m0": 18, "m1": 18, "m2": 18, "m3": 18, "m4": 17, "m5": 16, "m6": 15}
GONE: Final = {"totals", "cell", "folded", "frame"}
KEPT: Final = ("life", "segment", "checkpoint", "definition", "period")


def put_journal(folder: Path) -> Path:
    """Put the journal into a data directory."""
    folder.mkdir(exist_ok=True)
    path = folder / "journal-before.db"
    path.write_bytes(gzip.decompress((HERE / "journal.db.gz").read_bytes()))
    return path


def rows_of(path: Path) -> dict[str, int]:
    """Return how many rows each table of the journal has."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}  # noqa: S608


async def scores(client: httpx.AsyncClient, board: str, **query: str) -> dict[str, int]:
    """The scores of a board."""
    response = await client.get(f"/v1/boards/{board}", params=query)
    assert response.status_code == 200, response.text
    return {record["key"]: record["score"] for record in response.json()["records"]}


def journal_opens(folder: Path) -> None:
    """Check that a server that writes the journal drops old tables, and keeps every row of the other tables."""
    path = put_journal(folder)
    before = rows_of(path)
    assert all(before[name] for name in (*GONE, *KEPT))
    with Database("sqlite", folder, "before", writes=True) as opened:
        assert opened.take_now()
    after = rows_of(path)
    assert not GONE & after.keys(), "a table of totals or frames is still there"
    assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM about WHERE name = 'schema'").fetchone() == (str(schema.VERSION),)


def test_a_journal_of_the_version_before_loses_only_totals_and_frames(tmp_path: Path) -> None:
    """Afterwards, the journal also has the schema number of this version."""
    journal_opens(tmp_path)


@pytest.mark.mutant
def test_tables_that_stay_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`journal_opens` fails if no table is dropped."""
    monkeypatch.setattr(database, "DROPPED", {})
    with must_be_caught("the tables of totals and frames stay"):
        journal_opens(tmp_path)


async def server_continues(store: StoreProcess, folder: Path) -> None:
    """A server opens every board, counts events, and shows the boards as of now and of a time before the upgrade."""
    put_journal(folder)
    client: Any = connect(store.url, fresh_settings(store.url, key_prefix="before"))
    for key, value in msgspec.msgpack.decode(gzip.decompress((HERE / "store.msgpack.gz").read_bytes())):
        await client.execute_command("RESTORE", key, 0, value)
    await client.aclose()
    settings: dict[str, Any] = {"key_prefix": "before", "data_dir": folder, "journal": "sqlite"}
    async with server(store.url, DEFAULT_BOARD, anonymous_admin=True, open=True, **settings) as asked:
        assert [await scores(asked, board) for board in ("made", "shown")] == [SCORES, SCORES]
        sent = {"type": "run", "key": "m0", "time": "2025-03-03T20:30:00Z"}
        assert (await asked.post("/v1/events", json=sent)).json()["accepted"] == 1
        assert [await scores(asked, board) for board in ("made", "shown")] == [{**SCORES, "m0": 19}] * 2
        then = await scores(asked, "days", as_of="2025-03-02T05:00:00Z")
        assert then == {"m0": 1, "m1": 2, "m2": 3, "m3": 1, "m6": 3}
        assert sum((await scores(asked, "days", period="2025-03-01")).values()) == 39, (
            "the period in the archive has other scores"
        )
        assert (await scores(asked, "made", as_of=datetime.now(UTC).isoformat()))["m0"] == 19
        assert "replay" not in (await asked.get("/v1/boards")).text
        changed = await asked.patch("/v1/boards/made", json={"title": "Made"})
        assert (changed.status_code, changed.json()["journal"]) == (200, "events"), changed.text


async def test_a_server_continues_with_the_data_of_the_version_before(own_store: StoreProcess, tmp_path: Path) -> None:
    """Boards run even if they have choices that this version does not know."""
    await server_continues(own_store, tmp_path)


@pytest.mark.mutant
async def test_choices_that_are_not_migrated_are_detected(own_store: StoreProcess, tmp_path: Path) -> None:
    """`server_continues` fails if a stored definition is read without migration."""
    with replaced(definitions, "migrate_choices", lambda _: None), must_be_caught("earlier choices are not migrated"):
        await server_continues(own_store, tmp_path)


async def test_boards_of_the_version_before_are_rebuilt(own_store: StoreProcess, tmp_path: Path) -> None:
    """The journal alone is enough, because the previous version also wrote the definitions of the boards to it."""
    put_journal(tmp_path)
    settings = fresh_settings(own_store.url, key_prefix="before", data_dir=tmp_path, journal="sqlite")
    client = connect(own_store.url, settings)
    opened = Database("sqlite", tmp_path, "before", writes=True)
    try:
        assert await opened.take()
        in_file = Boards([DEFAULT_BOARD])
        found = await Rebuilding(client, settings, in_file, opened, lambda *_: None).rebuild(Wanted())
        assert {"made", "days", "shown"} <= {rebuilt.board for rebuilt in found}
    finally:
        await opened.aclose()
        await client.aclose()
    async with serving(settings, DEFAULT_BOARD) as asked:
        assert [await scores(asked, board) for board in ("made", "shown")] == [SCORES, SCORES]


def keeps_the_list(folder: Path) -> None:
    """No contents have an actor of the previous version's list, neither before nor after the journal is migrated."""
    path = folder / "journal-before.db"
    path.write_bytes(gzip.decompress((HERE / "erased.db.gz").read_bytes()))
    raw = folded(path, writes=False, erased=False)
    before = folded(path, writes=False, erased=True)
    assert (len(raw), len(before)) == (6, 3), (
        "the list did not erase three digests: of the actor, and of the actor with each of two members"
    )
    with Database("sqlite", folder, "before", writes=False) as opened:
        assert verify(opened, "before", lambda *_: None).sound
    assert folded(path, writes=True, erased=True) == before


def folded(path: Path, *, writes: bool, erased: bool) -> set[bytes]:
    """The digests that the journal shows, with or without the list of erased actors."""
    with Database("sqlite", path.parent, "before", writes=writes) as opened:
        if writes:
            assert opened.take_now()
        with patch.object(Erasures, "clean", Erasures.clean if erased else lambda *_: None):
            return opened.work(lambda sql: digests_in(contents_of(sql, "before", open_timelines(sql, "before")[0])))


def test_the_list_of_erased_actors_stays(tmp_path: Path) -> None:
    """The rows of the list name no board, because they are for every board."""
    keeps_the_list(tmp_path)


@pytest.mark.mutant
def test_a_list_that_is_not_migrated_is_detected(tmp_path: Path) -> None:
    """The mutant reads only the rows that name the board."""
    with must_be_caught("rows without a board are ignored"), replaced(erasures, "or_", lambda first, _: first):
        keeps_the_list(tmp_path)


@pytest.mark.parametrize(
    ("choices", "journaling"),
    [
        ({"journal": "totals"}, Journaling(events=86_400)),
        ({"journal": "totals", "journal_totals": "90d", "window": "forever"}, Journaling(events=86_400)),
        ({"journal_totals": "90d", "journal_events": "2d"}, Journaling(events=2 * 86_400)),
        ({"journal_totals": "90d", "window": {"calendar": "day"}}, Journaling(periods=90 * 86_400)),
        ({"journal_totals": "90d", "window": {"calendar": "day", "last": 2}}, Journaling()),
        ({"journal": "off"}, Journaling(level="off")),
    ],
)
def test_stored_choices_are_migrated(choices: dict[str, Any], journaling: Journaling) -> None:
    """On a board with periods, a retention of totals becomes a retention of periods."""
    stored = msgspec.json.encode({"epoch": "e", "choices": choices})
    definition = msgspec.json.decode(stored, type=definitions.Definition)
    assert read_board("made", definition.choices).journal == journaling
