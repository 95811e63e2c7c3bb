"""Files of every format arrive complete, and rejected events are reported with their positions."""

import gzip
import os
from pathlib import Path

import pytest

from live.errors import SetupError
from live.send.run import SendOutcome
from tests.send.support import Event, many, scores, send, sums, write


@pytest.mark.parametrize("name", ["e.ndjson", "e.ndjson.gz", "e.csv", "e.csv.gz", "e.CSV", "e.log"])
async def test_a_file_of_every_format_is_sent(tmp_path: Path, url: str, name: str) -> None:
    """The name decides whether a file is NDJSON or CSV, and compressed.

    Members may contain commas, quotes and letters of any script.
    """
    events = [*many(2500), {"key": 'a,"b"', "amount": 5}, {"key": "你好", "amount": -2, "type": "like"}]
    outcome = await send(write(tmp_path / name, events), url)
    assert outcome == SendOutcome(sent=2502, accepted=2502)
    assert await scores(url) == sums(events)


async def test_empty_lines_and_files_are_skipped(tmp_path: Path, url: str) -> None:
    """The files have blank lines and line ends of Windows, or are empty."""
    path = tmp_path / "e.ndjson"
    path.write_bytes(b'\n{"key":"a"}\r\n   \r\n\r\n{"key":"b"}')
    assert await send(path, url) == SendOutcome(sent=2, accepted=2)
    for name in ("e.ndjson", "e.csv"):
        (tmp_path / name).write_bytes(b"")
        assert await send(tmp_path / name, url) == SendOutcome()


async def test_every_event_can_be_sent_to_one_board(tmp_path: Path, url: str) -> None:
    """The board and type of the events do not matter."""
    events: list[Event] = [{"key": "a", "time": "2015-05-17T10:00:00Z"}, {"key": "b", "board": "posts", "type": "x"}]
    path = write(tmp_path / "e.ndjson", [{**event, "time": "2015-05-17T10:00:00Z"} for event in events])
    assert (await send(path, url, board="log")).accepted == 2
    assert await scores(url, "log") == {"a": 1, "b": 1}
    assert await scores(url) == {}


async def test_rejected_events_are_summarized(tmp_path: Path, url: str) -> None:
    """The summary has the number of rejected events by code, and the positions of the first rejected events."""
    events: list[Event] = many(1005)
    events[3] = {"key": ""}
    events[1001] = {"key": "a", "type": "nothing"}
    events[1003] = {"likes": 1}
    events[1004] = {"key": ""}
    outcome = await send(write(tmp_path / "e.ndjson", events), url)
    assert (outcome.sent, outcome.accepted) == (1005, 1001)
    assert outcome.rejected == {"key_invalid": 2, "type_unknown": 1, "event_invalid": 1}
    assert [(example["event"], example["code"]) for example in outcome.examples] == [
        (3, "key_invalid"), (1001, "type_unknown"), (1003, "event_invalid")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        ("key,amount\na,1.5\nb,x\nc,\nd,-3\n", 2, {"event_invalid": 2}),
        ("key,likes\na,1\n", 0, {"event_invalid": 1}),
        ("key,amount\na,1,2,3\nb,1\n", 1, {"event_invalid": 1}),
        ("\ufeffkey\na\n", 1, {}),
        ('key\n"two\nlines"\n', 0, {"key_invalid": 1}),
        ("key,amount\na,99999999999999999999999\n", 0, {"event_invalid": 1}),
    ],
    ids=["no numbers", "unknown column", "too many cells", "byte order mark", "line in a cell", "long number"],
)
async def test_malformed_rows_of_a_table_are_rejected_one_by_one(
    tmp_path: Path, url: str, text: str, accepted: int, rejected: dict[str, int]
) -> None:
    """A file from a spreadsheet is read, and each row that is wrong is reported."""
    path = tmp_path / "e.csv"
    path.write_text(text, encoding="utf-8")
    outcome = await send(path, url)
    assert (outcome.accepted, outcome.rejected) == (accepted, rejected)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_a_table_of_a_spreadsheet_is_sent(tmp_path: Path, url: str, separator: str, encoding: str) -> None:
    """Spreadsheets divide cells by commas, semicolons or tabs, and write UTF-8 or UTF-16."""
    rows = (("Key", "Amount"), ("Zoë", "7"), ("łódź", "5"))
    path = tmp_path / "e.csv"
    path.write_bytes("\r\n".join(separator.join(row) for row in rows).encode(encoding))
    assert await send(path, url) == SendOutcome(sent=2, accepted=2)
    assert await scores(url) == {"Zoë": 7, "łódź": 5}


async def test_a_table_without_members_is_refused(tmp_path: Path, url: str) -> None:
    """The message shows what was found."""
    path = tmp_path / "e.csv"
    path.write_text("name;points\nAnn;3\n", encoding="utf-8")
    with pytest.raises(SetupError, match="the first line is 'name;points'; it must name the column key"):
        await send(path, url)


@pytest.mark.parametrize("board", [None, "posts"])
async def test_a_line_that_is_not_an_event_is_rejected(tmp_path: Path, url: str, board: str | None) -> None:
    """All other lines of the file are sent, whether the command names a board or not."""
    path = tmp_path / "e.ndjson"
    path.write_text('{"key":"a"}\n{"key":\n[]\n"x"\n{"key":"c"}\n')
    outcome = await send(path, url, board=board)
    assert (outcome.accepted, outcome.rejected) == (2, {"event_invalid": 3})


@pytest.mark.slow
async def test_an_unreadable_file_is_reported(tmp_path: Path, url: str) -> None:
    """The file is missing, a folder, invalid or truncated gzip, or invalid UTF-8."""
    packed = gzip.compress(os.urandom(5000).hex().encode())
    files = {"no.gz": b"text", "cut.gz": packed[:-20], "broken.gz": packed[:99] + b"\0" * 99 + packed[198:]}
    for name, data in {**files, "latin.csv": b"key\ncaf\xe9\n"}.items():
        (tmp_path / name).write_bytes(data)
    for name in (*files, "latin.csv", "missing.ndjson", ""):
        with pytest.raises(SetupError, match="can't read"):
            await send(tmp_path / name, url)
