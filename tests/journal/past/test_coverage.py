"""Which timeline of a board shows a time."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection

from live.boards.admin import BoardAdmin
from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal.log import reader
from live.journal.log.definitions import DefinitionLog
from live.journal.log.timelines import Timeline
from live.journal.past import coverage
from live.journal.past.coverage import Coverage, since_of, timeline_at
from live.journal.past.history import scores_at_all
from live.journal.past.queries import NoPastError
from live.journal.state.snapshot import Snapshot
from live.maintenance.recover import Wanted
from live.store.board.ledger import Ledger
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.maintenance.test_recover_again import lose, recovery_of
from tests.maintenance.test_rules import HOUR, NOON, board_of, count, past_of, rule
from tests.maintenance.test_set_back import moment

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
                ((_, scores),) = scores_at_all(connection, board, None, times)
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


async def recover_an_event_clock(store: str, folder: Path) -> None:
    """Lose the store twice between events, and read the past before and after each recovery."""
    board = board_of({})
    async with journaled(store, folder, board) as made:
        drainer, log = await made.drainer(), DefinitionLog(made.client, made.databases[0])
        for lives in range(1, 4):
            for number in range(2 * lives - 1, 2 * lives + 1):
                await made.ledger.writer.add([make_entry("a", number, NOON + number * HOUR // 2)])
            await drainer.sweep()
            await log.follow()
            found = [await past_of(made, board, NOON + number * HOUR // 2 + 1) for number in range(1, 2 * lives + 1)]
            assert found == [[("a", sum(range(number + 1)))] for number in range(1, 2 * lives + 1)]
            await lose(made)
            await recovery_of(made).recover(Wanted())
            made.ledger = Ledger(made.client, board, made.settings)
            await made.ledger.state.open()


async def test_the_past_of_an_event_clock_outlives_recoveries(valkey_url: str, tmp_path: Path) -> None:
    """Each timeline shows the times after the newest event that it began with."""
    await recover_an_event_clock(valkey_url, tmp_path)


@pytest.mark.mutant
async def test_a_recovered_board_that_hides_its_past_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, a timeline that begins with a recovery shows all times."""
    with must_be_caught("a recovery changes the past"), replaced(coverage, "contents_of_parent", lambda *_: Snapshot()):
        await recover_an_event_clock(valkey_url, tmp_path)


CHANGES: Final[list[dict[str, Any]]] = [{"window": "days"}, {"window": "8h"}, {"ties": "first"}]
PATCHES: Final = {"days": {"rolling": None, "slot": None, "calendar": "day", "keep": 6}, "8h": {"rolling": "8h"}}


async def change_rules_after_a_recovery(store: str, folder: Path, choices: dict[str, Any]) -> None:
    """Change the rules of a recovered board, lose it again, and read its past before all that."""
    old, new = board_of({"clock": "server"}), board_of({"clock": "server"} | choices)
    async with journaled(store, folder, old) as made:

        async def recover(board: Board) -> None:
            await (await made.drainer()).sweep()
            await DefinitionLog(made.client, made.databases[0]).follow()
            await lose(made)
            await recovery_of(made).recover(Wanted())
            made.ledger = Ledger(made.client, board, made.settings)
            await made.ledger.state.open()

        async def must_know(board: Board) -> None:
            await (await made.drainer()).sweep()
            epoch = made.ledger.state.epoch

            def read(connection: Connection) -> list[dict[str, int]]:
                with suppress(NoPastError):
                    return [dict(scores.scores) for _, scores in scores_at_all(connection, board, epoch, times)]
                return []

            assert await made.databases[0].run(read) == [{"a": 3}, {"a": 5}]
            assert [await past_of(made, board, at) for at in times] == [[("a", 3)], [("a", 5)]]

        await made.drainer()
        await count(made.ledger, [make_entry("a", 3, None)])
        times = [await moment()]
        await recover(old)
        await count(made.ledger, [make_entry("a", 2, None)])
        times.append(await moment())
        await must_know(old)
        patch = choices | ({"window": PATCHES[choices["window"]]} if "window" in choices else {})
        await BoardAdmin(made.client, made.settings).rule("posts", patch, "chief", None, lambda _: rule(made, new))
        await must_know(new)
        await recover(new)
        await must_know(new)


@pytest.mark.parametrize("choices", CHANGES, ids=str)
async def test_the_past_before_a_recovery_follows_the_rules_after_it(
    valkey_url: str, tmp_path: Path, choices: dict[str, Any]
) -> None:
    """The swap with these rules is in another timeline."""
    await change_rules_after_a_recovery(valkey_url, tmp_path, choices)


@pytest.mark.mutant
async def test_a_past_by_the_rules_of_its_timeline_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, a reader looks for the rules only in the timeline that it reads."""
    with must_be_caught("the past has old rules"), replaced(reader, "life_of", lambda *_: []):
        await change_rules_after_a_recovery(valkey_url, tmp_path, CHANGES[0])
