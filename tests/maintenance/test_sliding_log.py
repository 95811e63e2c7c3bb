"""The events in a sliding window."""

import msgspec

from live.domain.board_file import BoardChoice, make_board
from live.domain.window import WindowChoice
from live.journal.log.entries import Head
from live.journal.state.fold import apply
from live.journal.state.snapshot import Logged, Snapshot
from live.journal.upkeep.checkpoints import prune
from live.maintenance.reconcile import LiveLog


def test_an_event_leaves_at_the_end_of_its_time() -> None:
    """The window may move to that time in one step or in several."""
    data, seen = Snapshot(), LiveLog()
    data.log = [Logged(10, 1, 0, "a", 3), Logged(11, 1, 1, "b", 4)]
    seen.move(data, 9)
    assert seen.sums == {"a": 3, "b": 4}
    new = LiveLog()
    for log in (seen, new):
        log.move(data, 10)
        assert (log.sums, list(log.events.values())) == ({"b": 4}, [11])


def test_an_event_leaves_by_the_clock_of_its_board() -> None:
    """So it leaves in a checkpoint too, and before an entry whose time is earlier than that of the previous entry."""
    events = [Logged(time, 1, 0, "a", 1) for time in (6_000_000, 6_400_000, 6_400_001)]
    for clock, pruned, left in (("server", events[2:], events[2:]), ("event", events[1:], events)):
        choice = BoardChoice(id="posts", window=WindowChoice(sliding="1h"), clock=clock)  # type: ignore[arg-type]
        shape = make_board(choice).shape.encode()
        data = Snapshot(shape=shape, time=10_000_000_000, latest=9_900_000, log=events)
        prune(data, 0)
        assert data.log == pruned
        withdrawn = msgspec.msgpack.encode({"member": "a"})
        for kind, time, kept in (("renew", 0, left), ("withdraw", -1, left), ("withdraw", 0, events)):
            data.log, data.time = events, 10_000_000_000
            apply(data, Head(kind, 0, "1-0", data.time + time, "", ""), withdrawn)
            assert data.log == kept
