"""When a checkpoint is due, and what it leaves out."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

import live.journal.upkeep.checkpoints
from live.domain.board import Board
from live.domain.window import Sliding
from live.journal.forgetting import forget_by
from live.journal.log.entries import Erase, Packed
from live.journal.log.timelines import open_timelines
from live.journal.schema import CHECKPOINT, SEGMENT
from live.journal.state.snapshot import Logged, Snapshot
from live.journal.upkeep.archive import keep_closed
from live.journal.upkeep.checkpoints import AGE, Due, due, keep, make, prune
from tests.harness.journaled import journaled
from tests.harness.plans import HOUR, SERVER, forever


def pruned(board: Board, **fields: Any) -> Snapshot:
    """The contents of a board in a checkpoint."""
    data = Snapshot(shape=board.shape.encode(), **fields)
    prune(data)
    return data


def test_slots_outside_the_window_are_left_out() -> None:
    """A slot that is exactly a window old still counts. Without a newest slot, nothing has left the window."""
    slots = {start * HOUR: {"a": 1} for start in (4, 5, 9)}
    assert pruned(SERVER, slots=slots, newest=9 * HOUR).slots.keys() == {5 * HOUR, 9 * HOUR}
    assert pruned(SERVER, slots=slots).slots == slots
    assert pruned(forever(), slots=slots, newest=9 * HOUR).slots == slots


def test_events_outside_a_sliding_window_are_left_out() -> None:
    """An event as old as the window has left it.

    The present is the time of the last entry or, by an event clock, the time of the newest event.
    """
    log = [Logged(time, 1, number, "a", 1) for number, time in enumerate((40_000, 40_001, 90_000))]
    window = Sliding(60)
    assert pruned(forever(window=window), log=log, time=100_000_999).log == log[1:]
    assert pruned(forever(window=window, clock="event"), log=log, time=1, latest=100_000).log == log[1:]
    assert pruned(forever(), log=log, time=900_000_000).log == log


def test_identities_are_kept_as_long_as_in_the_store() -> None:
    """The last batch says for how long. As long as no batch has said it, all are kept."""
    seen = {start: {b"x"} for start in (4_999, 5_000, 6_000)}
    assert pruned(forever(), seen=seen, span=60, kept=1_000).seen.keys() == {5_000, 6_000}
    assert pruned(forever(), seen=seen, span=60).seen == seen


async def test_a_checkpoint_is_due_after_a_day_or_many_bytes(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries must also have more bytes than the last checkpoint.

    A checkpoint is not stored if there is a later checkpoint.
    """
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(2):
            await board.like("a")
            await drainer.sweep()

        def work(connection: Any) -> list[Due | None]:
            (timeline,) = open_timelines(connection)
            began = connection.scalar(select(func.min(SEGMENT.c.began)))
            (one, two) = connection.execute(select(SEGMENT.c.id, func.length(SEGMENT.c.data))).all()
            found = [due(connection, timeline, began + AGE * 1_000_000 + late) for late in (0, 1)]
            for least in (one[1] + two[1], one[1] + two[1] - 1):
                monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", least)
                found.append(due(connection, timeline, began))
            monkeypatch.setattr(live.journal.upkeep.checkpoints, "LEAST", 0)
            for size in (two[1], two[1] - 1):
                connection.execute(CHECKPOINT.delete())
                keep(connection, Due(timeline, one[0]), Packed(0, bytes(size)), 1)
                found.append(due(connection, timeline, began))
            for segment, kept in ((one[0], 1), (two[0], 2), (two[0], 2), (one[0], 2)):
                keep(connection, Due(timeline, segment), Packed(0, b""), 1)
                assert connection.scalar(select(func.count()).select_from(CHECKPOINT)) == kept
            wanted = Due(timeline, two[0])
            assert found == [None, wanted] * 3
            return [due(connection, timeline, 2**60)]

        assert await board.databases[0].run(work) == [None], "a checkpoint is due although nothing follows the last one"


async def test_a_checkpoint_from_before_an_erasure_is_not_stored(valkey_url: str, tmp_path: Path) -> None:
    """Another process has read the entries before somebody was erased from them. Neither is an archived period."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()

        def work(connection: Any) -> list[int]:
            (timeline,) = open_timelines(connection)
            found = []
            for erases in (True, False):
                wanted = due(connection, timeline, 2**60)
                assert wanted is not None
                made = make(connection, wanted)
                if erases:
                    forget_by(connection, "posts", Erase(member="a"))
                    assert not keep_closed(connection, timeline, [], wanted.erasures)
                keep(connection, wanted, *made)
                found.append(connection.scalar(select(func.count()).select_from(CHECKPOINT)))
            return found

        assert await board.databases[0].run(work) == [0, 1]
