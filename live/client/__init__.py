"""A Python client for a Live Board server: send events so that each counts once, and watch the top of a board.

`LiveBoard` is asynchronous. `SyncProducer` sends events from ordinary threads. See docs/client.md.
"""

from live.client.board import LiveBoard
from live.client.errors import (
    AccessRefusedError,
    LiveBoardError,
    NotALiveBoardError,
    OutcomeUnknownError,
    RequestRefusedError,
    ServerUnavailableError,
    WatchEndedError,
)
from live.client.events import Event
from live.client.producer import Producer, Totals
from live.client.sync_producer import SyncProducer
from live.client.watching import Top
from live.domain.event import Answer, Rejection
from live.domain.ranking import Record

__all__ = [
    "AccessRefusedError",
    "Answer",
    "Event",
    "LiveBoard",
    "LiveBoardError",
    "NotALiveBoardError",
    "OutcomeUnknownError",
    "Producer",
    "Record",
    "Rejection",
    "RequestRefusedError",
    "ServerUnavailableError",
    "SyncProducer",
    "Top",
    "Totals",
    "WatchEndedError",
]
