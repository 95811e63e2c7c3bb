"""Which timeline of a board shows a time."""

from pathlib import Path

import pytest
from sqlalchemy import Connection

from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal.log.timelines import Timeline
from live.journal.past.coverage import Coverage, since_of, timeline_at
from live.journal.past.history import scores_at_all
from live.journal.past.queries import NoPastError
from tests.harness.journaled import journaled

FIRST, SECOND = Timeline(1, "b", "e"), Timeline(2, "b", "f")
REACHES = [Coverage(SECOND, 100, 120, 120), Coverage(FIRST, 10, 10, 10)]


@pytest.mark.parametrize(
    ("at", "found"),
    [(9, None), (10, FIRST), (99, FIRST), (100, 120), (119, 120), (120, SECOND), (150, SECOND)],
)
def test_a_time_is_shown_or_refused_with_the_next_one_that_is(at: int, found: Timeline | int | None) -> None:
    """Before the board began, no timeline is found. A time whose entries are missing or were deleted is refused."""
    if isinstance(found, int):
        with pytest.raises(NoPastError) as refused:
            timeline_at(REACHES, at)
        assert refused.value.since == found
    else:
        assert timeline_at(REACHES, at) == found


def test_the_first_covered_time_is_that_of_the_oldest_entry() -> None:
    """A board without entries covers no time."""
    assert (since_of(REACHES), since_of([])) == (10, None)


async def test_a_time_of_missing_entries_of_an_event_clock_is_refused(valkey_url: str, tmp_path: Path) -> None:
    """The board has the lost events, but nobody knows which of them came before that time."""
    (board,) = parse_boards('[[board]]\nid = "posts"\nclock = "event"\nwindow = "forever"')
    begin = 1_700_000_000_000

    async with journaled(valkey_url, tmp_path, board) as made:
        drainer = await made.drainer()

        async def count(seconds: range) -> None:
            for second in seconds:
                await made.ledger.writer.add([make_entry("a", 1, begin + second * 1000)])

        async def score(at: int) -> int:
            """The score that a request gets for a time in seconds."""

            def read(connection: Connection) -> int:
                times = [begin + at * 1000]
                ((_, scores),) = scores_at_all(connection, made.settings.key_prefix, board, None, times)
                return scores.scores["a"]

            return await made.databases[0].run(read)

        await count(range(1, 11))
        await drainer.sweep()
        await count(range(11, 21))
        await made.client.xtrim(made.ledger.state.journal, maxlen=0, approximate=False)
        await count(range(21, 31))
        await drainer.sweep()
        assert await made.begun_again() == 1
        assert [await score(at) for at in (5, 10)] == [4, 9]
        for at in (11, 15, 18, 21, 24, 30):
            with pytest.raises(NoPastError) as refused:
                await score(at)
            assert refused.value.since == begin + 30_001
        await count(range(31, 34))
        await drainer.sweep()
        assert [await score(at) for at in (31, 33, 34)] == [30, 32, 33]
