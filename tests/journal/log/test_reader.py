"""Which entries of a timeline are read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from live.journal.log.entries import Head
from live.journal.log.reader import after, before, contents_of, entries_after, entries_of, newest_segment
from live.journal.log.timelines import open_timelines
from live.journal.schema import SEGMENT
from live.journal.upkeep.checkpoints import Due, keep, make
from tests.harness.journaled import journaled


@pytest.mark.parametrize("rows", [1, 2, 100])
async def test_entries_are_read_from_one_segment_to_another(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """A segment that ends before a time or an offset is left out as a whole. The progress reaches the end."""
    monkeypatch.setattr("live.journal.log.reader._ROWS", rows)
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(3):
            await board.like("a")
            await drainer.sweep()

        def work(connection: Any) -> None:
            (timeline,) = open_timelines(connection)
            wanted = select(SEGMENT.c.id, SEGMENT.c.ended, SEGMENT.c.last, SEGMENT.c.entries).order_by(SEGMENT.c.id)
            first, second, third = connection.execute(wanted).all()

            def offsets(*given: Any, **named: Any) -> list[int]:
                return [head.offset for head, _ in entries_of(connection, timeline, *given, **named) if head.offset]

            assert offsets() == [1, 2, 3]
            assert offsets(first.id) == [2, 3]
            assert offsets(until=second.id) == [1, 2]
            assert (offsets(since=second.ended), offsets(since=second.ended + 1)) == ([2, 3], [3])
            assert (offsets(offset=second.last), offsets(offset=second.last + 1)) == ([2, 3], [3])
            steps: list[tuple[int, int]] = []
            assert offsets(0, lambda *step: steps.append(step)) == [1, 2, 3]
            total = first.entries + second.entries + third.entries
            assert (steps[-1], {of for _, of in steps}) == ((total, total), {total})
            assert newest_segment(connection, timeline) == third.id
            assert newest_segment(connection, msgspec.structs.replace(timeline, id=99)) == 0
            for after, found in ((second.id, [3]), (third.id, []), (third.id + 5, [])):
                newest, entries = entries_after(connection, timeline, after)
                assert (newest, [head.offset for head, _ in entries]) == (max(after, third.id), found)

        await board.databases[0].run(work)


async def test_the_contents_at_an_entry_follow_its_position(valkey_url: str, tmp_path: Path) -> None:
    """While the clock of a board stands still, entries and the checkpoints after them have the same time."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(3):
            await board.like("a")
            await drainer.sweep()

        def work(connection: Any) -> None:
            (timeline,) = open_timelines(connection)
            heads = [head for head, _ in entries_of(connection, timeline)]
            segments = connection.scalars(select(SEGMENT.c.id).order_by(SEGMENT.c.id)).all()
            for offset, time in ((1, heads[0].time), (3, heads[0].time)):
                wanted = Due(timeline, segments[offset - 1])
                made, _ = make(connection, wanted)
                keep(connection, wanted, made, time)
            for head in heads:
                data = contents_of(connection, timeline, after(head.link))
                assert data.link == head.link

        await board.databases[0].run(work)


def test_an_entry_counts_before_a_time_by_the_clock_of_its_board() -> None:
    """With `clock = "event"`, only the times of events count, and a batch may have no times."""

    def head(kind: str, time: int) -> Head:
        return Head(kind, 0, "1-0", time, "", "")

    assert [before(5)(head("hide", time), b"") for time in (4999, 5000)] == [False, True]
    for latest, stops in ((4, False), (5, True), (None, False)):
        body = msgspec.msgpack.encode({"latest": latest})
        assert before(5, "event")(head("add", 9999), body) is stops
        assert not before(5, "event")(head("hide", 9999), body)
