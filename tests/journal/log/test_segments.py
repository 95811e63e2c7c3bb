"""Entries as a segment of a timeline, and the timelines in SQL."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, func, insert, select

from live.journal.database import Database
from live.journal.erasures import member_digest
from live.journal.log.entries import Erase, Packed, unpack_entries
from live.journal.log.reader import entries_of
from live.journal.log.timelines import (
    ConflictError,
    Timeline,
    _what_is_missing,
    cut,
    find_parent,
    find_timeline,
    following,
    open_timelines,
    segment_of,
)
from live.journal.past import worker
from live.journal.schema import CHECKPOINT, LIFE, SEGMENT
from live.journal.upkeep.checkpoints import Due, keep
from live.store.board.journal_stream import Entry
from tests.harness.journaled import journaled
from tests.harness.settings import fresh_settings

FIRST, SECOND = "1-0 1000 w 1", "2-0 2000 w 2"  # links


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
    pairs = unpack_entries(segment.packed.crc, segment.packed.data)
    packed = [msgspec.msgpack.decode(body) for _, body in pairs]
    assert packed[0]["groups"] == [{"members": ["a", ""], "amounts": [1, 0]}]
    assert packed[1:] == [msgspec.msgpack.decode(entry.content) for entry in entries[1:]]
    assert segment.erased == [(4000, erase)]
    assert (segment.entries, segment.after.drained, segment.after.link) == (5, "6-0", "6-0 6000 w 6")


@pytest.mark.parametrize(
    ("offset", "journal", "waiting", "what"),
    [
        (5, None, None, ""),
        (4, None, None, "is at offset 4"),
        (5, "5-0 5 w 5 99", None, ""),
        (4, "4-0 4 w 4 99", None, "is at offset 4, with 4-0 as the last entry"),
        (5, "5-0 6 w 6 99", None, "is at offset 5, with 5-0 as the last entry"),
        (7, "7-0 7 w 7 99", "add 9 6-0 6 w 6 5-0 5 w 5", ""),
        (7, "7-0 7 w 7 99", "add 9 6-0 6 w 6 4-0 4 w 4", "has other events up to offset 7: the store went back"),
        (7, "7-0 7 w 7 99", "adopt 9 6-0 6 w 6 4-0 4 w 4", ""),
        (7, "7-0 7 w 7 99", "add 9 7-0 7 w 7 6-0 6 w 6", ""),
    ],
)
def test_a_loss_says_what_the_store_has_instead(
    offset: int, journal: str | None, waiting: str | None, what: str
) -> None:
    """The last entry in SQL is compared with the last entry in the store, and with the first entry that waits there."""
    timeline = Timeline(1, "posts", "e", "5-0", "5-0 5 w 5", 9)
    held = (None if text is None else text.encode() for text in (journal, waiting))
    assert _what_is_missing(timeline, offset, *held).partition(", and counted")[0] == what


def test_entries_follow_a_timeline_until_one_is_missing() -> None:
    """Only the first entry of a timeline may have the whole board, or continue another timeline."""

    def entries(*heads: str) -> list[Entry]:
        return [Entry(head.split(" ")[2], head, b"") for head in heads]

    some = entries(f"add 9 2-0 2 w 2 {FIRST}", "adopt 9 2-1 3 - 0 2-0 2 w 2", "adopt 9 5-0 5 - 0 4-0 4 w 4")
    timeline = Timeline(1, "posts", "e", "1-0", FIRST)
    assert following(timeline, some) == (some[:2], "4-0 4 w 4")
    assert following(timeline, some[:2]) == (some[:2], None)
    assert following(Timeline(1, "posts", "e"), some[2:]) == (some[2:], None)
    renewed = entries(f"renew 9 2-0 2000 - 0 {FIRST}")
    assert following(Timeline(1, "posts", "e"), renewed) == (renewed, None)
    assert following(Timeline(1, "posts", "e", "2-0", SECOND), renewed) == ([], FIRST)


async def test_a_timeline_is_cut_after_an_entry(valkey_url: str, tmp_path: Path) -> None:
    """The rest of its segment, later segments and their checkpoints are deleted. An outdated timeline is not cut."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(3):
            for _ in range(2):
                await board.like("a")
            await drainer.sweep()

        def work(connection: Connection) -> None:
            (timeline,) = open_timelines(connection, board.settings.key_prefix)
            links = [head.link for head, _ in entries_of(connection, timeline)]
            for segment in connection.scalars(select(SEGMENT.c.id)).all():
                keep(connection, Due(timeline, segment), Packed(0, b""), 1)
            with pytest.raises(ConflictError):
                cut(connection, timeline, "3-0 1 w 1")
            for left, segments, checkpoints in ((6, 3, 2), (5, 2, 2), (4, 2, 1), (3, 1, 1), (2, 1, 0)):
                after = cut(connection, timeline, links[left - 1])
                (now,) = open_timelines(connection, board.settings.key_prefix)
                assert now == after
                assert [head.link for head, _ in entries_of(connection, after)] == links[:left]
                rows = connection.execute(select(SEGMENT.c.last, SEGMENT.c.ended, SEGMENT.c.entries)).all()
                assert (len(rows), sum(row.entries for row in rows)) == (segments, left)
                assert f"{rows[-1].last}-0 {rows[-1].ended}" == " ".join(links[left - 1].split(" ")[:2])
                assert connection.scalar(select(func.count()).select_from(CHECKPOINT)) == checkpoints
                if left < 6:
                    with pytest.raises(ConflictError):
                        cut(connection, timeline, links[left - 2])
                timeline = after

        await board.databases[0].run(work)


def test_a_timeline_continues_one_of_its_own_key_prefix(tmp_path: Path) -> None:
    """The board may have had another id. Nothing was drained of a timeline that SQL does not know."""
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
