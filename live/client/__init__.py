"""A Python client for a Live Board server: send events so that each counts once, and read and watch boards.

`LiveBoard` is asynchronous. `SyncLiveBoard` does the same in ordinary threads. `live.client.errors` lists what they
raise. See docs/client.md.
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
from live.client.producer import EventResult, Producer, Totals
from live.client.sync import SyncLiveBoard, SyncProducer
from live.client.watching import Top
from live.domain.event import Answer, EventRecord, Rejection
from live.domain.item import Item
from live.domain.ranking import Record
from live.domain.views import BoardPage, BoardSummary, Entrant, EntrantList, RecordHistory, RecordView

__all__ = [
    "AccessRefusedError",
    "Answer",
    "BoardPage",
    "BoardSummary",
    "Entrant",
    "EntrantList",
    "Event",
    "EventRecord",
    "EventResult",
    "Item",
    "LiveBoard",
    "LiveBoardError",
    "NotALiveBoardError",
    "OutcomeUnknownError",
    "Producer",
    "Record",
    "RecordHistory",
    "RecordView",
    "Rejection",
    "RequestRefusedError",
    "ServerUnavailableError",
    "SyncLiveBoard",
    "SyncProducer",
    "Top",
    "Totals",
    "WatchEndedError",
]
