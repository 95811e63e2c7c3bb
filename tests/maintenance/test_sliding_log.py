"""The events in a sliding window."""

import msgspec

from live.domain.board_file import BoardChoice, make_board
from live.domain.window import WindowChoice
from live.journal.log.entries import Head
from live.journal.state.fold import apply
from live.journal.state.snapshot import Logged, Snapshot
from live.journal.upkeep.checkpoints import prune
from live.maintenance.reconcile import LiveLog

BOARD = make_board(BoardChoice(id="posts", window=WindowChoice(sliding="1h")))


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


def test_an_event_that_has_left_stays_away() -> None:
    """The event stays away even if the clock is set back.

    Of several events at the same time, the events before the last event that has left are gone too.
    """
    data, log = Snapshot(), LiveLog(BOARD)
    data.log = [Logged(10, offset, number, "a", -(2**number)) for offset in (1, 2) for number in (1, 2)]
    log.move(data, 9)
    assert (log.sums.slot, log.sums.taken) == ({"a": -12}, {"a": 12})
    log.move(data, 9, (10, 2, 1))
    assert (log.sums.slot, log.sums.taken) == ({"a": -4}, {"a": 4})
    new = LiveLog(BOARD)
    new.move(data, 9, (10, 1, 2))
    assert (new.sums.slot, new.sums.taken) == ({"a": -6}, {"a": 6})
    data.log.append(Logged(11, 3, 1, "b", 1))
    new.move(data, 9, (10, 1, 2))
    assert new.sums.slot == {"a": -6, "b": 1}
    new.move(data, 8)
    assert new.sums.slot == {"a": -12, "b": 1}, "events stay away although nothing says that they have left"


def test_a_member_with_zeros_has_a_sum_until_its_last_event_leaves() -> None:
    """The store counts the events of each member too."""
    data, log = Snapshot(), LiveLog(msgspec.structs.replace(BOARD, zeros=True))
    data.log = [Logged(10, 1, 0, "a", 3), Logged(11, 1, 1, "a", -3), Logged(12, 1, 2, "b", 0)]
    log.move(data, 9)
    assert (log.sums.slot, log.sums.taken) == ({"a": 0, "b": 0}, {"a": 3, "\0a": 2, "\0b": 1})
    log.move(data, 11)
    assert (log.sums.slot, log.sums.taken) == ({"b": 0}, {"\0b": 1})


def test_an_event_leaves_by_the_clock_of_its_board() -> None:
    """`prune` removes the events that have left, by the clock of the board.

    On the server clock, so does `apply` for an entry `renew`, but not for an entry whose time is before the last
    entry's: only an entry `left` says that events have left.
    """
    events = [Logged(time, 1, 0, "a", 1) for time in (6_000_000, 6_400_000, 6_400_001)]
    for clock, pruned, left in (("server", events[2:], events[2:]), ("event", events[1:], events)):
        choice = BoardChoice(id="posts", window=WindowChoice(sliding="1h"), clock=clock)  # type: ignore[arg-type]
        shape = make_board(choice).shape.encode()
        data = Snapshot(shape=shape, time=10_000_000_000, latest=9_900_000, log=events)
        prune(data)
        assert data.log == pruned
        withdrawn = msgspec.msgpack.encode({"member": "a"})
        for kind, time, kept in (("renew", 0, left), ("withdraw", -1, events), ("withdraw", 0, events)):
            data.log, data.time = events, 10_000_000_000
            apply(data, Head(kind, 0, "1-0", data.time + time, "", ""), withdrawn)
            assert data.log == kept
