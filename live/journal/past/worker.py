"""A process that reads the past of boards from SQL, and the limits of a query."""

import signal
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection, select

from live.errors import SetupError
from live.journal.database import Database, open_journal
from live.journal.log.entries import position_of
from live.journal.log.timelines import find_timeline
from live.journal.past.queries import TooLongError
from live.journal.schema import SEGMENT
from live.settings import Settings
from live.system.processes import follow_parent

_R = TypeVar("_R")

_LONGEST: Final = 10.0  # maximum seconds for one query
_CHECK: Final = 0.05  # seconds between two checks of the clock and the client of a query


class Ticket(NamedTuple):
    """A query: its number, and its index in the array of wanted numbers."""

    place: int
    number: int


class _Worker:
    """The database, and an array that the parent shares: for each `place`, it has the number of the wanted query."""

    database: Database | None = None
    wanted: Sequence[int] = ()


class DepartedError(Exception):
    """The client of a query has left."""


def begin_worker(settings: Settings, wanted: Sequence[int]) -> None:
    """Prepare a process that reads the past. The process ends with its parent."""
    follow_parent()
    _Worker.database, _Worker.wanted = open_journal(settings, writes=False), wanted


def run_limited(ticket: Ticket, work: Callable[..., _R], *given: object, longest: float = _LONGEST) -> _R:
    """Read the database for at most `longest` seconds, and only while the client of the query waits for the result.

    Raises:
        TooLongError: the work takes longer.
        DepartedError: the client has left.
    """
    database = _Worker.database
    if database is None:
        raise SetupError("the server keeps no journal")
    end = time.monotonic() + longest
    is_over = False

    def check(_signal: int, _frame: object) -> None:
        nonlocal is_over
        has_left = _Worker.wanted[ticket.place] != ticket.number
        if is_over or not (has_left or time.monotonic() > end):
            return
        is_over = True
        if has_left:
            raise DepartedError
        raise TooLongError(
            f"reading takes longer than {longest:g} s: ask for fewer steps, a shorter time, or a smaller board"
        )

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, _CHECK, _CHECK)
    try:
        return database.work(work, *given)
    except (DepartedError, TooLongError):
        database.close()  # the query was interrupted, so the state of its connection is unknown
        raise
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)


def drained(connection: Connection, board: str, epoch: str) -> tuple[tuple[int, int], int]:
    """Return the position of the last entry of a board in SQL, and its time in microseconds since 1970."""
    timeline = find_timeline(connection, board, epoch)
    if timeline is None:
        return (0, 0), 0
    last = select(SEGMENT.c.ended).where(SEGMENT.c.life == timeline.id).order_by(SEGMENT.c.id.desc()).limit(1)
    return position_of(timeline.drained), connection.scalar(last) or 0
