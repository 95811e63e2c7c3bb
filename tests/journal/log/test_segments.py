"""Entries as a segment of a timeline, and the timelines in SQL."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert

from live.journal.database import Database
from live.journal.erasures import member_digest
from live.journal.log.entries import Erase, read_entries_of
from live.journal.log.timelines import Gap, Timeline, find_parent, find_timeline, segment_of
from live.journal.past import worker
from live.journal.schema import LIFE, SEGMENT
from live.store.board.journal_stream import Entry
from tests.harness.settings import fresh_settings

FIRST, SECOND = "1-0 1000 w 1", "2-0 2000 w 2"  # links


@pytest.mark.parametrize(("named", "gaps"), [(SECOND, []), (FIRST, [Gap(SECOND, FIRST, 3000)])])
def test_an_entry_that_begins_again_names_the_one_before_it(named: str, gaps: list[Gap]) -> None:
    """If an `adopt` entry names another entry than the last one, the entries between them are missing."""
    heads = [
        "add 10 1-0 1000 w 1 0-0 0 - 0",
        f"add 20 2-0 2000 w 2 {FIRST}",
        f"adopt 30 2-1 3000 - 0 {named}",
    ]
    entries = [Entry(head.split(" ")[2], head, msgspec.msgpack.encode({})) for head in heads]
    assert segment_of(Timeline(1, "posts", "e"), entries).gaps == gaps


def test_a_segment_forgets_a_member_before_its_erasure() -> None:
    """Entries after the erasure may name the member again. The erasure is part of the segment, with its time."""
    erase = Erase(key=bytes(16), digests=[], member=member_digest(bytes(16), "b"))
    bodies: list[tuple[str, object]] = [
        ("add", {"groups": [{"members": ["a", "b"], "amounts": [1, 2]}]}), ("hide", {"member": "a"}),
        ("forget", erase), ("hide", {"member": "b"}), ("add", {"groups": []}),
    ]  # fmt: skip
    entries = [
        Entry(f"{number}-0", f"{kind} 9 {number}-0 {number}000 w {number} {FIRST}", msgspec.msgpack.encode(body))
        for number, (kind, body) in enumerate(bodies, 2)
    ]
    segment = segment_of(Timeline(1, "posts", "e"), entries)
    packed = [msgspec.msgpack.decode(body) for _, body in read_entries_of(segment.packed)]
    assert packed[0]["groups"] == [{"members": ["a", ""], "amounts": [1, 0]}]
    assert packed[1:] == [msgspec.msgpack.decode(entry.content) for entry in entries[1:]]
    assert segment.erased == [(4000, erase)]
    assert (segment.entries, segment.after.drained, segment.after.link) == (5, "6-0", "6-0 6000 w 6")


def test_a_timeline_continues_one_of_its_own_key_prefix(tmp_path: Path) -> None:
    """The board may have had another id. Before SQL knows a timeline, nothing of it was drained."""
    settings = fresh_settings("", journal="sqlite", data_dir=tmp_path)
    own = settings.key_prefix
    lives = [("other", "old", "e1"), (own, "old", "e1"), (own, "posts", "e2")]
    rows = [
        {"prefix": prefix, "board": board, "epoch": epoch, "began": 0, "drained": "1-0", "link": "", "size": 1}
        for prefix, board, epoch in lives
    ]
    with Database("sqlite", tmp_path, own, writes=True) as database:
        assert database.take_now()
        database.work(lambda connection: connection.execute(insert(LIFE), rows))
        segments = [
            {"life": life, "first": 1, "last": 1, "began": 0, "ended": ended, "entries": 1, "crc": 0, "data": b""}
            for life, ended in ((3, 5000), (3, 7000), (2, 9000))
        ]
        database.work(lambda connection: connection.execute(insert(SEGMENT), segments))
        newest = database.work(lambda connection: find_timeline(connection, own, "posts", "e2"))
        assert newest is not None
        parent = database.work(lambda connection: find_parent(connection, newest, own, "e1"))
        assert parent is not None
        assert (parent.id, parent.board) == (2, "old")
        assert database.work(lambda connection: find_parent(connection, newest, own, "e3")) is None
        assert worker.drained(settings, "posts", "e2") == ((1, 0), 7000)
        assert worker.drained(settings, "posts", "e3") == ((0, 0), 0)
        worker.database_of(settings).close()
        worker._DATABASES.clear()
