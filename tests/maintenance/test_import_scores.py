"""`live import` sets scores by corrections: a second import changes nothing, and store, journal and unions agree."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.errors import JournalBehindError, StoreUnavailableError
from live.maintenance import import_scores
from live.maintenance.import_scores import MOST_LINE, MOST_NAMED
from live.settings import Settings
from live.store.board.state import BoardState
from live.store.board.write import correction
from live.store.board.write.correction import Correction, correct, read_held
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import connect
from tests.harness.commands import run_command
from tests.harness.server import serving
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.waiting import eventually, until_early

BOARDS: Final = """
[[board]]
id = "posts"
types = ["like"]
[[board]]
id = "photos"
types = ["photo"]
[[board]]
id = "small"
types = ["small"]
max_members = 2
[[board]]
id = "all"
union = ["posts", "photos"]
weights = [3, 1]
[[board]]
id = "cup"
types = ["cup"]
[[board]]
id = "plate"
types = ["plate"]
[[board]]
id = "league"
union = ["cup", "plate"]
[[board]]
id = "podium"
union = ["cup", "plate"]
weights = [2, 1]
max_members = 1
[[board]]
id = "seconds"
types = ["like"]
window = { sliding = "1h" }
[[board]]
id = "days"
types = ["like"]
window = { calendar = "day", timezone = "UTC", grace = "30d" }
[[board]]
id = "best"
types = ["like"]
window = "forever"
operator = "best"
cap = 3
[[board]]
id = "table"
types = ["match"]
window = "forever"
score = [{ field = "points", max = 99 }, { field = "goals", min = -9, max = 9 }]
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, registered = true, closes = 2020-01-01T00:00:00Z }
"""
TABLE: Final = '\ufeffScore,member,rank,title\n70,Ann,1,Ann of the North\n\n5,\'=b,2,\n-3,"c,d",3,\n'
SCORES: Final = {"Ann": 70, "=b": 5, "c,d": -3}


@asynccontextmanager
async def answering(replies: bytes) -> AsyncIterator[str]:
    """A server that gives one prepared answer after another, whatever it is asked. Yields its URL."""
    left = replies.split(b"\r\n")[:-1]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(4096):
            for _ in range(asked.count(b"CLIENT")):  # redis-py tells its name and version first
                writer.write(b"+OK\r\n")
            if b"CLIENT" not in asked:
                writer.write((left.pop(0) if left else b"+OK") + b"\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Place:
    """A server with boards of every kind, and the command `live import` beside it."""

    def __init__(self, settings: Settings, folder: Path, client: httpx.AsyncClient, boards: str = BOARDS) -> None:
        file = folder / "boards.toml"
        file.write_text(boards, encoding="utf-8")
        self.client = client
        self._folder = folder
        self._environment = as_environment(msgspec.structs.replace(settings, boards=file))

    async def table(self, board: str, text: str | bytes, status: int = 0) -> dict[str, Any]:
        """Import a table into a board."""
        path = self._folder / "scores.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return await self.command(board, "--csv", str(path), status=status)

    async def command(self, *words: str, status: int = 0) -> dict[str, Any]:
        """Return the result of `live import`, or its message if it prints no result."""
        ended = await asyncio.to_thread(run_command, "import", "--json", *words, **self._environment)
        assert ended.returncode == status, (words, ended.stdout, ended.stderr)
        return json.loads(ended.stdout) if ended.stdout else {"message": ended.stderr}

    async def run(self, *words: str) -> str:
        """Run another command, and return its output."""
        ended = await asyncio.to_thread(run_command, *words, **self._environment)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout

    async def is_exported(self, board: str, rows: int) -> bool:
        """Return whether an export has this number of records. The export is in `out.csv`."""
        words = ("export", board, "--output", str(self._folder / "out.csv"), "--json")
        ended = await asyncio.to_thread(run_command, *words, **self._environment)
        return not ended.returncode and json.loads(ended.stdout)["rows"] == rows

    async def holds(self, board: str, expected: dict[str, int], **query: str) -> None:
        """Wait until the server has read these records, best first."""

        async def is_read() -> bool:
            records = (await self.client.get(f"/v1/boards/{board}", params=query)).json()["records"]
            return [(one["key"], one["score"]) for one in records] == list(expected.items())

        await eventually(is_read)

    async def is_titled(self) -> bool:
        """Whether the server shows the title of Ann."""
        return bool((await self.client.get("/v1/items/Ann")).json().get("title") == "Ann of the North")

    async def is_explained(self, board: str, reasons: list[str | None]) -> bool:
        """Return whether the journal has changes of Ann with these reasons, newest first."""
        answer = await self.client.get(f"/v1/boards/{board}/records/Ann/explanation")
        return [change.get("reason") for change in answer.json().get("changes", ())] == reasons


async def names_a_member_twice(place: Place) -> None:
    """Import tables that name a member twice: only the first line counts, so a second import changes nothing."""
    for changed in (1, 0):
        found = await place.table("posts", "member,score\nAnn,2\nAnn,1\n", status=1)
        assert (found["changed"], found["unchanged"]) == (changed, 1 - changed)
        assert [(one["line"], one["member"]) for one in found["refusals"]] == [(3, "Ann")]
    await place.holds("posts", {"=b": 5, "Ann": 2, "c,d": -3})
    found = await place.table("posts", "member,score\nEve,0\n")
    assert (found["changed"], found["unchanged"], found["absent"]) == (0, 0, 1)
    await place.holds("posts", {"=b": 5, "Ann": 2, "c,d": -3})


async def test_an_import_twice_is_the_same_as_once(valkey_url: str, tmp_path: Path) -> None:
    """An import can be repeated on boards of every kind, with hidden members.

    The journal has the reason, and agrees with the store.
    """
    await until_early("day")
    settings = fresh_settings(valkey_url, anonymous_admin=True, journal="sqlite")
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        await client.post("/v1/events", json=[{"key": "Ann", "amount": 9}, {"key": "=b", "amount": 5}])
        await client.patch("/v1/boards/posts/records/Ann", json={"hidden": True})
        for board in ("posts", "seconds", "days", "best"):
            done = await place.table(board, TABLE)
            assert (done["changed"], done["unchanged"], done["refused"]) == (2, 1, 0), board
            again = await place.table(board, TABLE)
            assert (again["changed"], again["titles"], again["unchanged"]) == (0, 0, 3)
            await client.patch("/v1/boards/posts/records/Ann", json={"hidden": False})
            await place.holds(board, SCORES)
        await place.holds("all", {key: score * 3 for key, score in SCORES.items()})
        await eventually(place.is_titled)
        await names_a_member_twice(place)
        await place.table("days", "member,score,time\nAnn,4,2026-01-01T12:00:00Z\n", status=1)
        yesterday = (await client.get("/v1/boards/days")).json()["period_start"]
        dated = await place.table("days", f"member,score,time\nAnn,4,{yesterday}\n")
        assert dated["changed"] == 1
        await place.holds("days", {"=b": 5, "Ann": 4, "c,d": -3})
        late, early = datetime.now(UTC), datetime.now(UTC) - timedelta(minutes=1)
        await place.table("photos", f"member,score,time\nEve,4,{late.isoformat()}\nDan,4,{early.isoformat()}\n")
        await place.holds("photos", {"Dan": 4, "Eve": 4})
        await place.holds("all", {"=b": 15, "Ann": 6, "Dan": 4, "Eve": 4, "c,d": -9})
        (await client.put("/v1/boards/contest/records/Ann", json={})).raise_for_status()
        entered = await place.table("contest", TABLE, status=1)
        assert (entered["changed"], [one["line"] for one in entered["refusals"]]) == (1, [4, 5])
        await place.holds("contest", {"Ann": 70})

        assert "no drift" in await place.run("check")
        acts = json.loads(await place.run("trail", "--json"))["trail"]
        assert {act["what"] for act in acts} == {"begun", "imported", "hidden", "shown", "registered"}
        await eventually(partial(place.is_explained, "best", ["import of scores.csv", None]))


async def test_commands_move_entries_to_sql_while_no_server_runs(valkey_url: str, tmp_path: Path) -> None:
    """Each change waits until SQL has it. Without a server, the command itself moves it there."""
    settings = fresh_settings(valkey_url, journal="sqlite", journal_ack=True)
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
    done = await asyncio.wait_for(place.table("posts", "member,score\nAnn,4\nBob,3\n"), 30)
    assert done["changed"] == 2
    await asyncio.wait_for(place.run("merge", "Ann", "Bob", "--yes"), 30)
    assert "no drift" in await place.run("check", "--board", "posts")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_a_table_of_a_spreadsheet_is_read(valkey_url: str, tmp_path: Path, separator: str, encoding: str) -> None:
    """Spreadsheets divide cells by commas, semicolons or tabs, and write UTF-8 or UTF-16."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        rows = (("Member", " score "), ("Zoë, B.", "7"), ("łódź", "5"))
        text = "\r\n".join(separator.join(f'"{cell}"' for cell in row) for row in rows) + "\r\n"
        found = await place.table("posts", text.encode(encoding))
        assert (found["changed"], found["refused"]) == (2, 0)
        await place.holds("posts", {"Zoë, B.": 7, "łódź": 5})
        assert (await place.table("posts", text.encode(encoding)))["unchanged"] == 2


async def test_a_column_for_each_field_is_read(valkey_url: str, tmp_path: Path) -> None:
    """An export can be imported again. Each field is checked."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        table = "points,goals,member\n7,-3,Ann\n9,,Bob\n1,x,Cy\n100,1,Dee\n,10,Eve\n"
        for changed in (2, 0):
            found = await place.table("table", table, status=1)
            assert (found["changed"], found["unchanged"]) == (changed, 2 - changed)
        assert [(one["member"], one["reason"]) for one in found["refusals"]] == [
            ("Cy", "goals 'x' is not a whole number within ±2^53"),
            ("Dee", "points is not a whole number from -99 to 99"),
            ("Eve", "the score of the member would leave the range in which it is exact, or a field its bounds"),
        ]
        records = (await client.get("/v1/boards/table")).json()["records"]
        assert [(one["key"], one["fields"]) for one in records] == [
            ("Bob", {"points": 9, "goals": 0}), ("Ann", {"points": 7, "goals": -3}),
        ]  # fmt: skip

        async def is_exported() -> bool:
            return await place.is_exported("table", 2)

        await eventually(is_exported)
        found = await place.table("table", (tmp_path / "out.csv").read_bytes())
        assert (found["changed"], found["unchanged"]) == (0, 2)
        found = await place.table("table", "member,punkte\nAnn,7\n", status=2)
        assert "names 'member, punkte'; it must name the column score or points or goals" in found["message"]


async def test_refused_lines_are_named(valkey_url: str, tmp_path: Path) -> None:
    """The report has the numbers of refused lines. Other lines count, and lines of any length take little memory."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        lines = [
            b"member,score,time,title", b"a,1.5,,", b"a,9007199254740993,,", b",1,,", b"a\xff,1,,",
            b"x" * (MOST_LINE + 5), b'"a,1,,', b"a,1,,,,", b"a,1,noon,", b"a,1,2026-11-22T12:00:00,",
            "a,1,,\u202e".encode(), b"a,1,2001-01-01T00:00:00Z,", b"a,9007199254740992,,", b"ok,1.0,,", b"ok2,+2",
        ]  # fmt: skip
        found = await place.table("posts", b"\r\n".join(lines), status=1)
        assert sorted(one["line"] for one in found["refusals"]) == list(range(2, 14))
        await place.holds("posts", {"ok2": 2, "ok": 1})
        found = await place.table("small", "member,score\na,4\nb,3\nc,2\na,9007199254740992\nd,1\n", status=1)
        assert sorted((one["line"], one["member"]) for one in found["refusals"]) == [(4, "c"), (5, "a"), (6, "d")]
        await place.holds("small", {"a": 4, "b": 3})
        found = await place.table("posts", b"member,score\n" + b"a,x\n" * 300, status=1)
        assert (found["refused"], len(found["refusals"])) == (300, MOST_NAMED)
        for text in ("", "a,1\n", "key,score\na,1\n", "score\n1\n", '"member,score\n'):
            assert "the first line is" in (await place.table("posts", text, status=2))["message"]
        for header in ("member,score,Score", "member,score,member", "member,score,time,time"):
            message = (await place.table("posts", f"{header}\na,1,2,3\n", status=2))["message"]
            assert "the first line names the column" in message
        messages = [
            (("all", "--csv", "scores.csv"), "can't read scores.csv"),
            (("all", "--csv", str(tmp_path / "scores.csv")), "the board is a union"),
            (("post", "--csv", str(tmp_path / "scores.csv")), "did you mean `posts`"),
            (("posts",), "give either --csv or --redis-key"),
        ]
        for words, why in messages:
            status = 1 if "did you" in why else 2
            assert why in (await place.command(*words, status=status))["message"]


async def test_a_sorted_set_is_imported(valkey_url: str, tmp_path: Path) -> None:
    """The set may have any size, and its scores stay exact. The store that has the set is not changed."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    key = f"{settings.key_prefix}-other"
    async with aclosing(connect(valkey_url, settings)) as store, serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        members = {f"m{number}": number + 1 for number in range(8500)} | {"most": 10**12}
        # One ZSCAN returns all members of a listpack.
        await store.call(key, "CONFIG", "SET", "zset-max-listpack-entries", "9000")
        pairs = [word for name, score in members.items() for word in (str(score), name)]
        # Adding to such a long listpack is slow: a single ZADD of all members may take seconds.
        for first in range(0, len(pairs), 1000):
            await store.call(key, "ZADD", key, *pairs[first : first + 1000])
        found = await place.command("photos", "--redis-key", key, "--redis", valkey_url)
        assert (found["changed"], found["refused"]) == (len(members), 0)
        page = (await client.get("/v1/boards/photos?limit=1")).json()
        await store.call(key, "CONFIG", "SET", "zset-max-listpack-entries", "128")
        assert (page["rank_count"], page["total_score"]) == (len(members), sum(members.values()))
        await store.call(key, "ZADD", key, "1.5", "half", "3", b"\xff", "-7", "m1")
        found = await place.command("photos", "--redis-key", key, "--redis", valkey_url, status=1)
        assert (found["changed"], found["unchanged"], found["refused"]) == (1, len(members) - 1, 2)
        await place.holds("photos", {"m0": 1, "m1": -7}, start="8499")
        alike = {"Ann": 5, "An n": 4, "A nn": 3, "'=x": 2, "=x": 1}
        pairs = [word for name, score in alike.items() for word in (str(score), name)]
        await store.call(f"{key}3", "ZADD", f"{key}3", *pairs)
        await place.command("posts", "--redis-key", f"{key}3", "--redis", valkey_url)
        await eventually(partial(place.is_exported, "posts", len(alike)))
        await place.command("days", "--csv", str(tmp_path / "out.csv"))  # importing the exported table changes nothing
        await place.holds("days", alike)
        await store.call(f"{key}2", "SET", f"{key}2", "x")
        for replies in (b"+zset\r\n:1\r\n:5\r\n", b"+zset\r\n:1\r\n+5\r\n", b":5\r\n", b"+zset\r\n+x\r\n"):
            async with answering(replies) as url:
                strange = await place.command("posts", "--redis-key", "a", "--redis", url, status=2)
            assert "gives answers that no Redis gives" in strange["message"]
        for name, url, status, why in (
            ("none", valkey_url, 1, "has no key 'none'"),
            (f"{key}2", valkey_url, 2, "is not a sorted set but a string"),
            ("a", "redis://:secret@127.0.0.1:1", 2, "can't read redis://127.0.0.1:1"),
            ("a", "http://x", 2, "expected redis://"),
        ):
            found = await place.command("posts", "--redis-key", name, "--redis", url, status=status)
            message = found["message"]
            assert why in message
            assert "secret" not in message
        await store.call(key, "DEL", key, f"{key}2", f"{key}3")


@pytest.mark.parametrize("order", ["desc", "asc"])
@pytest.mark.parametrize("ties", ["first", "last", "key"])
async def test_equal_scores_of_a_sorted_set_keep_their_order(
    valkey_url: str, tmp_path: Path, order: str, ties: str
) -> None:
    """A time in the last digits of a score decides among equal scores.

    If the board decides by name, the result says so.
    """
    definition = f'[[board]]\nid = "game"\nwindow = "forever"\nsort_order = "{order}"\nties = "{ties}"\n'
    settings = fresh_settings(valkey_url, journal="sqlite")
    key = f"{settings.key_prefix}-times"
    made = random.Random(7)
    members = {f"m{i}": made.randrange(3, 6) * 10**10 + made.randrange(4) for i in range(60)}
    async with aclosing(connect(valkey_url, settings)) as store, serving(settings, *parse_boards(definition)) as client:
        place = Place(settings, tmp_path, client, definition)
        await store.call(key, "ZADD", key, *(word for name, score in members.items() for word in (str(score), name)))
        shown = await store.call(key, "ZREVRANGE" if order == "desc" else "ZRANGE", key, 0, -1)
        words = ("game", "--redis-key", key, "--redis", valkey_url, "--divide", "10000000000", "--round", "down")
        found = await place.command(*words)
        assert (found["changed"], found["refused"]) == (60, 0)
        page = (await client.get("/v1/boards/game?limit=100")).json()
        names = [record["key"] for record in page["records"]]
        assert {record["key"]: record["score"] for record in page["records"]} == {
            name: score // 10**10 for name, score in members.items()
        }
        if ties == "key":
            assert found["reordered"] > 0
        else:
            assert names == [name.decode() for name in shown]
            assert found["reordered"] == 0
        again = await place.command(*words)
        assert (again["changed"], again["unchanged"]) == (0, 60)
        await store.call(key, "DEL", key)


async def test_scores_that_hold_a_time_are_noticed_first(valkey_url: str, tmp_path: Path) -> None:
    """The command changes nothing before it knows how to divide the scores."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    key = f"{settings.key_prefix}-times"
    async with aclosing(connect(valkey_url, settings)) as store, serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        await store.call(key, "ZADD", key, "51700000000000", "a", "-21700000000001.5", "b", "1e300", "c")
        words = ("posts", "--redis-key", key, "--redis", valkey_url)
        message = (await place.command(*words, status=2))["message"]
        assert "--divide 10000000000" in message.replace("\n", " ")
        await place.holds("posts", {})
        for rounding, scores in (("down", {"a": 5, "b": -3}), ("up", {"a": 6, "b": -2})):
            found = await place.command(*words, "--divide", "10000000000000", "--round", rounding, status=1)
            assert [one["member"] for one in found["refusals"]] == ["c"]
            await place.holds("posts", scores)
        found = await place.command("best", *words[1:], "--divide", "1", status=1)
        assert (found["changed"], [one["member"] for one in found["refusals"]]) == (1, ["c", "b"])
        for more, why in ((("--round", "near"), "is not one of down, up"), (("--divide", "0"), "--divide")):
            assert why in (await place.command(*words, *more, status=2))["message"]
        table = ("posts", "--csv", str(tmp_path / "none.csv"), "--round", "down")
        assert "add --redis-key" in (await place.command(*table, status=2))["message"]
        await store.call(key, "DEL", key)


async def test_a_union_that_refuses_lacks_nothing(valkey_url: str, tmp_path: Path) -> None:
    """The line is refused as a whole: what the board and other unions had counted of the line is taken back."""
    settings = fresh_settings(valkey_url, anonymous_admin=True, journal="sqlite")
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        found = await place.table("cup", "member,score\na,4\nb,3\n", status=1)
        assert (found["changed"], [one["member"] for one in found["refusals"]]) == (1, ["b"])
        assert found["refusals"][0]["reason"].startswith("union podium: the board has its maximum number of members")
        await client.patch("/v1/boards/podium", json={"frozen": True})
        await place.holds("podium", {"a": 8})
        for board in ("cup", "league"):
            await place.holds(board, {"a": 4})
        assert "no drift" in await place.run("check")


async def test_a_union_follows_when_the_store_is_back(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the store stays away, a message says what the union lacks. A second import would not add it."""
    settings, failures = fresh_settings(valkey_url, journal="sqlite"), 2

    async def failing(writer: BoardWriter, corrections: list[Correction]) -> Any:
        nonlocal failures
        if writer.state.board.id == "league" and failures:
            failures -= 1
            raise JournalBehindError("behind") if failures else StoreUnavailableError("away")
        return await correct(writer, corrections)

    monkeypatch.setattr(import_scores, "correct", failing)
    async with serving(settings, *parse_boards(BOARDS)) as client:
        place = Place(settings, tmp_path, client)
        await place.table("cup", "member,score\na,4\n")
        await place.holds("league", {"a": 4})
        failures = 100
        monkeypatch.setattr(import_scores, "_PATIENCE", 0.1)
        found = await place.table("cup", "member,score\na,1\n", status=2)
        assert "behind. So board league may lack changes that a second import does not add: a -3" in found["message"]
        await place.holds("podium", {"a": 2})  # the other unions still receive the change
        assert [act["what"] for act in json.loads(await place.run("trail", "--json"))["trail"]] == [
            "begun", "imported", "begun",
        ]  # fmt: skip


async def test_a_busy_board_is_imported(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer changes one of many members each time the command has read them. No event of the producer is lost."""
    settings, loop = fresh_settings(valkey_url, journal="sqlite"), asyncio.get_running_loop()
    most = {"photos": 50, "all": 10}  # members that are read before the producer changes one
    async with serving(settings, *parse_boards(BOARDS)) as client:

        async def read_late(state: BoardState, members: Sequence[str]) -> Any:
            held = await read_held(state, members)
            if len(members) > most.get(state.board.id, len(members)):
                posting = client.post("/v1/events", json={"key": members[0], "type": "photo"})
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(posting, loop))
            return held

        monkeypatch.setattr(correction, "read_held", read_late)
        place = Place(settings, tmp_path, client)
        table = "member,score\n" + "".join(f"m{number},100\n" for number in range(200))
        assert (await place.table("photos", table))["changed"] == 200
        most.clear()
        assert "no drift" in await place.run("check")
        pages = [(await client.get(f"/v1/boards/{board}?limit=1")).json() for board in ("photos", "all")]
        # Events that came while the import changed the union are later than the new scores of the board, so they stay.
        assert pages[0]["total_score"] == pages[1]["total_score"] > 100 * 200
