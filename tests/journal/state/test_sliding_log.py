"""The events in a sliding window."""

from live.journal.state.sliding_log import LiveLog
from live.journal.state.snapshot import Logged, Snapshot


def test_an_event_leaves_at_the_end_of_its_time() -> None:
    """It makes no difference whether the window moves to that time at once or has seen the event before."""
    data, seen = Snapshot(), LiveLog()
    data.log = [Logged(10, 1, 0, "a", 3), Logged(11, 1, 1, "b", 4)]
    seen.move(data, 9)
    assert seen.sums == {"a": 3, "b": 4}
    new = LiveLog()
    for log in (seen, new):
        log.move(data, 10)
        assert (log.sums, list(log.events.values())) == ({"b": 4}, [11])
