"""The events in a sliding window."""

import msgspec

from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.window import WindowChoice
from live.journal.state.sliding_log import LiveLog
from live.journal.state.snapshot import Logged, Snapshot
from live.journal.upkeep.checkpoints import prune

BOARD = make_board(Choices(id="posts", window_choice=WindowChoice(sliding="1h")))


def test_an_event_leaves_at_the_end_of_its_time() -> None:
    """The window may move to that time in one step or in several."""
    data, seen = Snapshot(), LiveLog(BOARD)
    data.log = [Logged(10, 1, 0, "a", 3), Logged(11, 1, 1, "b", 4)]
    seen.move(data, 9)
    assert seen.sums.slot == {"a": 3, "b": 4}
    new = LiveLog(BOARD)
    for log in (seen, new):
        log.move(data, 10)
        assert (log.sums.slot, list(log.events.values())) == ({"b": 4}, [11])


def test_a_log_is_read_again_at_an_earlier_time() -> None:
    """The store's clock was set back, and the board has not changed since: the store still has what had left."""
    data, log = Snapshot(), LiveLog(BOARD)
    data.log = [Logged(10, 1, 0, "a", -3), Logged(11, 2, 1, "b", 1)]
    log.move(data, 10)
    assert (log.sums.slot, log.sums.taken) == ({"b": 1}, {})
    log.move(data, 9)
    assert (log.sums.slot, log.sums.taken) == ({"a": -3, "b": 1}, {"a": 3})


def test_a_member_with_zeros_has_a_sum_until_its_last_event_leaves() -> None:
    """The store counts the events of each member too."""
    data, log = Snapshot(), LiveLog(msgspec.structs.replace(BOARD, zeros=True))
    data.log = [Logged(10, 1, 0, "a", 3), Logged(11, 1, 1, "a", -3), Logged(12, 1, 2, "b", 0)]
    log.move(data, 9)
    assert (log.sums.slot, log.sums.taken) == ({"a": 0, "b": 0}, {"a": 3, "\0a": 2, "\0b": 1})
    log.move(data, 11)
    assert (log.sums.slot, log.sums.taken) == ({"b": 0}, {"\0b": 1})


def test_an_event_leaves_by_the_clock_of_its_board() -> None:
    """`prune` removes the events that have left."""
    events = [Logged(time, 1, 0, "a", 1) for time in (6_000_000, 6_400_000, 6_400_001)]
    for clock, pruned in (("server", events[2:]), ("event", events[1:])):
        choice = Choices(id="posts", window_choice=WindowChoice(sliding="1h"), clock=clock)  # type: ignore[arg-type]
        shape = make_board(choice).shape.encode()
        data = Snapshot(shape=shape, time=10_000_000_000, latest=9_900_000, log=events)
        prune(data)
        assert data.log == pruned
