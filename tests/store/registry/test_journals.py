"""What the processes say to each other about their journals."""

import msgspec
import pytest

from live.store.registry.journals import _LONGEST_LAG, _NEARLY, JournalHealth, faults_of

BACKLOG = 1000


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (JournalHealth(), []),
        (JournalHealth(most=BACKLOG, fullest="b"), ["board b takes no events: 1,000 bytes of its journal wait"]),
        (JournalHealth(most=999, fullest="b"), ["board b soon takes no events: 999 bytes of its journal wait"]),
        (JournalHealth(lost=1, example="b is lost"), ["b is lost"]),
        (JournalHealth(lost=2, example="b is lost"), ["b is lost. The same for 1 other board"]),
        (JournalHealth(lost=3, example="b is lost"), ["b is lost. The same for 2 other boards"]),
        (JournalHealth(lag=9999.4, waiting=1234), ["SQL is 9999 s behind; 1,234 bytes wait in the store"]),
    ],
)
def test_what_is_wrong_is_said_to_people(health: JournalHealth, expected: list[str]) -> None:
    """Each fault is one sentence. The fault that a process has published comes first."""
    encoded = msgspec.json.encode(health)
    assert faults_of(encoded, None, BACKLOG) == expected
    assert faults_of(encoded, b"no disk", BACKLOG) == ["no disk", *expected]


def test_the_limits_of_what_is_said() -> None:
    """A backlog is reported if it has reached a share of its limit, and a lag if it exceeds a number of seconds."""
    for share, is_named in ((_NEARLY, True), (_NEARLY - 0.001, False)):
        found = faults_of(msgspec.json.encode(JournalHealth(most=round(share * BACKLOG))), None, BACKLOG)
        assert bool(found) is is_named
    for lag, is_named in ((_LONGEST_LAG, False), (_LONGEST_LAG + 1, True)):
        assert bool(faults_of(msgspec.json.encode(JournalHealth(lag=lag)), None, BACKLOG)) is is_named


def test_a_journal_that_nobody_moves_is_a_fault() -> None:
    """If a process can't move a journal, the process says why."""
    assert faults_of(None, None, BACKLOG) == ["no process moves the journals to SQL"]
    assert faults_of(None, b"no disk", BACKLOG) == ["no disk"]
