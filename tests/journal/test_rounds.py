"""Which boards the keeper checks."""

from live.domain.board import Board
from live.journal.rounds import KnownLife, Rounds
from tests.harness.boards import rolling_board

SECOND = 1_000_000  # microseconds
HOUR = 3600 * SECOND
BOARD = rolling_board()


def known_life(life: int, drained: str = "1-0", board: Board | None = BOARD) -> KnownLife:
    """A life."""
    return KnownLife(life, drained, board)


def test_a_quiet_board_is_checked_after_the_hour_and_then_rarely() -> None:
    """The totals of the hour are added up when it has ended. Then nothing is due for a long time."""
    rounds = Rounds()
    checked = [at for at in range(24 * 60) if rounds.choose([known_life(1)], at * 60 * SECOND)]
    assert checked == [0, 60, 60 + 360, 60 + 720, 60 + 1080]


def test_a_change_is_checked_in_the_next_round() -> None:
    """A change of the board's entries, or of what its journal keeps."""
    rounds = Rounds()
    rounds.choose([known_life(1), known_life(2)], 0)
    assert not rounds.choose([known_life(1), known_life(2)], SECOND)
    assert rounds.choose([known_life(1, "2-0"), known_life(2)], 2 * SECOND) == {1}
    assert rounds.choose([known_life(1, "2-0"), known_life(2, board=None)], 3 * SECOND) == {2}
    assert not rounds.choose([known_life(1, "2-0"), known_life(2, board=None)], 4 * SECOND)


def test_few_quiet_boards_are_checked_in_one_round() -> None:
    """Each of them has its turn, and boards that change do not wait."""
    rounds = Rounds()
    lives = [known_life(life) for life in range(1000)]
    turns = [rounds.choose(lives, round_ * 60 * SECOND) for round_ in range(20)]
    assert all(len(turn) == 50 for turn in turns)
    assert set().union(*turns) == set(range(1000))
    lives[999] = known_life(999, "2-0")
    turn = rounds.choose(lives, HOUR)
    assert 999 in turn
    assert len(turn) <= 51
