"""What messages change in the top, and when a client tries again."""

import math

import pytest
from msgspec import UNSET

from live.client.sender import Backoff
from live.client.watching import GapError, TopState
from live.domain.views import BoardFacts, Status

SYNC = b"""{"type":"sync","board":"b","epoch":"e","offset":1,"rank_count":2,"total_score":5,"recovered":false,
"time":"2026-11-21T14:00:00.000Z","definition":"d","records":[{"key":"x","score":3,"rank":1},{"key":"y","score":2,"rank":2}]}"""
UPDATE = b"""{"type":"update","epoch":"e","since":%d,"offset":4,"rank_count":2,"total_score":7,
"changed":[{"key":"z","score":4,"rank":1}],"removed":["y"],"period":"2026"}"""


def test_an_update_changes_the_previous_top() -> None:
    """The update removes, moves and adds records. A message of an unknown type changes nothing."""
    state = TopState("b")
    state.receive(SYNC)
    before = state.changed()
    assert state.receive(b'{"type":"news"}') is None
    assert state.changed() is None
    state.receive(UPDATE % 1)
    top = state.changed()
    assert before is not None
    assert top is not None
    assert [(record.member, record.score, record.rank) for record in top.records] == [("z", 4, 1), ("x", 3, 2)]
    assert (top.offset, top.total_score, top.period, top.stale) == (4, 7, "2026", None)
    assert [record.member for record in before.records] == ["x", "y"], "a top that a caller has was changed"


def test_a_top_has_the_facts_of_the_last_sync() -> None:
    """Updates leave the facts of the last sync unchanged."""
    state = TopState("b")
    state.receive(
        SYNC.replace(
            b'"recovered":false', b'"recovered":false,"unit":"km","scale":1,"period_end":"2027-01-01T00:00:00Z"'
        )
    )
    state.receive(UPDATE % 1)
    assert state.top is not None
    facts = state.top.facts
    assert (facts.unit, facts.scale, facts.period_end, facts.opens) == ("km", 1, "2027-01-01T00:00:00Z", UNSET)
    state.receive(SYNC)
    assert state.top.facts == BoardFacts()


@pytest.mark.parametrize("message", [UPDATE % 2, UPDATE.replace(b'"e"', b'"other"') % 1])
def test_an_update_that_does_not_follow_is_a_gap(message: bytes) -> None:
    """The update starts at another offset, belongs to another epoch, or comes before any sync."""
    state = TopState("b")
    with pytest.raises(GapError):
        state.receive(message)
    state.receive(SYNC)
    with pytest.raises(GapError):
        state.receive(message)


def test_a_top_stays_stale_until_it_is_confirmed() -> None:
    """The server or a new connection confirms the top. Records that arrive before do not make the top live."""
    state = TopState("b")
    state.receive(SYNC)
    assert state.receive(b'{"type":"status","stale":true,"reason":"so"}') == Status(stale=True, reason="so")
    state.receive(UPDATE % 1)
    assert stale(state) == "so"
    state.receive(b'{"type":"status","stale":false}')
    assert stale(state) is None
    state.mark("connection lost")
    state.connected()
    assert stale(state) == "connection lost", "the top became live before the first message of the new connection"
    state.receive(SYNC)
    assert stale(state) is None


def stale(state: TopState) -> str | None:
    """Why the top may be out of date."""
    assert state.top is not None
    return state.top.stale


def test_pauses_grow_with_jitter() -> None:
    """Each pause is random, up to a limit that doubles. After a success, the limit starts again."""
    pauses = [[] for _ in range(6)]  # type: list[list[float]]
    for _ in range(2000):
        backoff = Backoff(1, 8)
        for pause in pauses:
            pause.append(backoff.next())
        assert 3 <= backoff.after(3) <= 4
        backoff.reset()
        assert backoff.next() <= 1
    for pause, limit in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert 0 <= min(pause) < limit * 0.1
        assert limit * 0.9 < max(pause) <= limit
        assert math.isclose(sum(pause) / 2000, limit / 2, rel_tol=0.1)
