"""Periods that a board no longer keeps are in the archive. They are final until the board keeps more periods."""

import csv
import io
import re
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal.forgetting import erasures_in
from live.journal.log.timelines import Timeline, find_timeline
from live.journal.past.queries import AsOf
from live.journal.past.rankings import period_at
from live.journal.schema import PERIOD
from live.journal.upkeep import archive
from live.journal.upkeep.archive import Archived, closed_periods, find_archived, keep_closed
from live.journal.upkeep.compactor import forget_periods
from live.maintenance.journal import compact
from live.store.board.ledger import Ledger
from tests.harness.boards import changed
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import server
from tests.harness.timeline import BEGIN, RecordedBoard, timeline
from tests.maintenance.test_rules import DAY, NOON, count, rule
from tests.maintenance.test_rules import board_of as rules_of

HOUR: Final = 3600
FIRST: Final[dict[str, Any]] = {"ties": "first"}
Rows = list[tuple[str, str, str]]


def calendar(choices: str = "") -> Board:
    """A board with a ranking for each hour, which keeps the previous hour."""
    text = f'[[board]]\nid = "posts"\nwindow = {{ calendar = "hour", keep = 1 }}\nties = "first"\n{choices}'
    (board,) = parse_boards(text)
    return board


async def keep(line: RecordedBoard) -> None:
    """Reopen and archive periods, as the compactor does."""
    (drainer,) = line.drainers

    def work(connection: Connection, timeline: Timeline) -> None:
        archive.reopen(connection, timeline, line.board)
        keep_closed(connection, timeline, closed_periods(connection, timeline, line.board), 0)

    await drainer.sweep()
    await line.read(work)


async def found(line: RecordedBoard, start: int) -> Archived | None:
    """A period that the board has dropped, from the archive or the journal."""
    one: Archived | None = await line.read(lambda connection, _: find_archived(connection, line.board, None, start))
    return one


async def starts(line: RecordedBoard) -> list[int]:
    """When each period in the archive begins."""
    query = select(PERIOD.c.start).order_by(PERIOD.c.start)
    return [*(await line.read(lambda connection, _: connection.scalars(query).all()))]


def rows(period: Archived | None) -> dict[str, int]:
    """The scores in a period."""
    assert period is not None
    return dict(zip(period.period.members, period.period.scores, strict=True))


async def test_a_period_is_archived_when_the_board_drops_it(valkey_url: str, tmp_path: Path) -> None:
    """The period is archived once, in its order. Before that, the journal gives the same ranking."""
    async with timeline(valkey_url, tmp_path, calendar()) as line:
        await line.drainer()
        await line.count(("b", 1, None))
        await line.count(("a", 1, None), ("c", 2, None))
        for _ in range(3):
            await line.go(HOUR)
            await line.count(("a", 1, None))
        await line.drainers[0].sweep()
        before = await found(line, BEGIN)
        await keep(line)
        after = await found(line, BEGIN)
        assert before is not None
        assert after is not None
        assert (after.period, after.revision) == (before.period, before.revision)
        assert (list(rows(after).items()), after.revision) == ([("c", 2), ("b", 1), ("a", 1)], 1)
        await keep(line)
        assert await found(line, BEGIN) == after
        assert await found(line, BEGIN - HOUR) is None
        assert await starts(line) == [BEGIN, BEGIN + HOUR]
        await line.read(
            lambda connection, timeline: forget_periods(connection, timeline, line.board, BEGIN + 2 * HOUR, HOUR)
        )
        assert await starts(line) == [BEGIN + HOUR]
        assert await found(line, BEGIN) == before


async def opened_again(line: RecordedBoard) -> None:
    """Keep more periods, and count an event in a period that was final."""
    await line.drainer()
    await line.count(("a", 2, None))
    await line.go(3 * HOUR)
    await line.count(("a", 1, None))
    await keep(line)
    assert (await found(line, BEGIN)) is not None
    wider = changed(line.board, window=msgspec.structs.replace(line.board.window, keep=9, grace=24 * HOUR))
    line.board = line.ledger.state.board = wider
    await keep(line)
    added = await line.ledger.writer.add([("b", 5, BEGIN * 1000, None, None)])
    assert not added.refused
    await line.go(11.5 * HOUR)
    await line.count(("a", 1, None))
    await keep(line)
    again = await found(line, BEGIN)
    assert rows(again) == {"b": 5, "a": 2}
    assert again is not None
    assert again.revision == 2


async def test_a_board_that_keeps_more_periods_gives_a_period_another_revision(valkey_url: str, tmp_path: Path) -> None:
    """The new revision has everything that was counted before and after the change."""
    async with timeline(valkey_url, tmp_path, calendar()) as line:
        await opened_again(line)


@pytest.mark.mutant
async def test_a_missing_revision_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, a final period changes without a new revision."""
    async with timeline(valkey_url, tmp_path, calendar()) as line:
        with replaced(archive, "reopen", lambda *_, **__: None), must_be_caught("a final period has no new revision"):
            await opened_again(line)


async def keep_as(made: Journaled, board: Board) -> None:
    """Reopen and archive the periods of a board, as the compactor does."""

    def work(connection: Connection) -> None:
        timeline = find_timeline(connection, board.id, made.ledger.state.epoch or "")
        assert timeline is not None
        archive.reopen(connection, timeline, board)
        keep_closed(connection, timeline, closed_periods(connection, timeline, board), erasures_in(connection))

    await (await made.drainer()).sweep()
    await made.databases[0].run(work)


async def show_by_other_rules(store: str, folder: Path, old: dict[str, Any], new: dict[str, Any]) -> list[Rows]:
    """Return the first day of a board from the archive, before and after a change of rules and after the way back."""
    boards, found = [rules_of({"window": "days"} | old | more) for more in ({}, new)], list[Rows]()
    async with journaled(store, folder, boards[0]) as made:
        start = boards[0].window.slot_at(NOON // 1000).start

        async def see(board: Board) -> None:
            await keep_as(made, board)
            moment = AsOf(board, made.ledger.state.epoch, 0, start, frozenset())
            shown = await made.databases[0].run(period_at, moment)
            columns = ((), (), ()) if shown is None else (shown.members, shown.ranks, shown.scores)
            found.append([(member, str(rank), str(score)) for member, rank, score in zip(*columns, strict=True)])

        for number, (member, amount) in enumerate((("c", 2), ("a", 2), ("b", 5), ("d", 1))):
            await count(made.ledger, [make_entry(member, amount, NOON + number)])
        await count(made.ledger, [make_entry("z", 1, NOON + 8 * DAY)])
        await keep_as(made, boards[0])
        compact(made.databases[0], [], lambda *_: None)
        await count(made.ledger, [make_entry("z", 1, NOON + 64 * DAY)])
        await see(boards[0])
        told = await rule(made, boards[1], dry=True)
        made.ledger.state.rules.other = None
        await rule(made, boards[1])
        await see(boards[1])
        assert told.periods == (0 if found[1] else 2)
        made.ledger = Ledger(made.client, boards[1], made.settings)
        await made.ledger.state.open()
        await rule(made, boards[0])
        await see(boards[0])
        assert found[2] == found[0], "the archive is another one after the rules are changed back"
    return found


BY_NAME: Final[dict[str, Any]] = {"ties": "key"}
OTHER_RULES: Final[dict[str, tuple[dict[str, Any], dict[str, Any], Rows]]] = {
    "dense ranks": (FIRST, {"ranks": "dense"}, [("b", "1", "5"), ("c", "2", "2"), ("a", "2", "2"), ("d", "3", "1")]),
    "the last first": (FIRST, {"ties": "last"}, [("b", "1", "5"), ("a", "2", "2"), ("c", "3", "2"), ("d", "4", "1")]),
    "by name": (FIRST, BY_NAME, [("b", "1", "5"), ("a", "2", "2"), ("c", "3", "2"), ("d", "4", "1")]),
    "ascending": (FIRST, {"sort_order": "asc"}, [("d", "1", "1"), ("c", "2", "2"), ("a", "3", "2"), ("b", "4", "5")]),
    "ascending names": (
        {},
        {"sort_order": "asc"},
        [("d", "1", "1"), ("a", "2", "2"), ("c", "3", "2"), ("b", "4", "5")],
    ),
    "ties by time": (BY_NAME, FIRST, []),
    "zeros": (FIRST, {"zeros": True}, []),
    "weeks": (FIRST, {"window": "weeks"}, []),
}


@pytest.mark.parametrize("change", OTHER_RULES)
async def test_the_archive_follows_other_rules_where_it_says_enough(
    valkey_url: str, tmp_path: Path, change: str
) -> None:
    """Otherwise the archive is back after the rules are changed back."""
    old, new, rows = OTHER_RULES[change]
    assert (await show_by_other_rules(valkey_url, tmp_path, old, new))[1] == rows


@pytest.mark.mutant
async def test_an_archive_in_its_old_order_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant shows an archived period as it is."""
    old, new, rows = OTHER_RULES["ascending"]
    with must_be_caught("an archived period has its old order"), replaced(archive, "_by_rules", lambda one, _: one):
        assert (await show_by_other_rules(valkey_url, tmp_path, old, new))[1] == rows


async def post(client: httpx.AsyncClient, day: int, *keys: str) -> None:
    """Count events of a day, by the clock of the board."""
    events = [{"board": "days", "key": member, "time": f"2024-02-0{day}T12:00:00Z"} for member in keys]
    assert (await client.post("/v1/events", json=events)).json()["accepted"] == len(keys)


DAYS: Final = """
[[board]]
id = "days"
window = { calendar = "day", keep = 1 }
clock = "event"
"""


async def get(client: httpx.AsyncClient, path: str = "", **query: Any) -> dict[str, Any]:
    """The answer about the first day."""
    answer = await client.get(f"/v1/boards/days{path}", params={"period": "2024-02-01", **query})
    found: dict[str, Any] = {"cache": answer.headers["cache-control"], **answer.json()}
    return found


async def test_archived_periods_are_read_like_others(valkey_url: str) -> None:
    """An archived period has pages, and is marked as final.

    Members that are hidden now are hidden in archived periods too.
    """
    async with server(valkey_url, *parse_boards(DAYS), journal="sqlite", anonymous_admin=True, open=True) as client:
        await post(client, 1, "a", "b", "b", "c", "c", "c")
        kept = await get(client)
        assert "final" not in kept
        for day in (2, 3):
            await post(client, day, "a")
        page = await get(client, limit=2)
        assert "final" in page, page["detail"]
        assert (page["final"], page["revision"], page["period"]) == (True, 1, "2024-02-01")
        assert (page["rank_count"], page["total_score"]) == (3, 6)
        assert "max-age" in page["cache"]
        rest = await get(client, limit=2, cursor=page["next_cursor"])
        assert page["records"] + rest["records"] == kept["records"]
        record = await get(client, "/records/b")
        assert (record["score"], record["rank"], record["gap"], record["final"]) == (2, 2, 1, True)
        assert (await get(client, "/records/x"))["code"] == "record_not_found"
        assert (await get(client, period="2024-01-01"))["code"] == "period_not_found"
        assert "final" not in await get(client, period="previous")
        assert (await client.patch("/v1/boards/days/records/c", json={"hidden": True})).is_success
        assert [record["key"] for record in (await get(client))["records"]] == ["b", "a"]


async def shown_rows(client: httpx.AsyncClient, **query: Any) -> Rows:
    """The rank, member and score of each record of the first day, which JSON, HTML and CSV must agree about."""
    params = {"period": "2024-02-01", **query}
    records = (await client.get("/v1/boards/days", params=params)).json()["records"]
    found = [(str(record["rank"]), record["key"], str(record["score"])) for record in records]
    table = (await client.get("/boards/days/records.csv", params=params)).content.decode("utf-8-sig")
    assert [tuple(row) for row in csv.reader(io.StringIO(table))] == [("rank", "member", "score"), *found]
    for path in ("/boards/days", "/embed/days", "/boards/days,others"):
        html = (await client.get(path, params=params)).text
        assert re.findall(ROW, html) == [(member, rank, score) for rank, member, score in found], path
    return found


OTHERS: Final = '[[board]]\nid = "others"\ntypes = ["other"]\nwindow = { calendar = "day", keep = 9 }\nclock = "event"'
ROW: Final = r'<tr data-member="(.*?)"[^>]*><td class="rank">(.*?)</td>.*?<td class="score"[^>]*>(.*?)</td>'
OWN: Final = (
    r'<tr data-member="(.*?)" class="[^"]*\bown"><td class="rank">(.*?)</td><th scope="row" data-note="(.*?)">'
    r'.*?<td class="score"(?: data-gap="(.*?)")?>(.*?)</td>'
)


async def test_archived_periods_are_pages_and_tables(valkey_url: str) -> None:
    """Pages of an archived period have the same rows as before, the place of a member, and links to later periods."""
    boards = parse_boards(DAYS + OTHERS)
    async with server(valkey_url, *boards, journal="sqlite", anonymous_admin=True, open=True) as client:
        await post(client, 1, "a", "b", "b", "名", "名", "名")
        other = [{"board": "others", "key": "x", "time": f"2024-02-0{day}T12:00:00Z"} for day in (2, 3)]
        assert (await client.post("/v1/events", json=other)).json()["accepted"] == 2
        kept = await shown_rows(client)
        assert kept == [("1", "名", "3"), ("2", "b", "2"), ("3", "a", "1")]
        for day in (2, 3):
            await post(client, day, "a")
        assert await shown_rows(client) == kept
        assert await shown_rows(client, limit=2) == kept[:2]
        period = {"period": "2024-02-01"}
        for member, place in (("b", ("2", "You", "\N{MINUS SIGN}1", "2")), ("x", ("", "You, not ranked", "", ""))):
            html = (await client.get("/boards/days", params={**period, "key": member})).text
            assert re.findall(OWN, html) == [(member, *place)]
            assert f'<a rel="next" href="?period=2024-02-02&amp;key={member}">' in html
            assert 'rel="prev"' not in html
        table = await client.get("/boards/days/records.csv", params=period)
        assert table.headers["content-disposition"] == 'attachment; filename="days-2024-02-01.csv"'
        assert (await client.patch("/v1/boards/days/records/b", json={"hidden": True})).is_success
        assert await shown_rows(client) == [("1", "名", "3"), ("2", "a", "1")]
        for path in ("/boards/days", "/boards/days/records.csv"):
            assert (await client.get(path, params={"period": "2024-01-01"})).status_code == 404


async def test_without_a_journal_there_is_no_archive(valkey_url: str) -> None:
    """The answer is that the period is not kept."""
    async with server(valkey_url, *parse_boards(DAYS)) as client:
        for day in (1, 2, 3):
            await post(client, day, "a")
        assert (await get(client))["code"] == "period_not_found"
        for path in ("/boards/days", "/boards/days/records.csv"):
            assert (await client.get(path, params={"period": "2024-02-01"})).status_code == 404
