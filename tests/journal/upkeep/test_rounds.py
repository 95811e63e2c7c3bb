"""Which boards the compactor checks."""

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.journal.log.timelines import Timeline
from live.journal.upkeep.compactor import KnownTimeline, Rounds
from tests.harness.boards import rolling_board

SECOND = 1_000_000  # microseconds
HOUR = 3600 * SECOND
BOARD = rolling_board()


def known_timeline(timeline: int, drained: str = "1-0", board: Board | None = BOARD) -> KnownTimeline:
    """A timeline with its last entry in SQL and its board."""
    return Timeline(timeline, "posts", "e", drained), board


def chosen(rounds: Rounds, timelines: list[KnownTimeline], now: int) -> set[int]:
    """The numbers of the timelines to check."""
    return {timeline.id for timeline, _ in rounds.choose(timelines, now)}


def checks_of_a_day(board: Board) -> list[int]:
    """The minutes of a day in which a board that does not change is checked."""
    rounds = Rounds()
    return [at for at in range(24 * 60) if rounds.choose([known_timeline(1, board=board)], at * 60 * SECOND)]


def test_a_quiet_board_is_checked_rarely() -> None:
    """On a quiet board, nothing is due for a long time."""
    assert checks_of_a_day(BOARD) == [0, 360, 720, 1080]


def test_a_quiet_board_with_periods_is_checked_after_each_hour() -> None:
    """A period ends at the end of an hour, and is archived then."""
    (board,) = parse_boards('[[board]]\nid = "days"\nwindow = { calendar = "day" }')
    assert checks_of_a_day(board) == list(range(0, 24 * 60, 60))


def test_a_change_is_checked_in_the_next_round() -> None:
    """Either the board has new entries, or its choices of what the journal keeps have changed."""
    rounds = Rounds()
    chosen(rounds, [known_timeline(1), known_timeline(2)], 0)
    assert not chosen(rounds, [known_timeline(1), known_timeline(2)], SECOND)
    assert chosen(rounds, [known_timeline(1, "2-0"), known_timeline(2)], 2 * SECOND) == {1}
    assert chosen(rounds, [known_timeline(1, "2-0"), known_timeline(2, board=None)], 3 * SECOND) == {2}
    assert not chosen(rounds, [known_timeline(1, "2-0"), known_timeline(2, board=None)], 4 * SECOND)


def test_boards_that_wait_for_their_next_check_come_before_new_ones() -> None:
    """A round has room for 50 quiet boards. The others keep their place in the queue."""
    rounds = Rounds()
    known = [known_timeline(timeline) for timeline in range(60)]
    for at in (0, 60 * SECOND):
        chosen(rounds, known, at)
    assert chosen(rounds, known, 7 * HOUR) == set(range(50))
    new = [known_timeline(timeline) for timeline in range(100, 150)]
    assert set(range(50, 60)) < chosen(rounds, [*new, *known], 7 * HOUR + 60 * SECOND)


def test_few_quiet_boards_are_checked_in_one_round() -> None:
    """Each quiet board has its turn, and boards that change do not wait."""
    rounds = Rounds()
    timelines = [known_timeline(timeline) for timeline in range(1000)]
    turns = [chosen(rounds, timelines, round_ * 60 * SECOND) for round_ in range(20)]
    assert all(len(turn) == 50 for turn in turns)
    assert set().union(*turns) == set(range(1000))
    timelines[999] = known_timeline(999, "2-0")
    turn = chosen(rounds, timelines, HOUR)
    assert 999 in turn
    assert len(turn) <= 51
