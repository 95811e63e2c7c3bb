"""The journal gives the exact ranking at any time that its events cover, even if events arrive late."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pytest
from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.choices import ClockKind
from live.domain.event import make_entry
from live.domain.packing import Field
from live.journal.database import existing_journal
from live.journal.log import reader
from live.journal.log.reader import Stop
from live.journal.log.timelines import Timeline
from live.journal.past.history import read_history
from live.journal.past.queries import AsOf, NoPastError, Step, TooLongError
from live.journal.past.rankings import explain_record, find_record, read_ranking, read_reach
from live.journal.upkeep.checkpoints import due, keep, make
from live.journal.upkeep.compactor import forget_entries
from live.store.board.ledger import Ledger
from live.store.board.write.merging import put_move, read_move
from tests.harness.boards import changed
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.timeline import BEGIN, HOUR, KINDS, RecordedBoard, board_of, live_through, past_is_exact, timeline
from tests.maintenance.test_rules import NOON, count, rule
from tests.maintenance.test_rules import board_of as rules_of

FAR: Final = 2**60  # microseconds
_T = TypeVar("_T")


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


def reading(line: RecordedBoard, work: Callable[..., _T], *given: object) -> _T:
    """Read the past as another process reads it."""
    with existing_journal(line.settings, writes=False) as database:
        return database.work(work, *given)


async def forget_events(line: RecordedBoard) -> None:
    """Make a checkpoint, and delete all entries before it."""

    def work(connection: Connection, timeline: Timeline) -> None:
        wanted = due(connection, timeline, FAR)
        assert wanted is not None
        keep(connection, wanted, *make(connection, wanted))
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
        assert reading(line, read_ranking, moment, 0, 100).count
        await forget_events(line)
        moment = msgspec.structs.replace(moment, at=moment.at + 1)
        for work in (
            lambda: reading(line, read_ranking, moment, 0, 100),
            lambda: reading(line, explain_record, moment, "a"),
            lambda: reading(line, read_history, board, line.ledger.state.epoch or "", frozenset(), ["a"], [moment.at]),
        ):
            with pytest.raises(NoPastError) as refused:
                work()
            assert refused.value.since is not None
            assert refused.value.since > moment.at
        found = reading(line, read_ranking, msgspec.structs.replace(moment, at=refused.value.since), 0, 100)
        assert found.ranking.epoch
        for _ in range(2):
            reach = reading(
                line, read_reach, board, line.ledger.state.epoch or "", [moment.at, refused.value.since or 0]
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
            found = reading(line, find_record, moment, member, 1)
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
            reading(line, read_ranking, moment, 0, 9)
            kept.append([key[4] for key in held])
        first, second, last = (moment.at for moment in moments)
        assert kept == [[first], [first, second], [first, second], [second, last], [last, first]]
        for moment, amounts in ((moments[2], [5, 4, 3]), (moments[1], [2, 1])):
            found = reading(line, explain_record, moment, "a")
            assert [change.amount for change in found.changes] == amounts
            assert found.score == sum(range(amounts[0] + 1))


async def test_a_ranking_in_memory_is_of_one_definition(valkey_url: str, tmp_path: Path) -> None:
    """Another order leaves the contents of a board without ties by time as they are."""
    async with timeline(valkey_url, tmp_path, board_of("rolling by name")) as line:
        await line.count(("a", 3, None), ("b", 2, None))
        await (await line.drainer()).sweep()
        for board, members in ((line.board, ["a", "b"]), (changed(line.board, sort_order="asc"), ["b", "a"])):
            moment = AsOf(board, None, (BEGIN + 60) * 1000, None, frozenset())
            assert list(reading(line, read_ranking, moment, 0, 9).ranking.members) == members


async def test_a_history_has_a_size_limit(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is steps times members. A refusal says how many steps would be allowed."""
    async with timeline(valkey_url, tmp_path, board_of("rolling")) as line:
        drainer = await line.drainer()
        await line.count(("a", 1, None), ("b", 2, None), ("c", 3, None))
        await drainer.sweep()
        times = [(BEGIN + seconds) * 1000 for seconds in (60, 120, 180)]
        monkeypatch.setattr("live.journal.past.history._MOST_SCORES", 9)
        (steps,) = reading(line, read_history, line.board, line.ledger.state.epoch or "", frozenset(), ["b"], times)
        assert steps == [Step(at, 2, 2) for at in times]
        monkeypatch.setattr("live.journal.past.history._MOST_SCORES", 8)
        with pytest.raises(TooLongError, match="the board has 3 members: a history of it may have at most 2 steps"):
            reading(line, read_history, line.board, line.ledger.state.epoch or "", frozenset(), ["b"], times)
        monkeypatch.setattr("live.journal.past.history._MOST_SCORES", 2)
        with pytest.raises(TooLongError, match="at most 1 step"):
            reading(line, read_history, line.board, line.ledger.state.epoch or "", frozenset(), ["b"], times)


@pytest.mark.parametrize("operator", ["best", "incr"])
async def test_an_explanation_packs_fields_by_the_rules_of_now(valkey_url: str, tmp_path: Path, operator: str) -> None:
    """The rules change twice. Where scores add up, a member was merged before."""
    goals, cards = Field(name="goals", high=99), Field(name="cards", sort_order="asc", high=9)
    wide = msgspec.structs.replace(cards, high=999)
    rules = [
        rules_of({"operator": operator, "window": "ever", "score": score})
        for score in ((goals, cards), (cards, goals), (goals, wide))
    ]
    async with journaled(valkey_url, tmp_path, rules[0]) as made:
        drainer, state = await made.drainer(), made.ledger.state

        async def send(board: Board, member: str, **fields: int) -> None:
            assert board.packing is not None
            await count(made.ledger, [make_entry(member, board.packing.pack(fields), NOON)])

        await send(rules[0], "a", goals=3, cards=1)
        expected = [{"goals": 3, "cards": 1}]
        if operator == "incr":
            await send(rules[0], "b", goals=5, cards=2)
            await put_move(made.ledger.writer, partial(read_move, state, ("b", "a"), "why"))
            expected.insert(0, {"goals": 5, "cards": 2})
        await rule(made, rules[1])
        made.ledger = Ledger(made.client, rules[1], made.settings)
        await send(rules[1], "a", goals=7, cards=4)
        expected.insert(0, {"goals": 7, "cards": 4})
        await rule(made, rules[2], rules[0])
        await drainer.sweep()
        moment = AsOf(rules[2], state.epoch, NOON + 1, None, frozenset())
        found = await made.databases[0].run(explain_record, moment, "a")
        assert rules[2].packing is not None
        assert [rules[2].packing.unpack(change.amount) for change in found.changes] == expected
