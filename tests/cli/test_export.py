"""`live export` writes rankings and events as CSV, NDJSON and Parquet; a file is complete or missing."""

import asyncio
import csv
import io
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
import typer

import live.cli.export
import live.domain.csv_table
from live.cli.export import FORMATS, export, output_file
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.domain.item import Item
from live.errors import SetupError
from live.journal.log.definitions import DefinitionLog
from live.maintenance.export import Column
from live.maintenance.void import Criteria, Voiding
from live.store.board.keys import SystemKeys
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.waiting import until_early

BOARDS = """
[[board]]
id = "past"
types = ["like"]
clock = "event"
window = { calendar = "day", keep = 1 }
[[board]]
id = "posts"
types = ["like"]
[[board]]
id = "hot"
types = ["like"]
window = { sliding = "3h" }
[[board]]
id = "days"
types = ["like"]
window = { calendar = "day" }
"""
DANGEROUS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\uff1d1")


class Exports:
    """A board with a journal, and its exports."""

    def __init__(self, board: Journaled, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.board = board
        self.folder = folder
        monkeypatch.setenv("LIVE_KEY_PREFIX", board.settings.key_prefix)

    async def drain(self) -> None:
        drainer = await self.board.drainer()
        await drainer.sweep()
        await DefinitionLog(self.board.client, drainer.database).follow()

    async def rows(self, form: str = "ndjson", **flags: Any) -> Any:
        """The rows of an export."""
        path = self.folder / f"out.{form}"
        choices: dict[str, Any] = {
            "as_of": None, "period": None, "events": False, "since": None, "until": None, "as_json": False, **flags,
        }  # fmt: skip
        await asyncio.to_thread(
            export, name=self.board.board.id, form=form, output=str(path), data_dir=self.folder, **choices
        )  # fmt: skip
        match form:
            case "csv":
                return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
            case "ndjson":
                return [json.loads(line) for line in path.read_bytes().splitlines()]
        return pq.read_table(path).to_pylist()


def exports(store: str, folder: Path, board: str = "posts") -> Any:
    """One of the boards with a journal."""
    (found,) = (one for one in parse_boards(BOARDS) if one.id == board)
    return journaled(store, folder, found)


def now() -> str:
    """The current time, in the form that the flags take."""
    return datetime.now(UTC).isoformat()


async def csv_is_inert(found: Exports) -> None:
    """Check that members that look like formulas begin with an apostrophe, so that they are text."""
    rows = await found.rows("csv")
    assert [row["member"] for row in rows] == [*(f"'{name}" for name in DANGEROUS), "ann"]


async def test_nothing_in_csv_is_a_formula(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spreadsheet would run a formula. The other formats have the original texts."""
    async with exports(valkey_url, tmp_path) as board:
        found = Exports(board, tmp_path, monkeypatch)
        await board.like(*DANGEROUS, *DANGEROUS, "ann")
        await found.drain()
        await csv_is_inert(found)
        with must_be_caught("the file has dangerous texts as they are"), replaced(live.domain.csv_table, "_inert", str):
            await csv_is_inert(found)
        assert {row["member"] for row in await found.rows()} == {*DANGEROUS, "ann"}


async def test_a_ranking_has_ranks_scores_and_titles(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All formats have the same rows, for now and for a past time. Hidden members are left out."""
    async with exports(valkey_url, tmp_path) as board:
        found = Exports(board, tmp_path, monkeypatch)
        await board.like("a", "b", "b", "c")
        await asyncio.sleep(0.005)
        then = now()
        await asyncio.sleep(0.005)
        await board.like("a", "a")
        await board.ledger.moderation.hide("c", hidden=True)
        names = SystemKeys(board.settings.key_prefix)
        await board.client.hset(names.items, "a", msgspec.json.encode(Item("a", "The first")))
        await board.client.incr(names.items_version)
        await found.drain()
        rows = [
            {"rank": 1, "member": "a", "score": 3, "title": "The first", "metadata": None},
            {"rank": 2, "member": "b", "score": 2, "title": None, "metadata": None},
        ]
        assert await found.rows() == rows
        assert await found.rows("parquet") == rows
        assert [list(row.values()) for row in await found.rows("csv")] == [
            ["1", "a", "3", "The first", ""], ["2", "b", "2", "", ""]
        ]  # fmt: skip
        assert [(row["member"], row["score"]) for row in await found.rows(as_of=then)] == [("b", 2), ("a", 1)]
        with pytest.raises(typer.Exit):
            await found.rows(as_of="2020-01-01T00:00:00Z")


async def test_events_add_up_to_the_scores(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has the amount that one batch added for one member. A time range exports only its own rows."""
    async with exports(valkey_url, tmp_path) as board:
        found = Exports(board, tmp_path, monkeypatch)
        for _ in range(3):
            await board.like("a", "b", "a")
        await asyncio.sleep(0.005)
        then = now()
        await asyncio.sleep(0.005)
        await board.like("b")
        await found.drain()
        rows = await found.rows(events=True)
        assert [(row["member"], row["amount"]) for row in rows] == [("a", 2), ("b", 1)] * 3 + [("b", 1)]
        assert [row["number"] for row in rows] == [1, 2] * 3 + [1]
        assert {row["epoch"] for row in rows} == {board.ledger.state.epoch}
        assert rows == [*await found.rows(events=True, until=then), *await found.rows(events=True, since=then)]
        assert len(await found.rows(events=True, since=then)) == 1
        slot = datetime.fromisoformat(rows[0]["slot"])
        assert timedelta() <= datetime.fromisoformat(rows[0]["time"]) - slot < timedelta(hours=1)
        table_of = await found.rows("parquet", events=True)
        assert [row["time"] for row in table_of] == [datetime.fromisoformat(row["time"]) for row in rows]


async def test_events_that_were_taken_back_are_not_exported(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The amounts add up to the scores that are left."""
    async with exports(valkey_url, tmp_path) as board:
        found = Exports(board, tmp_path, monkeypatch)
        await board.ledger.writer.add([make_entry("a", 5), make_entry("b", 1)], [("ann", 1), ("bob", 1)])
        await board.ledger.writer.add([make_entry("a", 2)], [("bob", 1)])
        await found.drain()
        voiding = Voiding(board.client, board.settings, board.databases[0], lambda *_: None)
        await voiding.void(Criteria(producer="ann"), "posts", dry=False)
        await found.drain()
        rows = await found.rows(events=True)
        assert [(row["member"], row["amount"]) for row in rows] == [("b", 1), ("a", 2)]


async def test_events_of_a_sliding_window_have_their_own_times(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one row for each event, because each expires separately."""
    async with exports(valkey_url, tmp_path, "hot") as board:
        found = Exports(board, tmp_path, monkeypatch)
        earlier = round(time.time() * 1000) - 60_000
        await board.ledger.writer.add([make_entry("a", 2, earlier, None), make_entry("a", 3, None, None)])
        await found.drain()
        first, second = await found.rows(events=True)
        assert datetime.fromisoformat(first["slot"]).timestamp() * 1000 == pytest.approx(earlier)
        assert (first["amount"], second["amount"]) == (2, 3)
        assert [(row["member"], row["score"]) for row in await found.rows()] == [("a", 5)]


async def test_a_period_that_the_board_has_dropped(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a dropped period come from the journal, even on a board with an event clock."""
    async with exports(valkey_url, tmp_path, "past") as board:
        found = Exports(board, tmp_path, monkeypatch)
        for day in range(4):
            time_of = round(datetime(2020, 1, 1 + day, tzinfo=UTC).timestamp() * 1000)
            await board.ledger.writer.add([make_entry(f"m{day}", 1, time_of, None)])
        await found.drain()
        for name, member in (("2020-01-01", "m0"), ("2020-01-03", "m2"), ("previous", "m2"), ("current", "m3")):
            assert [row["member"] for row in await found.rows(period=name)] == [member], name
        with pytest.raises(typer.Exit):
            await found.rows(period="2019-12-31")


async def test_a_calendar_period_is_exported(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current and the previous period can be exported. The name of a period of another unit is refused."""
    await until_early("day")
    async with exports(valkey_url, tmp_path, "days") as board:
        found = Exports(board, tmp_path, monkeypatch)
        await board.like("a")
        await found.drain()
        (row,) = await found.rows(period="current")
        assert row["member"] == "a"
        assert await found.rows(period="previous") == []
        with pytest.raises(typer.Exit):
            await found.rows(period="2026-W47")


@pytest.mark.parametrize(
    "flags",
    [
        {"form": "xls"},
        {"events": True, "period": "current"},
        {"since": "2026-11-22T12:00:00Z"},
        {"events": True, "since": "2026-11-22T12:00:00"},
        {"as_json": True, "output": "-"},
    ],
)
def test_contradictory_flags_are_refused(flags: dict[str, Any], tmp_path: Path) -> None:
    """The command checks the flags before it reads anything."""
    (tmp_path / "journal-live.db").touch()
    choices = {
        "as_of": None, "period": None, "events": False, "since": None, "until": None, "form": "csv",
        "output": str(tmp_path / "x"), "as_json": False, "data_dir": tmp_path, **flags,
    }  # fmt: skip
    with pytest.raises(typer.Exit) as ended:
        export(name="posts", **choices)
    assert ended.value.exit_code == 2
    assert not (tmp_path / "x").exists()


def test_an_interrupted_export_leaves_the_old_file(tmp_path: Path) -> None:
    """No incomplete file is left."""
    path = tmp_path / "board.csv"
    path.write_text("old", encoding="utf-8")

    def interrupted() -> None:
        with output_file(str(path)) as file, FORMATS["csv"](file, [Column("member", "text")]) as write:
            write([("a",)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [found.name for found in tmp_path.iterdir()] == ["board.csv"]
    assert path.read_text(encoding="utf-8") == "old"


def test_without_the_extra_parquet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install."""
    monkeypatch.setattr(live.cli.export, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"live-board\[parquet\]"), FORMATS["parquet"](io.BytesIO(), []):
        pass
