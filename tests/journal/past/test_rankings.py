"""The journal gives the exact ranking at any time that its events cover, even if events arrive late."""

import random
from pathlib import Path
from typing import Final

import msgspec
import pytest
from sqlalchemy import Connection

from live.domain.board import ClockKind
from live.domain.board_file import parse_boards
from live.journal.log import reader
from live.journal.log.reader import Stop
from live.journal.log.timelines import Timeline
from live.journal.past.history import read_history
from live.journal.past.queries import AsOf, NoPastError, Step, TooLongError
from live.journal.past.rankings import explain_record, find_record, read_ranking, read_reach
from live.journal.upkeep.checkpoints import due, keep, make
from live.journal.upkeep.retention import forget_entries
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.timeline import BEGIN, HOUR, KINDS, RecordedBoard, board_of, live_through, past_is_exact, timeline

FAR: Final = 2**60  # microseconds


@pytest.mark.parametrize("kind", KINDS)
async def test_the_past_is_exact_at_every_hour(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """There are late and early events, hidden members and ties."""
    await past_is_exact(valkey_url, tmp_path, kind, random.SystemRandom().randrange(2**32))


async def late_event(line: RecordedBoard) -> None:
    """Count an event, and two hours later another event with the time of the first."""
    drainer = await line.drainer()
    first = line.now
    await line.count(("a", 1, None))
    await line.go(2 * HOUR)
    await line.count(("b", 5, first))
    await drainer.sweep()
    assert await line.in_one_pass([BEGIN + 2 * HOUR, BEGIN + 3 * HOUR]) == [[("a", 1)], [("b", 5), ("a", 1)]]


async def test_a_late_event_counts_from_its_arrival_on(valkey_url: str, tmp_path: Path) -> None:
    """The hours in between do not change."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        await late_event(line)


@pytest.mark.mutant
async def test_an_entry_that_counts_too_early_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """`late_event` fails if a ranking includes entries that were made exactly at its time."""
    right = reader.before

    def later(time: int, clock: ClockKind = "server") -> Stop:
        return right(time + 1, clock)

    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        with replaced(reader, "before", later), must_be_caught("an entry counts too early"):
            await late_event(line)


async def forget_events(line: RecordedBoard) -> None:
    """Make a checkpoint, and delete all entries before it."""

    def work(connection: Connection, timeline: Timeline) -> None:
        wanted = due(connection, timeline, FAR)
        assert wanted is not None
        keep(connection, wanted, *make(connection, line.settings.key_prefix, wanted))
        assert forget_entries(connection, timeline, FAR)

    await line.read(work)


@pytest.mark.parametrize(
    "choices",
    [
        'window = { rolling = "6h", slot = "1h" }',
        'window = { sliding = "2h" }',
        'window = "forever"\noperator = "best"',
        'window = { rolling = "4h", slot = "1h" }\nclock = "event"',
    ],
)
async def test_the_past_beyond_the_events_is_refused(valkey_url: str, tmp_path: Path, choices: str) -> None:
    """The refusal says since when the journal covers the board, also after more events.

    There is never a wrong answer.
    """
    (board,) = parse_boards(f'[[board]]\nid = "posts"\n{choices}')
    async with timeline(valkey_url, tmp_path, board) as line:
        await live_through(line, 7)
        moment = AsOf(board, None, (BEGIN + 3 * HOUR) * 1000, None, frozenset())
        assert read_ranking(line.settings, moment, 0, 100).count
        await forget_events(line)
        moment = msgspec.structs.replace(moment, at=moment.at + 1)
        for work in (
            lambda: read_ranking(line.settings, moment, 0, 100),
            lambda: explain_record(line.settings, moment, "a"),
            lambda: read_history(line.settings, board, line.ledger.state.epoch or "", frozenset(), ["a"], [moment.at]),
        ):
            with pytest.raises(NoPastError) as refused:
                work()
            assert refused.value.since is not None
            assert refused.value.since > moment.at
        found = read_ranking(line.settings, msgspec.structs.replace(moment, at=refused.value.since), 0, 100)
        assert found.ranking.epoch
        for _ in range(2):
            reach = read_reach(
                line.settings, board, line.ledger.state.epoch or "", [moment.at, refused.value.since or 0]
            )
            assert (reach.since, reach.covered) == (refused.value.since, [False, True])
            await line.count(("a", 1, line.now))
            await line.drainers[0].sweep()


async def test_a_member_without_a_record_has_no_neighbours(valkey_url: str, tmp_path: Path) -> None:
    """A member with a record has those around it."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        await line.count(("a", 3, None), ("b", 2, None), ("c", 1, None))
        await (await line.drainer()).sweep()
        moment = AsOf(line.board, None, (BEGIN + 60) * 1000, None, frozenset())
        for member, members, start in (("b", ["a", "b", "c"], 0), ("c", ["b", "c"], 1), ("x", [], 0)):
            found = find_record(line.settings, moment, member, 1)
            assert (list(found.ranking.members), found.count, found.start) == (members, 3, start)


async def test_a_few_rankings_and_changes_are_kept(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest ranking in memory is dropped first. An explanation names the newest changes up to its time."""
    held: dict[tuple[object, ...], object] = {}
    monkeypatch.setattr("live.journal.past.rankings._RANKINGS", held)
    monkeypatch.setattr("live.journal.past.rankings._KEPT", 2)
    monkeypatch.setattr("live.journal.past.rankings._CHANGES", 3)
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        drainer = await line.drainer()
        for amount in (1, 2, 3, 4, 5):
            await line.go(60)
            await line.count(("a", amount, None), ("b", 1, None))
            if amount % 2:
                await drainer.sweep()
        moments = [AsOf(line.board, None, (BEGIN + 60 * minute) * 1000 + 1, None, frozenset()) for minute in (1, 2, 5)]
        kept = []
        for moment in (moments[0], moments[1], moments[0], moments[2], moments[0]):
            read_ranking(line.settings, moment, 0, 9)
            kept.append([key[4] for key in held])
        first, second, last = (moment.at for moment in moments)
        assert kept == [[first], [first, second], [first, second], [second, last], [last, first]]
        for moment, amounts in ((moments[2], [5, 4, 3]), (moments[1], [2, 1])):
            found = explain_record(line.settings, moment, "a")
            assert [change.amount for change in found.changes] == amounts
            assert found.score == sum(range(amounts[0] + 1))


async def test_a_history_has_a_size_limit(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is steps times members. A refusal says how many steps would be allowed."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        drainer = await line.drainer()
        await line.count(("a", 1, None), ("b", 2, None), ("c", 3, None))
        await drainer.sweep()
        times = [(BEGIN + seconds) * 1000 for seconds in (60, 120, 180)]
        monkeypatch.setattr("live.journal.past.history._MOST_SCORES", 9)
        (steps,) = read_history(line.settings, line.board, line.ledger.state.epoch or "", frozenset(), ["b"], times)
        assert steps == [Step(at, 2, 2) for at in times]
        monkeypatch.setattr("live.journal.past.history._MOST_SCORES", 8)
        with pytest.raises(TooLongError, match="the board has 3 members: a history of it may have at most 2 steps"):
            read_history(line.settings, line.board, line.ledger.state.epoch or "", frozenset(), ["b"], times)
        monkeypatch.setattr("live.journal.past.history._MOST_SCORES", 2)
        with pytest.raises(TooLongError, match="at most 1 step"):
            read_history(line.settings, line.board, line.ledger.state.epoch or "", frozenset(), ["b"], times)
