"""Messages to viewers.

Each is encoded once for all viewers: as JSON, as a WebSocket frame, and as a server-sent event.
"""

import struct
import time
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.ranking import Page, Ranks, Record, diff
from live.domain.text import (
    BOARD,
    DEFINITION,
    EPOCH,
    GAP,
    KEY,
    OFFSET,
    PERIOD_SHOWN,
    RANK,
    RANK_COUNT,
    RECORDS,
    RECOVERED,
    SCORE,
    SERVER_TIME,
    TOTAL_SCORE,
    VIEWER_COUNT,
)
from live.domain.views import BoardFacts, definition_tag, facts_of
from live.fanout.engine.deflate import FLUSHED, SharedText, deflate

_LEAST_RECORD: Final = len(b'{"key":"a","score":0,"rank":1},')  # bytes of the shortest possible record
_LEAST_DEFLATED: Final = 128  # the fewest bytes of a message that is worth compressing
_TEXT: Final = 0x81  # the first byte of a text message in one frame
_RSV1: Final = 0x40  # the bit that marks a compressed message
_TWO_BYTES: Final = 126  # the second byte of a frame whose length follows in two bytes
_EIGHT_BYTES: Final = 1 << 16


class Sync(BoardFacts, frozen=True, tag="sync", tag_field="type"):
    """The whole top of a board.

    `time` is the time of the server. `definition` is another text as soon as the definition of the board is another
    one. Updates for viewers that return have both too, and the facts about the board.
    """

    board: Annotated[str, BOARD]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    rank_count: Annotated[int, RANK_COUNT]
    total_score: Annotated[int | None, TOTAL_SCORE]
    recovered: Annotated[bool, RECOVERED]
    records: Annotated[Sequence[Record], RECORDS]
    time: Annotated[str, SERVER_TIME]
    definition: Annotated[str, DEFINITION]
    period: Annotated[str | UnsetType, PERIOD_SHOWN] = UNSET
    ranks: Annotated[
        Ranks | UnsetType,
        Meta(description="How equal scores are ranked: `ordinal` 1 2 3, `dense` 1 1 2, `competition` 1 1 3."),
    ] = UNSET


class Update(BoardFacts, frozen=True, tag="update", tag_field="type"):
    """The changes of the top since an offset. Apply it to the list that you have at that offset.

    Remove the members in `removed` and in `changed` from your list. Then insert each record of `changed`, in the given
    order, at its `position`, or at its `rank` if it has no position. The order of the list then gives the other ranks;
    if the sync has `ranks`, the scores are needed too. If nothing in the top changed, an update has only new totals,
    and comes at most once per ten `LIVE_CONFLATION_INTERVAL`.
    """

    epoch: Annotated[str, EPOCH]
    since: Annotated[int, Meta(description="Offset to which the update applies.")]
    offset: Annotated[int, OFFSET]
    rank_count: Annotated[int, RANK_COUNT]
    total_score: Annotated[int | None, TOTAL_SCORE]
    changed: Annotated[
        Sequence[Record], Meta(description="Records that are new, changed or moved. Insert them in this order.")
    ]
    removed: Annotated[Sequence[str], Meta(description="Members that left the list.")]
    period: Annotated[str | UnsetType, PERIOD_SHOWN] = UNSET
    recovered: Annotated[bool | UnsetType, RECOVERED] = UNSET
    time: Annotated[str | UnsetType, SERVER_TIME] = UNSET
    definition: Annotated[str | UnsetType, DEFINITION] = UNSET


class Status(msgspec.Struct, frozen=True, tag="status", tag_field="type", omit_defaults=True):
    """Whether the records may be out of date, and when to reconnect if the server closes the connection."""

    stale: Annotated[bool, Meta(description="Whether the records may be out of date.")]
    reason: Annotated[str | None, Meta(description="Why the state is stale.")] = None
    retry_after: Annotated[float | None, Meta(description="Seconds after which to connect again.")] = None


class Viewers(msgspec.Struct, frozen=True, tag="viewers", tag_field="type"):
    """The number of viewers of the board, in all processes."""

    count: Annotated[int, VIEWER_COUNT]


class Around(msgspec.Struct, frozen=True, tag="around", tag_field="type"):
    """The rank of the member that you asked for with `key`, with its neighbours.

    `score`, `rank` and `gap` are null if the member is not on the board.
    """

    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    key: Annotated[str, KEY]
    rank_count: Annotated[int, RANK_COUNT]
    score: Annotated[int | None, SCORE] = None
    rank: Annotated[int | None, RANK] = None
    gap: Annotated[int | None, GAP] = None
    records: Annotated[Sequence[Record], RECORDS] = ()


class Alive(msgspec.Struct, frozen=True, tag="alive", tag_field="type"):
    """A sign that the connection is alive, and the time of the server.

    The server sends it after about 5 seconds without another message.
    """

    time: Annotated[str, SERVER_TIME]


MessageType = Literal["sync", "update", "status", "viewers", "around", "alive"]
_encode = msgspec.json.Encoder().encode


class Frame:
    """A message ready to send, shared by all its receivers. `id` is the position after the message, or empty."""

    def __init__(self, kind: MessageType, payload: bytes, identity: str = "") -> None:
        self.type = kind
        self.payload = payload
        self.id = identity

    @cached_property
    def wire(self) -> bytes:
        """The message as a WebSocket frame."""
        return _framed(_TEXT, self.payload)

    @cached_property
    def message(self) -> SharedText:
        """The message as a WebSocket frame, compressed for each history (RFC 7692), or plain if this is not larger."""
        return SharedText(self.payload, partial(_compressed, self.wire))

    @cached_property
    def event(self) -> bytes:
        """The message as a server-sent event. The payload is one line, because JSON strings escape line breaks."""
        position = f"id: {self.id}\n" if self.id else ""
        return f"{position}event: {self.type}\ndata: ".encode() + self.payload + b"\n\n"


def _compressed(wire: bytes, payload: bytes, dictionary: bytes) -> bytes:
    """Compress a payload into a WebSocket frame. Return the plain frame, `wire`, if it is not larger."""
    if len(payload) < _LEAST_DEFLATED:
        return wire
    data = deflate(payload, dictionary).removesuffix(FLUSHED)  # RFC 7692, section 7.2.1
    if len(data) >= len(payload):
        return wire
    return _framed(_TEXT | _RSV1, data)


def _framed(head: int, payload: bytes) -> bytes:
    """Make a WebSocket frame. Frames of a server are not masked, so all viewers receive the same bytes.

    A frame is made for each change of each board. The library `websockets` would take ten times as long.
    """
    size = len(payload)
    if size < _TWO_BYTES:
        return bytes((head, size)) + payload
    if size < _EIGHT_BYTES:
        return struct.pack("!BBH", head, _TWO_BYTES, size) + payload
    return struct.pack("!BBQ", head, _TWO_BYTES + 1, size) + payload


@lru_cache(maxsize=1)
def alive_frame(second: int) -> Frame:
    """Make the sign of life for a second since 1970. All viewers share it."""
    return Frame("alive", _encode(Alive(rfc3339(second * 1000))))


def sync_frame(board: Board, page: Page, size: int, *, recovered: bool = False) -> Frame:
    """Make a sync with the top `size` of a page that starts at rank 1."""
    sync = Sync(
        board=board.id,
        epoch=page.epoch,
        offset=page.offset,
        rank_count=page.rank_count,
        total_score=page.total_score,
        recovered=recovered,
        records=page.records[:size],
        time=_now(),
        definition=definition_tag(board),
        period=page.period or UNSET,
        ranks=UNSET if board.ranks == "ordinal" else board.ranks,
        **facts_of(board, page.slot),
    )
    return Frame("sync", _encode(sync), position_id(page.epoch, page.offset))


def update_frame(old: Page, new: Page, size: int, *, returning: Board | None = None) -> Frame:
    """Make an update from the top `size` of an old page to the top `size` of a new page of the same epoch.

    Both pages begin at rank 1. `returning` is the board if the update is for viewers that return: they may have missed
    a change of its definition.
    """
    facts: dict[str, Any] = {}
    if returning is not None:
        facts = {"recovered": True, "time": _now(), "definition": definition_tag(returning)}
        facts |= facts_of(returning, new.slot)
    changed, removed = diff(old.records[:size], new.records[:size])
    update = Update(
        epoch=new.epoch,
        since=old.offset,
        offset=new.offset,
        rank_count=new.rank_count,
        total_score=new.total_score,
        changed=changed,
        removed=removed,
        period=new.period or UNSET,
        **facts,
    )
    return Frame("update", _encode(update), position_id(new.epoch, new.offset))


def is_surely_smaller(update: Frame, page: Page, size: int) -> bool:
    """Tell whether an update is surely smaller than the sync, without encoding the sync."""
    rest = len(update.payload) - _LEAST_RECORD * min(size, len(page.records))
    return rest <= sum([len(record.member) - 1 for record in page.records[:size]])


def status_frame(reason: str | None, retry_after: float | None = None) -> Frame:
    """Make a status message. `reason` says why records are stale. None means that they are up to date."""
    return Frame("status", _encode(Status(reason is not None, reason, retry_after)))


def viewers_frame(count: int) -> Frame:
    """Make the message with the number of viewers."""
    return Frame("viewers", _encode(Viewers(count)))


def around_frame(around: Around) -> Frame:
    """Make the message with the rank of one member and its neighbours."""
    return Frame("around", _encode(around))


def _now() -> str:
    return rfc3339(round(time.time() * 1000))


def position_id(epoch: str, offset: int) -> str:
    """Format a position: the `id` of a server-sent event."""
    return f"{epoch}:{offset}"
